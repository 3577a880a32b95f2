"""`python -m tests.replay.lstopo_shapes`: makes the XML of tests/replay/lstopo again, by lstopo (Debian: hwloc-nox).

Each shape is said twice: as lstopo's synthetic string, and as our own description. Both must be the same machine.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests import programs
from tests.replay.trees import OWN
from tools.unpacking import extract

FOLDER = Path(__file__).with_name("lstopo")
RECORDED = "small-vm"
"""A recording that comes with numalign."""

SHAPES = {
    "one-package": ("package:1 [numa(memory=8GiB)] l3:1 core:4 pu:1", "1 socket x 4 cores, 8G per node"),
    "threads": (
        "package:2 [numa(memory=4GiB)] l3:1 core:4 pu:2",
        "2 sockets x 4 cores x 2 threads, 4G per node, adjacent threads",
    ),
    "nodes-in-packages": (
        "package:2 group:2 [numa(memory=2GiB)] l3:1 core:2 pu:2",
        "2 sockets x 2 nodes x 2 cores x 2 threads, 2G per node, adjacent threads",
    ),
    "chiplets": (
        "package:1 [numa(memory=16GiB)] l3:4 core:4 pu:2",
        "1 socket x 4 l3 x 4 cores x 2 threads, 16G per node, adjacent threads",
    ),
    "numbered-like-linux": (
        "package:2 [numa(memory=4GiB)] l3:1 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)",
        "2 sockets x 2 cores x 2 threads, 4G per node",
    ),
    "dies": (
        "package:2 die:2 [numa(memory=4GiB)] l3:2 core:2 pu:1",
        "2 sockets x 2 dies x 1 node x 2 l3 x 2 cores, 4G per node",
    ),
    "many-nodes": (
        "package:4 group:4 [numa(memory=1GiB)] l3:1 core:1 pu:1",
        "4 sockets x 4 nodes x 1 core, 1G per node",
    ),
}
"""Name -> (lstopo's words, ours)."""


def write(target: Path, *source: str, version: int, root: Path | None = None) -> None:
    """Write a topology in a format.

    Args:
        target: the file.
        source: options that say of what.
        version: 1 or 2.
        root: a recorded tree, instead of this machine.
    """
    program = programs.need("lstopo-no-graphics")
    old = ["--export-xml-flags", "1"] if version == 1 else []
    recorded = {
        "HWLOC_FSROOT": str(root), "HWLOC_THISSYSTEM": "0", "HWLOC_COMPONENTS": "linux,pci,stop",
        "HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES": "1",  # left out without it
    }  # fmt: skip
    # --disallowed: all CPUs, not only those of the cgroup that lstopo was started in.
    command = [program, *source, "--disallowed", "--filter", "io:all", *old, "--of", "xml", "--force", str(target)]
    environment = {**os.environ, **(recorded if root else {})}
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=60)


def main() -> None:
    """Write all fixtures."""
    FOLDER.mkdir(exist_ok=True)
    for name, (words, _) in SHAPES.items():
        for version in (1, 2):
            write(FOLDER / f"{name}.v{version}.xml", "--if", "synthetic", "--input", words, version=version)
    with tempfile.TemporaryDirectory() as folder, tarfile.open(OWN / f"{RECORDED}.tar.xz") as archive:
        extract(archive, Path(folder), "data")
        root = next(path.parent for path in sorted(Path(folder).rglob("sys")) if path.is_dir())
        for version in (1, 2):
            write(FOLDER / f"{RECORDED}.v{version}.xml", version=version, root=root)


if __name__ == "__main__":
    main()
