"""The built image: what is in it works, and with nothing but what the chart gives it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import __version__
from tools import image

ROOT = Path(__file__).parents[2]
MOST_MIB = 300
MACHINE = "synthetic:2 sockets x 1 node x 4 cores x 2 threads, 8G per node"


@pytest.fixture(scope="module")
def root(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's files, without any shell."""
    folder = tmp_path_factory.mktemp("root")
    image.unpack(archive, folder)
    for shell in ("sh", "dash", "bash", "rbash"):
        for place in ("bin", "usr/bin"):
            (folder / place / shell).unlink(missing_ok=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def inside(root: Path, *command: str, code: int = 0) -> str:
    """Run a program of the image as the chart does: uid 0, no capability, no new privileges."""
    done = subprocess.run(
        ["chroot", root, "setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", *command],
        capture_output=True, text=True, timeout=120, check=False, env={"PATH": image.environment()["PATH"]},
    )  # fmt: skip
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout + (done.stderr if code else "")


def test_the_entry_point_works(root: Path) -> None:
    """The entry point is the wheel's own; the agent's own command loads with what is in the image, and no shell."""
    assert __version__ in inside(root, "numalign", "--version")
    assert "Usage:" in inside(root, "numalign", "run", "--help")


def test_every_module_can_be_loaded(root: Path) -> None:
    """What the image leaves out of its libraries is needed by nobody, kopf and the client included."""
    program = (
        "import importlib, pkgutil, agent\n"
        "for found in pkgutil.walk_packages(agent.__path__, 'agent.'):\n"
        "    if not found.name.endswith('__main__'): importlib.import_module(found.name)\n"
        "from kubernetes.client.api_client import ApiClient; ApiClient()\n"
        "print(agent.__file__)"
    )
    assert inside(root, "/opt/numalign/bin/python", "-c", program).startswith("/opt/numalign/lib/")


def test_it_decides_as_the_checkout_does(root: Path) -> None:
    """The wheel in the image places the examples as these sources do."""
    shutil.copytree(ROOT / "deploy/examples/pods", root / "pods")
    run = ["run", "--once", "--root", MACHINE, "--output", "json", "--no-processes"]
    there = inside(root, "numalign", *run, "--pods", "/pods", "--state-dir", "/var/lib/numalign", code=1)
    here = subprocess.run(
        [sys.executable, "-m", "agent", *run, "--pods", ROOT / "deploy/examples/pods", "--state-dir", root / "here"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert _placed(there) == _placed(here.stdout)
    assert _placed(there)


def _placed(text: str) -> object:
    found = json.loads(text[text.index("{") : text.rindex("}") + 1])
    return {key: value for key, value in found.items() if key != "wrong"}


def test_without_a_node_it_says_what_is_missing(root: Path) -> None:
    """The image's own default command outside of a cluster: one sentence, exit code 2, no traceback."""
    text = inside(root, *image.command(), code=2)
    assert "NODE_NAME" in text
    assert "Traceback" not in text


def test_it_is_small_and_says_who_it_is(archive: Path) -> None:
    """The size has a bound, the user is written down, no secret or build setting is in the configuration."""
    config = image.configuration()
    assert archive.stat().st_size < MOST_MIB << 20
    assert config["User"] == "0:0"
    assert not [each for each in config["Env"] if each.startswith("PIP_")]


def test_a_killed_build_is_in_nobodys_way(archive: Path, tmp_path: Path) -> None:
    """What a killed build left (a working container on an image of no name) is deleted before the next one."""
    assert archive.exists()
    buildah = image.Buildah(tmp_path / "store")
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    left = buildah("build", "--quiet", str(tmp_path)).strip()
    buildah("from", left)
    with pytest.raises(image.ImageMissingError, match="in use by a container"):
        buildah("rmi", "--prune")
    buildah.end_killed()
    buildah("rmi", "--prune")
    assert not buildah("images", "--all", "--quiet").split()
