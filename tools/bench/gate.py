"""`python -m tools.bench.gate`: the gatekeeper's decisions alone, 5,000 nodes filled to 85 %, 50 pods a second.

The nodes and kube-scheduler are on paper, with the real managers. The gatekeeper decodes summaries and decides. The
clock stands while the paper works, and runs by CPU time while the gatekeeper does, so that the figures are those of
one core of its own. A pod's time is from the event of the watch to the release. Pods that stay gated since nothing
fits are told apart. Memory is what the process has more than before the gatekeeper began.
"""

from __future__ import annotations

import heapq
import random
import resource
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from agent.core.admission.node import Node
from agent.forecast.dry_run import DryRun
from agent.forecast.gate.events import (
    Answer,
    Event,
    LookedUp,
    LookUp,
    NodeSeen,
    Nominate,
    PatchAnswered,
    PodGone,
    PodSeen,
    Release,
    SummarySeen,
    Tell,
)
from agent.forecast.gate.state import GateState
from agent.forecast.gate.step import step
from agent.forecast.gate.values import HOSTNAME, GateOptions, PublishedSummary, SchedulerNode, UnboundPod
from agent.forecast.node_summary import Decoder, encode, summarize
from agent.forecast.placing import BindingFacts
from agent.forecast.scheduling import Strategy
from agent.model.pod import Container, Pod, Qos
from tests.world.nodes import managers_of

MACHINE = "2 sockets x 2 nodes x 32 cores, 128G per node"
CPUS, ALLOCATABLE = 128, {"cpu": 128_000, "memory": 500 * 2**30 * 1000, "pods": 110_000}
SETTINGS = {"topologyManagerPolicy": "single-numa-node", "onMisalignment": "wait"}
SIZES, WEIGHTS = (2, 4, 8, 16, 24), (8, 6, 4, 2, 1)
STATES = 50
GOAL_SECONDS, GOAL_MIB = 1.0, 300
BOUND, PUBLISHED = 0.05, 1.0
"""Seconds from a release to the binding, and from a change of a node to its summary."""
EPOCH = 1_700_000_000.0
Happened = tuple[float, str, Any]


def pod(uid: str, cpus: int, created: float) -> Pod:
    """A Guaranteed pod with CPUs of its own."""
    amounts = {"cpu": 1000 * cpus, "memory": 1000 * cpus * 2**30}
    return Pod(
        uid, uid, "shop", (Container("app", requests=amounts, limits=amounts),), Qos.GUARANTEED, created=created
    )


@dataclass
class Paper:
    """The cluster on paper: pods come and end at random times of a seed."""

    nodes: int
    rate: float
    fill: float
    seed: int
    runs: list[DryRun] = field(default_factory=list)
    due: list[tuple[float, int, str, Any]] = field(default_factory=list)
    stale: dict[int, float] = field(default_factory=dict)
    refused: int = 0
    number: int = 0
    life: float = 1.0

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        managers = managers_of(MACHINE, SETTINGS)
        bases = [self.base(managers) for _ in range(STATES)]
        mean = sum(a * b for a, b in zip(SIZES, WEIGHTS, strict=True)) / sum(WEIGHTS)
        self.life = self.fill * self.nodes * CPUS / (self.rate * mean)
        for number in range(self.nodes):
            run = bases[number % STATES].fork()
            gone = self.draw.sample(sorted(run.pods), 2)
            run.end(gone, EPOCH)
            self.runs.append(run)
            for uid in run.pods:
                self.at(EPOCH + self.draw.expovariate(1 / self.life), "end", (number, uid))
        self.at(EPOCH + self.draw.expovariate(self.rate), "come", None)

    def base(self, managers: Node) -> DryRun:
        """A node that is filled, and some of whose pods left."""
        run, taken = DryRun(managers), 0
        while taken < CPUS - 2:
            cpus = self.draw.choices(SIZES, WEIGHTS)[0]
            self.number += 1
            uid = f"{self.number}"
            run.see(pod(uid, cpus, EPOCH - 1e6 + self.number), EPOCH - 1e6 + self.number)
            if run.waits(uid) or not run.runs(uid):
                run.end([uid], EPOCH)
                taken += 1
            else:
                taken += cpus
        held = {uid: sum(each.requests["cpu"] for each in run.pods[uid].pod.containers) for uid in run.pods}
        while sum(held.values()) > (self.fill + 0.08) * CPUS * 1000:
            uid = self.draw.choice(sorted(held))
            run.end([uid], EPOCH)
            del held[uid]
        return run

    def at(self, moment: float, what: str, more: object) -> None:
        """Note what will happen."""
        self.number += 1
        heapq.heappush(self.due, (moment, self.number, what, more))

    def told(self, number: int, moment: float) -> str:
        """The annotation of a node."""
        made = summarize(self.runs[number].state, began=0.0, enforcing=True)
        return encode(replace(made, generation=int(moment * 1000) % 2**31, changed=moment))

    def until(self, moment: float) -> list[Happened]:
        """All that happens until then."""
        found = list[Happened]()
        while self.due and self.due[0][0] <= moment:
            now, _, what, more = heapq.heappop(self.due)
            if what == "come":
                self.number += 1
                found.append((now, "pod", (f"p{self.number}", self.draw.choices(SIZES, WEIGHTS)[0], now)))
                self.at(now + self.draw.expovariate(self.rate), "come", None)
            elif what == "end":
                number, uid = more
                self.runs[number].end([uid], now)
                self.changed(number, now)
            elif what == "bind":
                number, uid, cpus, created = more
                self.runs[number].see(pod(uid, cpus, created), now)
                self.refused += not self.runs[number].runs(uid)
                self.at(now + self.draw.expovariate(1 / self.life), "end", (number, uid))
                self.changed(number, now)
                found.append((now, "gone", uid))
            elif what == "publish":
                del self.stale[more]
                found.append((now, "summary", (more, self.told(more, now))))
        return found

    def changed(self, number: int, now: float) -> None:
        """Publish the node's summary in a moment."""
        if number not in self.stale:
            self.stale[number] = now + PUBLISHED
            self.at(now + PUBLISHED, "publish", number)


