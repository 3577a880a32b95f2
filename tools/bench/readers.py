"""`python -m tools.bench.readers`: how long a decision takes beside readers of the node page that ask in a loop.

4 sockets, 8 NUMA nodes, 256 CPUs, 60 pods; a pod comes and goes, which makes everything on the page new. 30 readers,
in a process of their own, ask for the explanation of one pod after the other. The page has a share of one CPU
(`agent.observe.share`): the median decision takes at most half as long again as it does alone.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from agent.app.page.server import EngineSource
from agent.model.podspec import pod_from
from agent.observe.health import Health
from agent.observe.page.recent import Recent
from agent.observe.page.server import PageServer
from tests.flow.world import World, container, manifest

MACHINE = "4 sockets x 2 nodes x 16 cores x 2 threads"
PODS, READERS, DECISIONS, FACTOR = 60, 30, 60, 1.5
READER = """
import sys, threading, http.client
port, readers, pods = map(int, sys.argv[1:])
counts = {}
def read(number):
    while True:
        number += 1
        try:
            asked = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            asked.request("GET", f"/api/pods/p-{number % pods}/explanation")
            status = asked.getresponse().status
            counts[status] = counts.get(status, 0) + 1
            asked.close()
        except OSError:
            pass
for number in range(readers):
    threading.Thread(target=read, args=(number,), daemon=True).start()
sys.stdin.read()
print(counts)
"""


def decisions(world: World, tag: str) -> list[float]:
    """Seconds of each decision on a pod that comes, and goes."""
    found = []
    for number in range(DECISIONS):
        name = f"{tag}-{number}"
        pod, began = pod_from(manifest(name, container(cpu="3"), created=9)), time.monotonic()
        world.engine.pods_seen([pod])
        found.append(time.monotonic() - began)
        world.engine.pods_gone([name])
        time.sleep(0.05)
    return found


def main() -> int:
    """Measure and print; 1 when the readers slow decisions down more than they may."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "node", machine=MACHINE)
        world.engine.pods_listed({f"p-{number}" for number in range(PODS)})
        for number in range(PODS):
            world.run(manifest(f"p-{number}", container(cpu="2"), created=1))
        source = EngineSource(name="n1", engine=world.engine, cgroups=world.cgroups, health=Health(), recent=Recent())
        with closing(PageServer("127.0.0.1", 0, source)) as page:
            port = page.address.rstrip("/").rpartition(":")[2]
            decisions(world, "warm")
            alone = statistics.median(decisions(world, "alone"))
            command = [sys.executable, "-c", READER, port, str(READERS), str(PODS)]
            with subprocess.Popen(command, stdin=subprocess.PIPE) as readers:
                time.sleep(3)
                beside = statistics.median(decisions(world, "beside"))
                readers.communicate()
    factor = beside / alone
    print(f"alone {alone * 1000:.1f} ms, beside {READERS} readers {beside * 1000:.1f} ms: {factor:.2f} times")
    return int(factor > FACTOR)


if __name__ == "__main__":
    sys.exit(main())
