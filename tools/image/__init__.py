"""The image, built by the real Dockerfile without a registry: buildah, and a base that mmdebstrap makes.

    base()      a root of a Debian release with Python, as a tar (tools/image/debian.py)
    wheels()    the locked dependencies as files, so that the build needs no network
    build()     an image of one architecture in a store
    archive()   the image for this machine as a docker-archive, for `ctr -n k8s.io images import`, `podman load -i`

Everything lies in ~/.cache/numalign/image, keyed by the content it was made from. `python -m tools.image` builds it
and prints where it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agent import __version__
from tools.image.debian import CACHE, EPOCH, HOST, MACHINES, ROOT, ImageMissingError, base, locked, run
from tools.unpacking import extract

__all__ = [
    "CACHE", "HOST", "MACHINES", "NAME", "PLATFORMS", "Buildah", "ImageMissingError", "archive", "base", "build",
    "command", "configuration", "environment", "kept_store", "locked", "store_name", "unpack", "wheels",
]  # fmt: skip
NAME = f"numalign:{__version__}"
"""What the image is called in the archive; the chart's defaults name the same."""
PYTHON = "3.11"
"""Debian 12's, the oldest that is supported."""
_RUNTIME, _BUILD, _INSTALLER = "deploy/lock/runtime.txt", "deploy/lock/build.txt", "deploy/lock/pip.txt"
_LOCKS = (_RUNTIME, _BUILD, _INSTALLER)
_SOURCES = (
    "Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "LICENSE", "deploy/lock/debian.toml",
    "deploy/lock/base.txt", "tools/image/debian.py", *_LOCKS,
)  # fmt: skip
PLATFORMS = {"amd64": "linux/amd64", "arm64": "linux/arm64/v8"}
"""As buildah wants them: it finds no local image for arm64 that does not name the variant."""
_KEPT = 4
"""Images that are kept: several work trees share the cache."""
_STORES = 2
"""Stores of layers that are kept, for the same reason."""


def archive() -> Path:
    """The image as a docker-archive, built when something in it changed."""
    target = CACHE / f"numalign-{_digest()}.tar"
    with locked():
        if not target.exists():
            _build(target)
        kept = sorted(CACHE.glob("numalign-*.tar"), key=lambda path: path.stat().st_mtime)
        for old in set(kept[:-_KEPT]) - {target}:
            old.unlink()
    return target


def wheels(arch: str = HOST) -> Path:
    """A folder with every locked file that the build needs, hashes checked."""
    locks = [ROOT / name for name in _LOCKS]
    target = CACHE / f"wheels-{arch}-{_hash(locks)}"
    if not target.exists():
        spare = CACHE / f".{target.name}"
        shutil.rmtree(spare, ignore_errors=True)  # most often it is not there
        for lock in (_BUILD, _INSTALLER):
            _pip("download", "--require-hashes", "-r", str(ROOT / lock), "-d", str(spare))
        _pip("download", "--require-hashes", "-r", str(ROOT / _RUNTIME), "-d", str(spare), *_foreign(arch))
        spare.rename(target)
    return target


def _foreign(arch: str) -> list[str]:
    """How pip is asked for another architecture's wheels, for the Python of Debian's release."""
    if arch == HOST:
        return []
    tags = (f"manylinux{each}_{MACHINES[arch]}" for each in ("2014", "_2_17", "_2_28"))
    return ["--only-binary=:all:", f"--python-version={PYTHON}", *(f"--platform={tag}" for tag in tags)]


