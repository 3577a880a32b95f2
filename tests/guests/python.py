"""An initramfs with this Python and a checkout in it: what runs in a guest is what runs here.

Files keep the paths that they have here, so that Python finds its own library, and their times, so that it need not
compile again what it has compiled. Packages are those of ROOTS with what they need.
"""

from __future__ import annotations

import re
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from tests.guests.needs import BUSYBOX, entry, static_busybox
from tests.programs import need

ROOTS = (
    "pytest", "pytest-timeout", "asyncinotify", "click", "PyYAML", "prometheus_client", "protobuf",
    "rich", "kopf", "psutil",
)  # fmt: skip
"""Packages that the agent without a cluster and its contract tests import."""
LEFT_OUT = {"test", "idlelib", "tkinter", "ensurepip", "lib2to3", "turtledemo", "pydoc_data", "site-packages"}
"""Folders of the standard library that nothing here imports."""
MODULES = (
    "pyproject.toml", "tests/__init__.py", "tests/patience.py", "tests/guests/__init__.py",
    "tests/guests/operations.py",
)  # fmt: skip
"""Of the checkout, beside the agent and the contract tests."""
CHECKOUT = Path(__file__).parents[2]
PLACE, SITE = "/numalign", "/site"
"""Where the checkout and the packages are in the guest."""
_LIBRARY = re.compile(r"=> (/\S+)|^\s*(/\S+)", re.MULTILINE)


def archive(init: bytes, *, checkout: Path = CHECKOUT, more: Mapping[str, Path] | None = None) -> bytes:
    """Make an archive, not compressed: a guest without a processor of its own takes longer to unpack than to read."""
    files = {"/bin/busybox": Path(need(BUSYBOX)), **_python(), **_packages(), **(more or {})}
    for folder in ("agent", "tests/contract"):
        files |= {f"{PLACE}/{each.relative_to(checkout)}": each for each in _sources(checkout / folder)}
    for file in MODULES:
        files[f"{PLACE}/{file}"] = checkout / file
    static_busybox()
    return b"".join(_members(files, init))


def interpreter() -> str:
    """The path of Python's own program."""
    return str(Path(sys.executable).resolve())


def _members(files: Mapping[str, Path], init: bytes) -> Iterator[bytes]:
    """Folders first, then what is in them."""
    number, made = 0, set[str]()
    for path, source in sorted(files.items()):
        for above in reversed(Path(path).parents[:-1]):
            name = str(above).strip("/")
            if name not in made:
                made.add(name)
                number += 1
                yield entry(number, name, stat.S_IFDIR | 0o755)
        number += 1
        about = source.stat()
        mode = stat.S_IFREG | (0o755 if about.st_mode & 0o100 else 0o644)
        yield entry(number, path.strip("/"), mode, source.read_bytes(), time=int(about.st_mtime))
    yield entry(number + 1, "init", stat.S_IFREG | 0o755, init)
    yield entry(number + 2, "dev", stat.S_IFDIR | 0o755)
    yield entry(number + 3, "dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    yield entry(number + 4, "TRAILER!!!", 0)


def _python() -> dict[str, Path]:
    """The program, the standard library, and the shared libraries of both."""
    library = Path(sysconfig.get_path("stdlib"))
    own = {str(each): each for each in _sources(library)}
    found = {interpreter(): Path(interpreter()), **own}
    return found | _libraries([interpreter(), *(each for each in own if each.endswith(".so"))])


def _packages() -> dict[str, Path]:
    """ROOTS and what they need, without their extras."""
    found, todo, seen = dict[str, Path](), list(ROOTS), set[str]()
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # of another Python or system
            continue
        todo += [re.split(r"[ ;<>=!~\[(]", each)[0] for each in package.requires or [] if "extra ==" not in each]
        for file in package.files or []:
            here = Path(str(file.locate()))
            if ".." not in file.parts and here.is_file():
                found[f"{SITE}/{file}"] = here
    return found | _libraries(str(each) for each in found.values() if each.suffix == ".so")


def _sources(folder: Path) -> Iterator[Path]:
    for each in sorted(folder.iterdir()):
        if each.is_dir() and each.name not in LEFT_OUT and not each.name.startswith("config-"):
            yield from _sources(each)
        elif each.is_file():
            yield each


def _libraries(programs: Iterable[str]) -> dict[str, Path]:
    """The shared libraries that programs name, by the paths at which the loader finds them."""
    told = subprocess.run(["ldd", *programs], check=False, capture_output=True, text=True).stdout
    paths = {one or other for one, other in _LIBRARY.findall(told)}
    return {path: Path(path).resolve() for path in paths if not path.endswith(":")}
