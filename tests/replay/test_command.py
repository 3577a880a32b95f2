"""`numalign topology --root` and `record` on every recording, as users call them: archive or folder, same facts."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.cli import group
from tests.replay.test_recorded import ARCHIVES, DIFFERENCES
from tools.unpacking import extract

OWN = sorted((Path(__file__).parent / "machines").glob("*.tar.xz"))
ALL = [*OWN, *ARCHIVES]
SMALL = 200_000
"""Larger archives are not recorded once more: packing them takes seconds each."""
LISTEN = """
import os, sys
import agent.cli.topology
opened = []
def hear(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and arguments and isinstance(arguments[0], (str, bytes)):
        opened.append(os.fsdecode(arguments[0]))
sys.addaudithook(hear)
try:
    agent.cli.topology.command(["--root", sys.argv[1], "--output", "json", "--file", os.devnull])
except SystemExit as end:
    assert not end.code, end.code
print("\\n".join(opened))
"""
"""Runs the command under an audit hook, which sees every file that the interpreter opens."""


def _name(path: Path) -> str:
    return path.name.removesuffix(".tar.bz2").removesuffix(".tar.xz")


def _facts(path: Path) -> Path:
    return path.with_name(_name(path) + ".json")


def _topology(root: Path) -> dict[str, Any]:
    found = CliRunner().invoke(group, ["topology", "--root", str(root), "--output", "json"])
    assert found.exit_code == 0, found.output
    facts: dict[str, Any] = json.loads(found.stdout)
    return facts


def _as_asked(got: dict[str, Any], want: dict[str, Any], name: str) -> dict[str, Any]:
    """The keys that the facts have, without the listed differences."""
    found = {key: got[key] for key in want}
    for key, entries in want.items():
        if entries and isinstance(entries, list) and isinstance(entries[0], dict):
            found[key] = [{inner: each[inner] for inner in entries[0]} for each in got[key]]
    odd = DIFFERENCES.get(name)
    if odd:
        found[odd.key] = [each for each in found[odd.key] if each not in odd.extra]
    return found


@pytest.mark.parametrize("archive", ALL, ids=_name)
def test_the_command_tells_the_facts(archive: Path, tmp_path: Path) -> None:
    """Packed, unpacked, in a folder above, recorded once more: the same machine, which equals its facts."""
    with tarfile.open(archive) as packed:
        extract(packed, tmp_path / "tree", "tar")
    folder = next((tmp_path / "tree").rglob("sys")).parent
    got = _topology(archive)
    for root in (folder, tmp_path / "tree"):  # the tree itself, and the folder that it was unpacked into
        assert {**_topology(root), "name": ""} == {**got, "name": ""}
    if archive.stat().st_size < SMALL:
        recorded = tmp_path / "again.tar.xz"
        made = CliRunner().invoke(group, ["record", "--root", str(folder), "--name", "again", str(recorded)])
        assert made.exit_code == 0, made.output
        assert _topology(recorded)["digest"] == got["digest"]
    if archive not in OWN and _facts(archive).exists():  # our own recordings' facts: tests/replay/test_guests.py
        want = json.loads(_facts(archive).read_text("utf-8"))
        assert _as_asked(got, want, _name(archive)) == want


def test_the_command_reads_nothing_outside_its_root(tmp_path: Path) -> None:
    """No file of this machine's /sys or /proc is opened, though links of the tree point there."""
    with tarfile.open(OWN[0]) as packed:
        extract(packed, tmp_path, "tar")
    folder = next(tmp_path.rglob("sys")).parent
    for name in ("online", "possible"):
        (folder / "sys/devices/system/node" / name).unlink(missing_ok=True)
        (folder / "sys/devices/system/node" / name).symlink_to(f"/sys/devices/system/node/{name}")
    (folder / "sys/devices/system/cpu/isolated").unlink(missing_ok=True)
    (folder / "sys/devices/system/cpu/isolated").symlink_to("../" * 20 + "proc/self/status")
    done = subprocess.run(
        [sys.executable, "-c", LISTEN, str(folder)], capture_output=True, text=True, check=True, timeout=60
    )
    opened = done.stdout.splitlines()
    assert any(each.startswith(f"{folder}/sys/devices/system/cpu") for each in opened)
    assert not [each for each in opened if each.startswith(("/sys", "/proc"))]
