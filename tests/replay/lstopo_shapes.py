"""The machines of tests/replay/lstopo in our own words, and lstopo itself, asked about a recorded tree.

The XML files were written by lstopo 2.9.0 (Debian: hwloc-nox), in the formats of hwloc 1 and 2: of its own synthetic
machines that are the same as these, and of a recording that comes with numalign.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests import programs

FOLDER = Path(__file__).with_name("lstopo")
RECORDED = "small-vm"
"""A recording that comes with numalign."""
SHAPES = {
    "one-package": "1 socket x 4 cores, 8G per node",
    "threads": "2 sockets x 4 cores x 2 threads, 4G per node, adjacent threads",
    "nodes-in-packages": "2 sockets x 2 nodes x 2 cores x 2 threads, 2G per node, adjacent threads",
    "chiplets": "1 socket x 4 l3 x 4 cores x 2 threads, 16G per node, adjacent threads",
    "numbered-like-linux": "2 sockets x 2 cores x 2 threads, 4G per node",
    "dies": "2 sockets x 2 dies x 1 node x 2 l3 x 2 cores, 4G per node",
    "many-nodes": "4 sockets x 4 nodes x 1 core, 1G per node",
}
"""Name of the files -> description."""


def write(target: Path, root: Path, *, version: int) -> None:
    """Write the topology of a recorded tree in a format, 1 or 2."""
    program = programs.need("lstopo-no-graphics")
    old = ["--export-xml-flags", "1"] if version == 1 else []
    recorded = {
        "HWLOC_FSROOT": str(root), "HWLOC_THISSYSTEM": "0", "HWLOC_COMPONENTS": "linux,pci,stop",
        "HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES": "1",  # left out without it
    }  # fmt: skip
    # --disallowed: all CPUs, not only those of the cgroup that lstopo was started in.
    command = [program, "--disallowed", "--filter", "io:all", *old, "--of", "xml", "--force", str(target)]
    subprocess.run(command, check=True, env={**os.environ, **recorded}, capture_output=True, timeout=60)
