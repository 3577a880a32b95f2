"""The files of a release; each is the same bytes when it is made again from the same commit and base."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import shutil
import string
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tools import image
from tools.chart import rendering
from tools.image import debian
from tools.release import INDEX, Plan, ReleaseError, sha256, written

ROOT = debian.ROOT
PLUGIN = ("deploy/kubectl-numalign", "deploy/kubectl_complete-numalign", "LICENSE")
KREW = ROOT / "deploy/krew.yaml"
SUMS = "SHA256SUMS"
_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_REF = "org.opencontainers.image.ref.name"


def images(plan: Plan) -> list[Path]:
    """The image of every architecture in one OCI layout, below one index: the folder `image`, and images.json."""
    for arch in image.MACHINES:
        lines = [*debian.differences(debian.packages(image.base(arch)), debian.recorded()[arch])]
        if lines:
            more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
            raise ReleaseError(
                f"the base for {arch} is not the one of deploy/lock/base.txt: {', '.join(lines[:3])}{more}; "
                "`make base` records what Debian has today: look at the difference, and commit it"
            )
    layout = plan.folder / "image"
    shutil.rmtree(layout, ignore_errors=True)  # of a release that was ended
    with image.locked():
        store = image.kept_store(plan.revision)
        store.end_killed()
        for arch in image.MACHINES:
            tag = f"numalign-{arch}:release"
            image.build(store, tag, arch, plan.revision)
            store("push", "--format", "oci", tag, f"oci:{layout}:{arch}")
    digests = joined(layout, plan.version)
    return [*_files(layout), written(plan.folder / "images.json", digests)]


def joined(layout: Path, version: str) -> dict[str, str]:
    """Make one image of the architectures in a layout; architecture or INDEX -> digest."""
    top = json.loads((layout / "index.json").read_text("utf-8"))
    found = {each["annotations"][_REF]: each for each in top["manifests"]}
    manifests = []
    for arch, each in sorted(found.items()):
        system, architecture, *variant = image.PLATFORMS[arch].split("/")
        platform = {"architecture": architecture, "os": system, **({"variant": variant[0]} if variant else {})}
        manifests.append({**{key: each[key] for key in ("mediaType", "digest", "size")}, "platform": platform})
    data = json.dumps({"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": manifests}).encode()
    digest = hashlib.sha256(data).hexdigest()
    (layout / "blobs/sha256" / digest).write_bytes(data)
    index = {
        "mediaType": _INDEX_TYPE, "digest": f"sha256:{digest}", "size": len(data), "annotations": {_REF: version},
    }  # fmt: skip
    written(layout / "index.json", {"schemaVersion": 2, "manifests": [index]})
    return {INDEX: index["digest"], **{arch: each["digest"] for arch, each in found.items()}}


def chart(plan: Plan) -> list[Path]:
    """The chart, packed; it names the image of this release by registry and digest."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "numalign"
        shutil.copytree(rendering.CHART, copy)
        values = copy / "values.yaml"
        values.write_text(pinned(values.read_text("utf-8"), plan.registry, plan.digests()[INDEX]), "utf-8")
        about = copy / "Chart.yaml"
        about.write_text(described(about.read_text("utf-8"), plan), "utf-8")
        rendering.helm("package", copy, "--destination", folder)
        with tarfile.open(Path(folder) / plan.chart.name) as packed:
            members = {each.name: _read(packed, each) for each in packed.getmembers() if each.isfile()}
    return [_packed(plan.chart, members)]


def pinned(values: str, registry: str, digest: str) -> str:
    """The text of values.yaml with the image's registry and digest filled in."""
    for key, value in (("registry", registry), ("digest", digest)):
        values, count = re.subn(rf'(?m)^(image:\n(?:  .*\n)*?  {key}: )""$', rf"\g<1>{json.dumps(value)}", values)
        if count != 1:
            raise ReleaseError(f"values.yaml has no empty image.{key} to be filled in")
    return values


def described(about: str, plan: Plan) -> str:
    """The text of Chart.yaml with what only a release knows: where its sources are, and its image by digest."""
    found = yaml.safe_load(about)
    if plan.source:
        found |= {"home": plan.source, "sources": [plan.source]}
    if plan.registry:
        images = [{
            "name": "numalign", "image": f"{plan.image}:{plan.version}@{plan.digests()[INDEX]}",
            "platforms": [f"linux/{arch}" for arch in image.MACHINES],
        }]  # fmt: skip
        found["annotations"]["artifacthub.io/images"] = yaml.safe_dump(images, sort_keys=False)
    return yaml.safe_dump(found, sort_keys=False)


def plugin(plan: Plan) -> list[Path]:
    """`kubectl numalign` as an archive, and the manifest by which krew installs it."""
    target = plan.folder / f"kubectl-numalign-{plan.version}.tar.gz"
    _packed(target, {Path(each).name: (ROOT / each).read_bytes() for each in PLUGIN}, programs=PLUGIN[:2])
    url = plan.url.rstrip("/") or f"https://example.invalid/numalign/{plan.version}"
    text = string.Template(KREW.read_text("utf-8")).substitute(
        VERSION=plan.version, URL=f"{url}/{target.name}", SHA256=sha256(target)
    )
    manifest = plan.folder / "numalign.yaml"
    manifest.write_text(text, "utf-8")
    return [target, manifest]


def checksums(plan: Plan, files: Iterable[Path]) -> list[Path]:
    """Of the files that somebody may take from the folder; the layout's blobs have their digests as names."""
    names = sorted(each for each in files if each.parent == plan.folder)
    target = plan.folder / SUMS
    target.write_text("".join(f"{sha256(each)}  {each.name}\n" for each in names), "utf-8")
    return [target]


def _packed(target: Path, members: Mapping[str, bytes], programs: Iterable[str] = ()) -> Path:
    """A compressed tar without any time or user."""
    executable = {Path(each).name for each in programs}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(members.items(), key=lambda each: (each[0].count("/"), each[0])):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), debian.EPOCH, 0o755 if name in executable else 0o644
            archive.addfile(entry, io.BytesIO(data))
    target.write_bytes(gzip.compress(made.getvalue(), mtime=0))
    return target


def _read(archive: tarfile.TarFile, member: Any) -> bytes:  # noqa: ANN401 - a TarInfo
    file = archive.extractfile(member)
    return file.read() if file else b""


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.is_file())
