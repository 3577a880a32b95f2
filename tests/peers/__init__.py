"""Programs of other projects' real protocols, built here to test against; each is a Go module of a few files.

They are built with the machine's Go (1.24 or newer) and cached outside the work tree, keyed by their own content.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numalign" / "peers"


class PeerMissingError(Exception):
    """The peer cannot be built here; the text says why."""


def build(name: str, *, ldflags: str = "", package: str = ".", seconds: float = 1800) -> Path:
    """Path of the built program; raises PeerMissingError when there is no Go or the build fails."""
    go = shutil.which("go")
    if go is None:
        raise PeerMissingError(f"the peer {name} needs Go to be built, and there is none on this machine")
    folder = HERE / name
    digest = hashlib.sha256(ldflags.encode())
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    target = CACHE / f"{name}-{digest.hexdigest()[:16]}"
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [go, "build", "-trimpath", f"-ldflags=-s -w {ldflags}", "-o", str(part), package],
            cwd=folder, env={**os.environ, "CGO_ENABLED": "0"}, capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
        if done.returncode:
            raise PeerMissingError(f"building the peer {name} failed:\n{done.stderr[-2000:]}")
        part.rename(target)
    return target


KUBERNETES = "v1.36.3"
_KUBE_FLAGS = (
    f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}"
    " -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
)


def kube() -> Path:
    """The Kubernetes components as one program (its first argument says which); minutes when it is not cached."""
    return build("kube", ldflags=_KUBE_FLAGS, seconds=3000)
