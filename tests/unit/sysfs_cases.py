"""Small trees for the tests of discovery: where things lie, and reading them with every check."""

from __future__ import annotations

from pathlib import Path

from agent.host.files import HostFiles
from agent.host.sysfs.discovery import discover
from agent.model.machine import Machine
from tests.replay.checker import check_machine
from tests.replay.trees import put

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def read(root: Path) -> Machine:
    """Discover and check every invariant."""
    machine = discover(HostFiles(root))
    check_machine(machine)
    return machine


def topology(root: Path, cpu: int, **files: object) -> None:
    """Write the topology folder of one CPU."""
    for name, text in files.items():
        put(root, f"{CPU}/cpu{cpu}/topology/{name}", text)
