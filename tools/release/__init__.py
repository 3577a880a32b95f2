"""`make release`: images, chart, plugin and what proves them, made on this machine and pushed to one registry.

    steps       what is done, in which order; what is there already is not done again
    artefacts   images as an OCI layout, the packaged chart, the plugin's archive, checksums
    sbom        what is in an image, as CycloneDX
    provenance  what it was made from, as an in-toto statement of SLSA's form
    registry    push, signatures and attestations by cosign with a key, and their verification

Nothing is asked of a service of others: no transparency log, no certificate by name. The key is the maker's.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

INDEX = "index"
"""The key of the image of all architectures, beside one for each."""
_LOOPBACK = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?(/|$)")
SECONDS = 1800.0
"""After which a program is given up: a push over a slow line takes its time."""


class ReleaseError(Exception):
    """The release cannot go on; the text says why, and what to do."""


@dataclass(frozen=True)
class Plan:
    """One release.

    Attributes:
        version: of agent, chart and plugin.
        registry: host and path that images and charts are pushed below, "" for none.
        key: cosign's private key: a file, or the URI of a key management service; "" for none.
        folder: where everything is made.
        revision: the commit.
        source: URL of the repository, "" if it has none; for the provenance.
        push: whether anything is; without, the registry is only named.
        url: where the files of the folder will be published; for the plugin's manifest.
    """

    version: str
    registry: str
    key: str
    folder: Path
    revision: str
    source: str = ""
    url: str = ""
    push: bool = True

    @property
    def image(self) -> str:
        """The image's repository."""
        return f"{self.registry}/numalign"

    @property
    def charts(self) -> str:
        """Where charts lie; the repository of this one is below."""
        return f"{self.registry}/charts"

    @property
    def chart(self) -> Path:
        """The packaged chart."""
        return self.folder / f"numalign-{self.version}.tgz"

    def sbom(self, arch: str) -> Path:
        """Of the image of an architecture."""
        return self.folder / f"numalign-{self.version}-{arch}.cdx.json"

    def digests(self) -> Mapping[str, str]:
        """Architecture or INDEX -> digest of the image that was made."""
        found: dict[str, str] = json.loads((self.folder / "images.json").read_text("utf-8"))
        return found

    @property
    def plain(self) -> bool:
        """Whether the registry is spoken to without TLS: only one of this machine."""
        return _LOOPBACK.match(self.registry) is not None


def run(program: Path, *arguments: str | Path, **environment: str) -> str:
    """A program's output; raises ReleaseError with what it said."""
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False,
            env={**os.environ, **environment},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ReleaseError(f"{program.name} did not end within {SECONDS:.0f} s") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-1500:]
        raise ReleaseError(f"{program.name} {arguments[0]} failed: {said or done.returncode}")
    return done.stdout


def sha256(path: Path) -> str:
    """Of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def written(path: Path, value: object) -> Path:
    """JSON in a file, the same bytes for the same value."""
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
    return path