@dataclass
class Figures:
    """What a run measured."""

    waits: list[float] = field(default_factory=list)
    held: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    busy: float = 0.0


def percentile(found: list[float], share: float) -> float:
    """The value below which a share of the values lies."""
    return sorted(found)[min(len(found) - 1, int(share * len(found)))] if found else 0.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--nodes", default=5000, show_default=True)
@click.option("--rate", default=50.0, show_default=True, help="Pods a second.")
@click.option("--fill", default=0.85, show_default=True)
@click.option("--seconds", default=60.0, show_default=True, help="Of the stream.")
@click.option("--seed", default=1, show_default=True)
@click.option(
    "--strategy", default="least-allocated", show_default=True, type=click.Choice([each.value for each in Strategy])
)
def main(nodes: int, rate: float, fill: float, seconds: float, seed: int, strategy: str) -> None:
    """Time the gatekeeper's decisions on a stream of pods."""
    paper = Paper(nodes, rate, fill, seed)
    texts = [paper.told(number, EPOCH) for number in range(nodes)]
    base = resident()
    decoder = Decoder()
    state = GateState(GateOptions(strategy=Strategy(strategy), summary_age=1e9))
    began = time.process_time()
    first = list[Event]()
    for number, text in enumerate(texts):
        first += [NodeSeen(SchedulerNode(BindingFacts(f"n{number:04}", {HOSTNAME: f"n{number:04}"}), ALLOCATABLE)),
                  seen(number, text, EPOCH, decoder)]  # fmt: skip
    state = step(state, first, EPOCH).state
    click.echo(
        f"{nodes:,} nodes read in {time.process_time() - began:.1f} s of CPU; {sum(map(len, texts)) >> 20} MiB"
    )
    del texts, first
    figures, state = stream(paper, state, decoder, EPOCH + seconds)
    for name, found in (("gate -> release", figures.waits), ("of those that had to wait", figures.held)):
        if found:
            p50, p99 = percentile(found, 0.5), percentile(found, 0.99)
            click.echo(f"{name}: {len(found):,} pods, p50 {p50:.3f} s, p99 {p99:.3f} s, longest {max(found):.3f} s")
    click.echo(f"steps: {len(figures.steps):,}, p99 {percentile(figures.steps, 0.99):.3f} s; core busy "
               f"{figures.busy / seconds:.0%}; still gated {len(state.waiting)}")  # fmt: skip
    click.echo(", ".join(f"{name} {number:,}" for name, number in sorted(state.counts.items())))
    more = resident() - base
    missed = percentile(figures.waits, 0.99) > GOAL_SECONDS or more > GOAL_MIB
    click.echo(f"memory: {more} MiB more than the {base} MiB of program and paper; goals: p99 {GOAL_SECONDS:.0f} s, "
               f"{GOAL_MIB} MiB{' ! missed' if missed else ''}")  # fmt: skip
    sys.exit(1 if missed else 0)


def resident() -> int:
    """MiB of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() >> 20


def seen(number: int, text: str, now: float, decoder: Decoder) -> SummarySeen:
    """The event of a summary."""
    found = PublishedSummary(f"{number}/{now}", decoder.decode(text), now)
    return SummarySeen(f"n{number:04}", found)


def stream(paper: Paper, state: GateState, decoder: Decoder, end: float) -> tuple[Figures, GateState]:
    """Serve the stream; the clock is the paper's, and runs on by the CPU time of the steps."""
    figures, now, again = Figures(), EPOCH, False
    came, sizes, held, answers = dict[str, float](), dict[str, int](), set[str](), list[Event]()
    while now < end:
        happened, following = paper.until(now), paper.due[0][0]
        if not happened and not answers and not again:
            now = max(now, following)
            continue
        began = time.process_time()
        events, answers = [*answers], []
        for moment, what, more in happened:
            if what == "pod":
                uid, cpus, created = more
                came[uid], sizes[uid] = moment, cpus
                events.append(PodSeen(UnboundPod(pod(uid, cpus, created), version="1")))
            elif what == "gone":
                events.append(PodGone(more))
            else:
                number, text = more
                events.append(seen(number, text, now, decoder))
        made = step(state, events, now)
        spent = time.process_time() - began
        state, now = made.state, now + spent
        figures.steps.append(spent)
        figures.busy += spent
        for effect in made.effects:
            if isinstance(effect, Nominate | Release):
                node = effect.node if isinstance(effect, Nominate) else state.flights[effect.uid].node
                (figures.held if effect.uid in held else figures.waits).append(now - came[effect.uid])
                paper.at(now + BOUND, "bind", (int(node[1:]), effect.uid, sizes[effect.uid], came[effect.uid]))
                answers.append(PatchAnswered(effect, Answer.DONE, nominated=True, version="2"))
            elif isinstance(effect, Tell):
                held.add(effect.uid)
                answers.append(PatchAnswered(effect, Answer.DONE, version="1"))
            elif isinstance(effect, LookUp):
                answers.append(LookedUp(effect.uid, state.flights[effect.uid].node))
        again = made.again
    click.echo(f"refused by their node: {paper.refused}")
    return figures, state


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.gate")