def _pip(*arguments: str) -> None:
    run(sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check", seconds=600)


def _build(target: Path) -> None:
    """Built from the store of the last build; when that fails, once more from an empty store."""
    try:
        _build_in(kept_store(), target)
    except ImageMissingError as error:
        print(f"the image, once more without the layers of earlier builds: {error}", file=sys.stderr)
        for folder in CACHE.glob(f"{store_name()}-*"):
            shutil.rmtree(folder, ignore_errors=True)
        _build_in(kept_store(), target)


def kept_store(revision: str = "") -> Buildah:
    """The store with the layers of earlier builds by these sources of tools/image; called under `locked`.

    Stores of other sources go, but for those that were used last. Images with the label of a commit have a store of
    their own: buildah writes labels into cached steps, and the history of an image into its digest.
    """
    mine = f"{store_name()}-{revision[:12]}" if revision else store_name()
    found: dict[str, list[Path]] = {}
    for path in CACHE.glob("store*"):  # store-KEY-overlay, store-KEY-overlay-run
        found.setdefault(path.name.removesuffix("-run").rpartition("-")[0], []).append(path)
    others = sorted(found.keys() - {mine}, key=lambda name: max(path.stat().st_mtime for path in found[name]))
    for path in (path for name in others[: 1 - _STORES] for path in found[name]):
        shutil.rmtree(path, ignore_errors=True)
    buildah = Buildah(CACHE / mine)
    for path in CACHE.glob(f"{mine}-*"):
        os.utime(path)
    return buildah


def store_name(folder: Path = Path(__file__).parent) -> str:
    """What the store of these sources is called: they say how a layer is made, which buildah cannot see."""
    return f"store-{_hash(sorted(folder.glob('*.py')))}"


def _build_in(buildah: Buildah, target: Path) -> None:
    """Layers that did not change (base, dependencies) are used again."""
    buildah.end_killed()
    build(buildah, NAME)
    spare = target.with_name(f".{target.name}")
    spare.unlink(missing_ok=True)
    buildah("push", NAME, f"docker-archive:{spare}:{NAME}")
    buildah("rmi", "--prune")
    spare.rename(target)


def build(buildah: Buildah, tag: str, arch: str = HOST, revision: str = "") -> None:
    """An image of an architecture, in a store; the same bytes for the same sources and archive of Debian.

    Args:
        buildah: the store.
        tag: the image's name.
        arch: of MACHINES.
        revision: the commit that it is built from, for its label.

    Raises:
        ImageMissingError: it cannot be built here; the text says why.
    """
    there = buildah("images", "--format", "{{.Name}}").split()
    for each in dict.fromkeys((HOST, arch)):
        if f"localhost/{base(each).stem}" not in there:
            _build_base(buildah, each)
    buildah(
        "build", "--layers", "--tag", tag, f"--platform={PLATFORMS[arch]}", f"--timestamp={EPOCH}",
        "--volume", f"{wheels(arch)}:/wheels:ro",
        "--build-arg", f"BASE={base(arch).stem}", "--build-arg", f"BUILDER={base(HOST).stem}-builder",
        "--build-arg", "PIP_NO_INDEX=1", "--build-arg", "PIP_FIND_LINKS=/wheels",
        "--build-arg", f"SOURCE_DATE_EPOCH={EPOCH}",
        # Not by VERSION, REVISION: buildah takes the cached layer of a LABEL with the same text, whatever they were.
        "--label", f"org.opencontainers.image.version={__version__}",
        *(("--label", f"org.opencontainers.image.revision={revision}") if revision else ()), str(ROOT),
    )  # fmt: skip


def _build_base(buildah: Buildah, arch: str) -> None:
    """The root alone; for this machine's architecture also the root with pip, which wheels are installed with."""
    stem, of = base(arch).stem, (f"--platform={PLATFORMS[arch]}", f"--timestamp={EPOCH}")
    with _scratch() as folder:
        os.link(base(arch), folder / "base.tar")
        (folder / "Base").write_text("FROM scratch\nADD base.tar /\n")
        if arch == HOST:
            with zipfile.ZipFile(next(wheels(HOST).glob("pip-*.whl"))) as wheel:
                wheel.extractall(folder / "pip")  # noqa: S202 - pip's own wheel
            (folder / "Builder").write_text(f"FROM {stem}\nCOPY pip /usr/lib/python3/dist-packages\n")
        buildah("build", "--tag", stem, *of, "--file", str(folder / "Base"), str(folder))
        if arch == HOST:
            buildah("build", "--tag", f"{stem}-builder", *of, "--file", str(folder / "Builder"), str(folder))


def unpack(path: Path, folder: Path) -> None:
    """The files of an image, layer upon layer; the Dockerfile deletes nothing that a lower layer has."""
    with tarfile.open(path) as outer:
        for layer in _json(outer, "manifest.json")[0]["Layers"]:
            data = outer.extractfile(layer)
            with tarfile.open(fileobj=data) as inner:
                extract(inner, folder)


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
        return run("buildah", *self._flags, *arguments, seconds=seconds, BUILDAH_ISOLATION="chroot")


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
def _scratch() -> Iterator[Path]:
    folder = CACHE / f".build-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
