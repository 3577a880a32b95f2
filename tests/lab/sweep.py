"""Runs in a guest: what every container's cgroup has in force, several times a second; one line per change.

Standard library only; `tests.lab.sweeps` sends it to the guest and reads what it wrote. cgroup v2. A line is a JSON
object: {"sweep": number, "at": seconds of the monotonic clock, "changed": {id: "cpus" or null for one that is gone}}.
The last line has the number of the last sweep. It ends when its file STOP is there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

TREE = Path("/sys/fs/cgroup/kubepods.slice")
PAUSE = 0.1
"""Seconds between two sweeps."""


def scopes() -> dict[str, Path]:
    """Id of a container or sandbox -> its cgroup."""
    found = {}
    for top, folders, _ in os.walk(TREE):
        if top.endswith(".scope"):
            folders.clear()
            found[top.rpartition("-")[2].removesuffix(".scope")] = Path(top)
    return found


def sets() -> dict[str, str]:
    """Id -> cpuset.cpus.effective, of those with a process in them: an empty cgroup runs nowhere."""
    found = {}
    for name, folder in scopes().items():
        try:
            if (folder / "cgroup.procs").read_text().strip():
                found[name] = (folder / "cpuset.cpus.effective").read_text().strip()
        except OSError:  # it ended between two looks
            continue
    return found


def main(out: Path, stop: Path) -> None:
    """Sweep until `stop` is there."""
    before: dict[str, str] = {}
    sweep = 0
    with out.open("w") as file:
        while not stop.exists():
            now = sets()
            changed: dict[str, str | None] = {name: cpus for name, cpus in now.items() if before.get(name) != cpus}
            changed.update(dict.fromkeys(before.keys() - now.keys()))
            if changed:
                file.write(json.dumps({"sweep": sweep, "at": time.monotonic(), "changed": changed}) + "\n")
                file.flush()
            before = now
            sweep += 1
            time.sleep(PAUSE)
        file.write(json.dumps({"sweep": sweep, "at": time.monotonic(), "changed": {}}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
