"""What is in an image, as a CycloneDX bill of materials (https://cyclonedx.org/docs/1.6/json).

Python's packages are those of deploy/lock/runtime.txt that an architecture gets, each with the hash of the file
that was installed; Debian's are those that dpkg names in the base, with the digests of deploy/lock/base.txt.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from tools import image
from tools.image import debian, debs
from tools.release import Plan, ReleaseError, sha256, written

RUNTIME = debian.ROOT / "deploy/lock/runtime.txt"
SCHEMA, VERSION = "http://cyclonedx.org/schema/bom-1.6.schema.json", "1.6"
_LINE = re.compile(r"^([^\s#].*?)((?: \\\n    --hash=\S+)*)$", re.MULTILINE)
Component = dict[str, Any]


def make(plan: Plan) -> list[Path]:
    """One for the image of each architecture."""
    return [written(plan.sbom(arch), bill(plan, arch)) for arch in image.MACHINES]


def bill(plan: Plan, arch: str) -> Component:
    """Of one image."""
    digest = plan.digests()[arch]
    suite, _ = debian.settings()
    purl = f"pkg:oci/numalign@{quote(digest, safe='')}?arch={arch}&tag={plan.version}"
    parts = [*libraries(arch, RUNTIME.read_text("utf-8"), image.wheels(arch))]
    files = {each.name: each.digest for each in debs.recorded(debian.RECORD.read_text("utf-8"))[arch]}
    parts += [
        system(name, version, arch, suite, files[name]) for name, version in debian.packages(image.base(arch)).items()
    ]
    parts.append(_component("application", "numalign", plan.version, f"pkg:pypi/numalign@{plan.version}"))
    parts.sort(key=lambda each: str(each["bom-ref"]))
    return {
        "$schema": SCHEMA, "bomFormat": "CycloneDX", "specVersion": VERSION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{purl}#{plan.revision}')}", "version": 1,
        "metadata": {
            "timestamp": dt.datetime.fromtimestamp(debian.EPOCH, dt.UTC).isoformat(),
            "component": {
                **_component("container", "numalign", plan.version, purl),
                "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
            },
        },
        "components": parts,
        "dependencies": [{"ref": purl, "dependsOn": [each["bom-ref"] for each in parts]}],
    }  # fmt: skip


def libraries(arch: str, lock: str, wheels: Path) -> Iterator[Component]:
    """Python's packages.

    Args:
        arch: that they are for.
        lock: the text of the lock file.
        wheels: the folder with what was installed.

    Raises:
        ReleaseError: a file is missing, or is none of those that the lock names.
    """
    files = {parse_wheel_filename(each.name)[:2]: each for each in wheels.glob("*.whl")}
    machine = {
        "platform_machine": image.MACHINES[arch], "sys_platform": "linux", "platform_system": "Linux",
        "os_name": "posix", "python_version": image.PYTHON, "python_full_version": f"{image.PYTHON}.0",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
    }  # fmt: skip
    for text, hashes in _LINE.findall(lock):
        wanted = Requirement(text)
        if wanted.marker and not wanted.marker.evaluate(machine):
            continue
        version = str(wanted.specifier).removeprefix("==")
        file = next((path for (name, of), path in files.items() if (name, str(of)) == (_name(wanted), version)), None)
        if file is None or f"--hash=sha256:{sha256(file)}" not in hashes:
            raise ReleaseError(
                f"{wanted.name} {version}: what would be installed for {arch} is not what the lock names"
            )
        yield {
            **_component("library", wanted.name, version, f"pkg:pypi/{_name(wanted)}@{version}"),
            "hashes": [{"alg": "SHA-256", "content": sha256(file)}],
        }


def system(name: str, version: str, arch: str, suite: str, digest: str) -> Component:
    """A package of Debian, and the SHA-256 of its file."""
    of = f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={arch}&distro={suite}"
    return {**_component("library", name, version, of), "hashes": [{"alg": "SHA-256", "content": digest}]}


def _component(kind: str, name: str, version: str, purl: str) -> Component:
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _name(wanted: Requirement) -> str:
    return canonicalize_name(wanted.name)
