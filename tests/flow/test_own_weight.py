"""S21: the agent stays small, and off the CPUs that it gave away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from agent.model.idset import CpuSet
from agent.model.pod import Pod
from tests.flow.world import World, container, manifest

ALLOWED_MIB = 128
"""Resident memory with 500 containers; the chart's limit leaves twice as much."""
_SCRIPT = """
import tempfile
from pathlib import Path
from tools.bench.node import start
from tools.bench.sites import Files
with tempfile.TemporaryDirectory() as folder:
    site = Files(Path(folder), 2)
    done = start(site.node, site.pods, site.cgroups, site.store)
    assert done.writes > 250 and not done.failed, done
    again = start(site.node, site.pods, site.cgroups, site.store)
    assert again.writes == 0, again
# not ru_maxrss: that one outlives exec, and starts from what the test run itself weighs
status = Path("/proc/self/status").read_text()
print(int(status.partition("VmHWM:")[2].split()[0]) // 1024)
"""


def own(pod: Pod) -> str:
    """Which pod is the agent's."""
    return "the agent's own pod" if pod.uid == "numalign" else ""


def test_s21_the_agents_own_pod_stays_on_the_shared_pool(tmp_path: Path) -> None:
    """Guaranteed with a whole CPU, it is not pinned, never refused, and leaves CPUs that others are given."""
    world = World(tmp_path / "tree", exempt=own)
    world.engine.pods_listed({"numalign", "a", "b"})
    world.run(manifest("numalign", container(cpu="1"), namespace="numalign"))
    assert world.holds("numalign") == ""
    for number, name in enumerate("ab", 1):
        world.run(manifest(name, container(cpu="2"), created=number))
        mine = CpuSet.parse(world.effective("numalign"))
        assert mine == world.engine.ledger.cpus.shared
        assert mine.isdisjoint(CpuSet.parse(world.effective(name)))
    assert world.ears.refused_ == {}


def test_s21_five_hundred_containers_fit_into_little_memory() -> None:
    """A whole start with 250 pods of two containers: written once, nothing at the second look, and small."""
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < ALLOWED_MIB
