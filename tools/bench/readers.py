"""`python -m tools.bench.readers`: how long a decision takes beside what is told of the node to its readers.

4 sockets, 8 NUMA nodes, 256 CPUs, 60 pods; a pod comes and goes, which makes everything on the page new.

    asked   30 readers, in a process of their own, ask for the explanation of one pod after the other. The page has
            a share of one CPU (`agent.observe.share`): the median decision takes at most half as long again
    told    page, gauges and summary are on: a browser follows the page, Prometheus scrapes, the node's object is
            made with its summary once a second. Rounds with all of it and with none of it alternate, in one
            process: the median decision takes at most a twentieth longer, by the clock and by its thread's CPU
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from agent.app.cluster.summary import SummaryText, says_the_same
from agent.app.cluster.topology_loop import TopologyLoop
from agent.app.page.server import EngineSource
from agent.app.reporters import Measured
from agent.app.service.gauges import shown
from agent.engine.ports import Reporter
from agent.errors import KubeError
from agent.kube.client import KubeClient
from agent.kube.topology_crd import TopologyPublisher
from agent.model.podspec import pod_from
from agent.observe.health import Health, Server
from agent.observe.metrics import Metrics, Shown
from agent.observe.page.recent import Recent
from agent.observe.page.server import PageServer
from agent.observe.windows import Windows
from agent.settings import parse
from tests.flow.world import World, container, manifest

MACHINE = "4 sockets x 2 nodes x 16 cores x 2 threads"
PODS, READERS, DECISIONS, FACTOR = 60, 30, 60, 1.5
ROUNDS, EACH, TOLD = 7, 30, 1.05
"""Of told: rounds of each kind, decisions of a round, and the most that it may cost."""
SCRAPES = 15.0
"""Seconds between two of Prometheus."""
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
FOLLOWER = """
import sys, threading, time, urllib.request
page, metrics, scrapes = sys.argv[1:]
def get(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read()
def scrape():
    while True:
        get(f"http://{metrics}/metrics")
        time.sleep(float(scrapes))
threading.Thread(target=scrape, daemon=True).start()
def follow():
    last = b""
    for line in urllib.request.urlopen(f"{page}api/events", timeout=20):
        if line.startswith(b"data:") and line != last:
            last = line
            for part in ("api/node", "api/pods", "api/picture.svg?bare=1"):
                get(page + part)
            counts.append(1)
counts = []
threading.Thread(target=follow, daemon=True).start()
sys.stdin.read()
print(len(counts))
"""


class Took(NamedTuple):
    """One decision: seconds by the clock, and of CPU by its thread."""

    clock: float
    cpu: float


def decisions(world: World, tag: str, count: int = DECISIONS) -> list[Took]:
    """Each decision on a pod that comes, and goes."""
    found = []
    for number in range(count):
        name = f"{tag}-{number}"
        pod, began, before = (
            pod_from(manifest(name, container(cpu="3"), created=9)),
            time.monotonic(),
            time.thread_time(),
        )
        world.engine.pods_seen([pod])
        found.append(Took(time.monotonic() - began, time.thread_time() - before))
        world.engine.pods_gone([name])
        time.sleep(0.05)
    return found


def median(found: Iterable[Took]) -> Took:
    """Of both."""
    return Took(*map(statistics.median, zip(*found, strict=True)))


def busy(folder: Path, *reporters: Reporter) -> World:
    """A node with PODS pods."""
    world = World(folder, machine=MACHINE, reporters=reporters)
    world.engine.pods_listed({f"p-{number}" for number in range(PODS)})
    for number in range(PODS):
        world.run(manifest(f"p-{number}", container(cpu="2"), created=1))
    decisions(world, "warm", EACH)
    return world


def source_of(world: World, recent: Recent) -> EngineSource:
    """What the page shows."""
    return EngineSource(name="n1", engine=world.engine, cgroups=world.cgroups, health=Health(), recent=recent)


def asked(folder: Path) -> bool:
    """Print decisions alone and beside the readers; return whether these slow them down more than they may."""
    world = busy(folder)
    with closing(PageServer("127.0.0.1", 0, source_of(world, Recent()))) as page:
        port = page.address.rstrip("/").rpartition(":")[2]
        alone = median(decisions(world, "alone")).clock
        command = [sys.executable, "-c", READER, port, str(READERS), str(PODS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as readers:
            time.sleep(3)
            beside = median(decisions(world, "beside")).clock
            readers.communicate()
    factor = beside / alone
    click.echo(f"alone {alone * 1000:.1f} ms, beside {READERS} readers {beside * 1000:.1f} ms: {factor:.2f} times")
    return factor > FACTOR


class Api:
    """Has no object yet; takes the node's, as text."""

    def call(self, method: str, path: str, body: object = None, **_: Any) -> dict[str, Any]:  # noqa: ANN401 - as KubeClient
        """See KubeClient."""
        if method == "GET":
            raise KubeError(404, path)
        return {"metadata": {"resourceVersion": str(len(json.dumps(body)))}}


@contextmanager
def telling(world: World, metrics: Metrics, recent: Recent) -> Iterator[None]:
    """Page, gauges and summary, each with its reader."""
    settings = parse({"fleet": {"publish": True}})[0]
    loop = TopologyLoop(
        TopologyPublisher(cast("KubeClient", Api()), says_the_same), "n1", snapshot=lambda: world.engine.snapshot,
        node_uid=lambda: "n1", enforcing=lambda: True, problem=click.echo, summary=SummaryText(lambda: settings).of,
    )  # fmt: skip
    text = Shown(lambda kind: metrics.page(shown(world.engine, None), kind))
    with ExitStack() as running:
        page = running.enter_context(closing(PageServer("127.0.0.1", 0, source_of(world, recent))))
        server = running.enter_context(
            closing(Server("127.0.0.1:0", {"/metrics": lambda accept: (200, *text(accept))}))
        )
        command = [sys.executable, "-c", FOLLOWER, page.address, server.address, str(SCRAPES)]
        loop.start()
        running.callback(loop.stop)
        with subprocess.Popen(command, stdin=subprocess.PIPE) as follower:
            time.sleep(2)
            yield
            follower.communicate()


def told(folder: Path, rounds: int) -> bool:
    """Print decisions with all of it and with none, round by round; return whether it costs more than it may."""
    metrics, recent = Metrics(), Recent()
    measured = Measured(metrics, Windows(lambda _seconds: None), lambda: "best-effort")
    bare, telling_world = busy(folder / "bare"), busy(folder / "telling", measured, recent)
    click.echo(f"{'ms':12}{'none of it':>14}{'CPU':>8}{'all of it':>14}{'CPU':>8}")
    without, beside = list[Took](), list[Took]()
    for number in range(rounds):
        one = decisions(bare, f"round-{number}", EACH)
        with telling(telling_world, metrics, recent):
            other = decisions(telling_world, f"round-{number}", EACH)
        without += one
        beside += other
        click.echo(_row(f"round {number + 1}", one, other))
    click.echo(_row("all rounds", without, beside))
    ratios = [ours / theirs for ours, theirs in zip(median(beside), median(without), strict=True)]
    click.echo(f"page, gauges and summary on: {ratios[0]:.3f} times by the clock, {ratios[1]:.3f} times of CPU")
    return max(ratios) > TOLD


def _row(name: str, one: list[Took], other: list[Took]) -> str:
    cells = [f"{1000 * each.clock:>14.2f}{1000 * each.cpu:>8.2f}" for each in map(median, (one, other))]
    return f"{name:12}" + "".join(cells)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", type=click.Choice(["asked", "told"]), help="One of the two.")
@click.option("--rounds", default=ROUNDS, show_default=True, help="Of each kind, for told.")
def main(*, only: str | None, rounds: int) -> None:
    """Time a decision beside readers. Exit code 1: it takes longer than it may."""
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        if only != "told":
            missed |= asked(Path(folder) / "asked")
        if only != "asked":
            missed |= told(Path(folder), rounds)
    sys.exit(int(missed))


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.readers")
