"""The image, built by the real Dockerfile without a registry: buildah, and a base that mmdebstrap makes.

    base()      a root of this machine's Debian release with Python, as a tar; a minute or two, then cached
    wheels()    the locked dependencies as files, so that the build needs no network
    archive()   the built image as a docker-archive: `ctr -n k8s.io images import FILE`, `podman load -i FILE`

Everything lies in ~/.cache/numalign/image, keyed by the content it was made from. `python -m tests.image` builds it
and prints where it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agent import __version__

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "numalign" / "image"
NAME = f"numalign:{__version__}"
"""What the image is called in the archive; the chart's defaults name the same."""
SUITE = "bookworm"
"""Debian 12: Python 3.11, the oldest that is supported."""
PACKAGES = "python3,libudev1,libstdc++6,ca-certificates"
_DROPPED = ("doc", "man", "info", "locale")
_PIP = "pip==25.3"
_LOCKS = ("deploy/lock/runtime.txt", "deploy/lock/build.txt")
_SOURCES = ("Dockerfile", "pyproject.toml", "README.md", "LICENSE", *_LOCKS)


_KEPT = 4
"""Images that are kept: several work trees share the cache."""


class ImageMissingError(Exception):
    """The image cannot be built here; the text says why."""


def archive() -> Path:
    """The image as a docker-archive, built when something in it changed."""
    target = CACHE / f"numalign-{_digest()}.tar"
    with _locked():
        if not target.exists():
            _build(target)
        kept = sorted(CACHE.glob("numalign-*.tar"), key=lambda path: path.stat().st_mtime)
        for old in set(kept[:-_KEPT]) - {target}:
            old.unlink()
    return target


def base() -> Path:
    """A root with Python and nothing that it can do without, as a tar."""
    recipe = hashlib.sha256(f"{SUITE} {PACKAGES} {_DROPPED}".encode()).hexdigest()[:12]
    target = CACHE / f"base-{SUITE}-{recipe}.tar"
    if not target.exists():
        left_out = [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in _DROPPED]
        spare = target.with_name(f".{target.name}")
        _run("mmdebstrap", "--variant=essential", f"--include={PACKAGES}", *left_out, SUITE, str(spare), seconds=900)
        spare.rename(target)
    return target


def wheels() -> Path:
    """A folder with every locked file that the build needs, hashes checked."""
    locks = [ROOT / name for name in _LOCKS]
    target = CACHE / f"wheels-{_hash(locks)}"
    if not target.exists():
        spare = CACHE / f".{target.name}"
        shutil.rmtree(spare, ignore_errors=True)
        for lock in locks:
            _pip("download", "--require-hashes", "-r", str(lock), "-d", str(spare))
        spare.rename(target)
    return target


def _pip(*arguments: str) -> None:
    _run(sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check", seconds=600)


def _build(target: Path) -> None:
    """Built from the store of the last build; when that fails, once more from an empty store."""
    try:
        _build_in(Buildah(CACHE / "store"), target)
    except ImageMissingError as error:
        print(f"the image, once more without the layers of earlier builds: {error}", file=sys.stderr)
        for store in CACHE.glob("store-*"):
            shutil.rmtree(store, ignore_errors=True)
        _build_in(Buildah(CACHE / "store"), target)


def _build_in(buildah: Buildah, target: Path) -> None:
    """Layers that did not change (base, dependencies) are used again."""
    buildah.end_killed()
    stem = base().stem
    if f"localhost/{stem}-builder" not in buildah("images", "--format", "{{.Name}}").split():
        _build_base(buildah, stem)
    buildah(
        "build", "--layers", "--tag", NAME, "--volume", f"{wheels()}:/wheels:ro",
        "--build-arg", f"BASE={stem}", "--build-arg", f"BUILDER={stem}-builder",
        "--build-arg", "PIP_NO_INDEX=1", "--build-arg", "PIP_FIND_LINKS=/wheels", str(ROOT),
    )  # fmt: skip
    spare = target.with_name(f".{target.name}")
    spare.unlink(missing_ok=True)
    buildah("push", NAME, f"docker-archive:{spare}:{NAME}")
    buildah("rmi", "--prune")
    spare.rename(target)


def _build_base(buildah: Buildah, stem: str) -> None:
    """Images of the root alone, and of the root with pip."""
    with _scratch() as folder:
        _pip("download", _PIP, "--no-deps", "-d", str(folder))
        with zipfile.ZipFile(next(folder.glob("pip-*.whl"))) as wheel:
            wheel.extractall(folder / "pip")  # noqa: S202 - pip's own wheel
        os.link(base(), folder / "base.tar")
        (folder / "Base").write_text("FROM scratch\nADD base.tar /\n")
        (folder / "Builder").write_text(f"FROM {stem}\nCOPY pip /usr/lib/python3/dist-packages\n")
        buildah("build", "--tag", stem, "--file", str(folder / "Base"), str(folder))
        buildah("build", "--tag", f"{stem}-builder", "--file", str(folder / "Builder"), str(folder))


def unpack(path: Path, folder: Path) -> None:
    """The files of an image, layer upon layer; the Dockerfile deletes nothing that a lower layer has."""
    with tarfile.open(path) as outer:
        for layer in _json(outer, "manifest.json")[0]["Layers"]:
            data = outer.extractfile(layer)
            with tarfile.open(fileobj=data) as inner:
                inner.extractall(folder, filter="fully_trusted")  # noqa: S202 - the image that was built above


def configuration() -> dict[str, Any]:
    """What the image says of itself: User, Env, Entrypoint, Cmd."""
    with tarfile.open(archive()) as outer:
        found: dict[str, Any] = _json(outer, _json(outer, "manifest.json")[0]["Config"])["config"]
    return found


def environment() -> dict[str, str]:
    """The image's environment."""
    return dict(each.split("=", 1) for each in configuration()["Env"])


def command() -> list[str]:
    """Entry point and arguments."""
    found = configuration()
    return [*found["Entrypoint"], *found["Cmd"]]


def _json(archive: tarfile.TarFile, name: str) -> Any:  # noqa: ANN401 - JSON
    file = archive.extractfile(name)
    return json.load(file) if file else None


class Buildah:
    """buildah with a store of its own, so that the machine's images are left alone."""

    def __init__(self, folder: Path) -> None:
        for driver in ("overlay", "vfs"):  # the second one, slower, where a container's root cannot be overlaid
            place = f"{folder}-{driver}"
            self._flags = ("--root", place, "--runroot", f"{place}-run", "--storage-driver", driver)
            try:
                self("images")
            except ImageMissingError:
                if driver == "vfs":
                    raise
            else:
                return

    def end_killed(self) -> None:
        """Delete the containers of builds that were killed: their images could not be pruned."""
        self("rm", "--all")

    def __call__(self, *arguments: str, seconds: float = 900) -> str:
        """Run one command; its output."""
        return _run("buildah", *self._flags, *arguments, seconds=seconds, BUILDAH_ISOLATION="chroot")


def _run(*command: str, seconds: float, **environment: str) -> str:
    if shutil.which(command[0]) is None:
        raise ImageMissingError(f"{command[0]} is missing: apt-get install buildah mmdebstrap")
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        raise ImageMissingError(f"{' '.join(command[:6])} ... failed:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")
    return done.stdout


def _digest() -> str:
    sources = [*(ROOT / name for name in _SOURCES), *sorted((ROOT / "agent").rglob("*"))]
    files = (path for path in sources if path.is_file() and path.suffix != ".pyc")
    return _hash([*files, Path(__file__)])


def _hash(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """One build at a time, also among processes."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    folder = CACHE / f".build-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
