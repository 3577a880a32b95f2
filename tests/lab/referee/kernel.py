"""What the kernel of a guest says of a container's processes: sets of every thread, and where its pages lie."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.lab.cluster import Lab, Object
from tests.lab.node import Node

SCRIPT = r"""
import glob, json, os, re, sys
found = {}
for number in sys.argv[1:]:
    (folder,) = glob.glob(f"/sys/fs/cgroup/kubepods.slice/**/*{number}*", recursive=True)
    threads, pages, environment = {}, {}, {}
    for pid in open(f"{folder}/cgroup.procs").read().split():
        for task in os.listdir(f"/proc/{pid}/task"):
            status = open(f"/proc/{pid}/task/{task}/status").read()
            sets = [re.search(rf"^{name}_allowed_list:\s*(\S*)", status, re.M)[1] for name in ("Cpus", "Mems")]
            threads[task] = [*sets, sorted(os.sched_getaffinity(int(task)))]
        for line in open(f"/proc/{pid}/numa_maps"):
            if "anon=" in line and "file=" not in line:
                size = int((re.search(r"kernelpagesize_kB=(\d+)", line) or [0, 4])[1]) * 1024
                for node, count in re.findall(r"\bN(\d+)=(\d+)", line):
                    pages[node] = pages.get(node, 0) + int(count) * size
        words = open(f"/proc/{pid}/environ").read().split("\0")
        environment |= dict(word.split("=", 1) for word in words if "=" in word)
    stat = next(line for line in open(f"{folder}/memory.numa_stat") if line.startswith("anon "))
    found[number] = {
        "threads": threads, "maps": pages, "stat": dict(re.findall(r"N(\d+)=(\d+)", stat)), "environment": environment
    }
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Kernel:
    """Of one container.

    Attributes:
        threads: thread id -> CPUs and nodes that it may use, as the kernel lists them, and its affinity.
        maps: node -> bytes of anonymous memory, by the processes' numa_maps.
        stat: the same by the cgroup's memory.numa_stat.
        environment: of its processes.
    """

    threads: dict[str, tuple[str, str, tuple[int, ...]]]
    maps: dict[int, int]
    stat: dict[int, int]
    environment: dict[str, str]


def look(lab: Lab, node: Node, *pods: Object) -> dict[tuple[str, str], Kernel]:
    """(Pod, container) -> what the kernel says; containers that run."""
    numbers: dict[str, tuple[str, str]] = {}
    for stored in pods:
        pod = lab.pod(stored["metadata"]["name"])
        for each in pod["status"].get("containerStatuses", ()):
            if "running" in each["state"]:
                numbers[each["containerID"].rpartition("/")[2]] = (pod["metadata"]["name"], each["name"])
    told: dict[str, Any] = json.loads(node.run(f"python3 - {' '.join(numbers)}", SCRIPT))
    return {numbers[number]: _kernel(each) for number, each in told.items()}


def _kernel(told: dict[str, Any]) -> Kernel:
    return Kernel(
        threads={task: (cpus, mems, tuple(own)) for task, (cpus, mems, own) in told["threads"].items()},
        maps={int(node): size for node, size in told["maps"].items()},
        stat={int(node): int(size) for node, size in told["stat"].items()},
        environment=told["environment"],
    )
