"""Images of every architecture: each has programs of its own only, starts, and is the same bytes when built again."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent import __version__
from tests import programs
from tools import image

ELF, CODES = b"\x7fELF", {62: "amd64", 183: "arm64"}
"""How a program begins, and its machine by e_machine (elf(5))."""
FOREIGN = next(each for each in image.MACHINES if each != image.HOST)
CHROOT = shutil.which("chroot") or "chroot"
EMULATOR = f"qemu-{image.MACHINES[FOREIGN]}-static"

pytestmark = pytest.mark.timeout(900)


def digest(store: image.Buildah, tag: str) -> str:
    """Of an image's manifest."""
    (found,) = {*store("images", "--format", "{{.Digest}}", tag).split()}  # told once for each name of the image
    return found


@pytest.fixture(scope="module")
def digests(arches: list[str]) -> Mapping[str, str]:
    """Architecture -> the digest of its image, built in the store that is kept."""
    found = {}
    with image.locked():
        store = image.kept_store()
        for arch in arches:
            image.build(store, f"numalign-{arch}:test", arch)
            found[arch] = digest(store, f"numalign-{arch}:test")
    return found


@pytest.fixture(scope="module")
def root(digests: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The files of the image of another architecture than this machine's."""
    assert digests[FOREIGN]
    folder = tmp_path_factory.mktemp("foreign")
    file = folder / "image.tar"
    with image.locked():
        image.kept_store()("push", f"numalign-{FOREIGN}:test", f"docker-archive:{file}:x:1")
    (folder / "root").mkdir()
    image.unpack(file, folder / "root")
    file.unlink()
    yield folder / "root"
    shutil.rmtree(folder)


def test_every_program_and_library_is_of_the_images_architecture(root: Path) -> None:
    """Wheels of the building machine in an image of another one would end at its first import there."""
    found: dict[str, list[str]] = {}
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                head = file.read(20)
            if head.startswith(ELF):
                machine = CODES.get(int.from_bytes(head[18:20], "little"), "another")
                found.setdefault(machine, []).append(str(path.relative_to(root)))
    assert found.keys() == {FOREIGN}, {machine: paths[:5] for machine, paths in found.items() if machine != FOREIGN}
    assert any("site-packages/grpc" in path for path in found[FOREIGN])


def test_the_other_architectures_image_starts(root: Path) -> None:
    """Its own Python loads all of the agent and its libraries, each instruction translated by QEMU."""
    shutil.copy(programs.need(EMULATOR), root / EMULATOR)
    libraries = "import grpc, psutil, aiohttp, xxhash, agent.cli.run_cluster"
    for arguments in (("/opt/numalign/bin/numalign", "--version"), ("-c", f"{libraries}; print({__version__!r})")):
        done = subprocess.run(
            [CHROOT, root, f"/{EMULATOR}", "/usr/bin/python3", *arguments],
            capture_output=True, text=True, timeout=300, check=False, env={"PYTHONPATH": packages(root)},
        )  # fmt: skip
        assert (done.returncode, __version__ in done.stdout) == (0, True), done.stderr


def packages(root: Path) -> str:
    """Where the image's libraries lie, as Python in it sees them: QEMU hides the name by which a venv is found."""
    (found,) = root.glob("opt/numalign/lib/python3*/site-packages")
    return f"/{found.relative_to(root)}"


def test_a_second_build_is_the_same_bytes(digests: Mapping[str, str], tmp_path: Path) -> None:
    """From an empty store, with the same wheels and the same base: the digest of each image is the one of before."""
    store = image.Buildah(tmp_path / "store")
    for arch in digests:
        image.build(store, f"numalign-{arch}:again", arch)
    assert {arch: digest(store, f"numalign-{arch}:again") for arch in digests} == digests


def test_an_image_says_what_it_is(archive: Path) -> None:
    """Its labels name product, version and licence, by the names that registries show."""
    assert archive.exists()
    labels = image.configuration()["Labels"]
    assert labels["org.opencontainers.image.title"] == "numalign"
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
