"""Programs of other projects' real protocols, built here to test against; each is a Go module of a few files.

They are built with Go (`tests.peers.go`) and cached outside the work tree, keyed by their own content. pytest builds
what its tests need before the first one begins (`tests.peers.ahead`); `make peers` builds all.
"""

from __future__ import annotations

import contextlib
import contextvars
import fcntl
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tests.peers import go

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numalign" / "peers"

SECONDS = 7200.0
"""After which a build is given up: it hangs, or a download does."""


_ONLY_KEPT = contextvars.ContextVar("only kept", default=False)


class PeerMissingError(Exception):
    """The peer cannot be built here; the text says why.

    Attributes:
        program: that is missing for it, "" where that is not the reason.
    """

    def __init__(self, text: str, program: str = "") -> None:
        super().__init__(text)
        self.program = program


def build(name: str, *, ldflags: str = "", package: str = ".", arch: str = "", versions: str = "") -> Path:
    """Path of the built program; raises PeerMissingError when there is no Go or the build fails.

    Args:
        name: of its folder.
        ldflags: of Go.
        package: in the folder, or of a module that it names.
        arch: that it runs on, as Go calls it; "" for this machine's.
        versions: the file <versions>.mod of the folder is read in place of go.mod.
    """
    folder = HERE / name
    key = digest(folder.iterdir(), ldflags.encode())
    target = CACHE / f"{name}{arch and f'-{arch}'}{versions and f'-{versions}'}-{key}"
    with making(target) as part:
        if part:
            more = {"GOARCH": arch} if arch else {}
            flags = [f"-ldflags=-s -w {ldflags}", *([f"-modfile={versions}.mod"] if versions else [])]
            compiled(f"the peer {name}", "build", *flags, "-o", part, package, cwd=folder, **more)
    return target


def digest(files: Iterable[Path], beside: bytes = b"") -> str:
    """Sixteen hex digits over names and contents, and over what else a build depends on."""
    found = hashlib.sha256(beside)
    for path in sorted(files):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def built(target: Path, name: str, files: Callable[[], Mapping[str, str]], *options: str) -> Path:
    """A program of Go files that are made for it, built where it is not kept; raises PeerMissingError."""
    with making(target) as part:
        if part:
            with tempfile.TemporaryDirectory() as folder:
                for file, text in files().items():
                    place = Path(folder, file)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_text(text, "utf-8")
                compiled(name, "build", *options, "-o", part, ".", cwd=Path(folder), **go.AS_ASKED)
    return target


@contextlib.contextmanager
def making(target: Path) -> Iterator[Path | None]:
    """A path to build at, renamed to `target` at the end; None when that is there already. One builder at a time."""
    if target.exists():
        yield None
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            yield None
            return
        part = target.with_name(f".{target.name}.part")
        try:
            yield part
            part.rename(target)
        finally:
            part.unlink(missing_ok=True)


def compiled(name: str, verb: str, *arguments: str | Path, cwd: Path = HERE, **more: str) -> None:
    """Run Go; raises PeerMissingError where there is none, or with what it said."""
    from_cache(name)
    found = go.find()
    if found is None:
        raise PeerMissingError(
            f"{name} needs Go {'.'.join(map(str, go.OLDEST))} to be built, and there is none", "go"
        )
    try:
        done = subprocess.run(
            [found, verb, "-trimpath", *arguments], cwd=cwd, env={**os.environ, "CGO_ENABLED": "0", **more},
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PeerMissingError(f"building {name} did not end within {SECONDS:.0f} s") from None
    if done.returncode:
        raise PeerMissingError(f"building {name} failed:\n{done.stderr[-2000:]}")


def not_kept(*builds: Callable[[], object]) -> str:
    """What of some builds is not in the cache, "" when all of it is. Nothing is built for the answer."""
    token = _ONLY_KEPT.set(True)
    try:
        for build in builds:
            build()
    except PeerMissingError as error:
        return str(error)
    finally:
        _ONLY_KEPT.reset(token)
    return ""


def from_cache(name: str) -> None:
    """Called by what is about to build something; raises PeerMissingError where only the cache is asked."""
    if _ONLY_KEPT.get():
        raise PeerMissingError(f"{name} is not kept")


KUBERNETES = "v1.36.3"
_KUBE_FLAGS = (
    f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}"
    " -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
)


def kube() -> Path:
    """The Kubernetes components as one program (its first argument says which); minutes when it is not cached."""
    return build("kube", ldflags=_KUBE_FLAGS)
