"""`tools.bench.gate_cluster rate`: a crowd of gated pods is released at once, by a script and by the gatekeeper."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agent.forecast.gate.values import GATE
from agent.kube.gate.list_watch import Arrived, ListWatch, News
from agent.node.state import State
from tests.cluster import gate_world as g
from tests.cluster.objects import Object
from tools.bench.gate import SIZES, WEIGHTS
from tools.bench.gate_servers import Say, deleted, lifted, manifest, posted, versions, waits, world

LONGEST, SETTLE = 300.0, 6.0
"""Seconds of a round at most, and between two rounds: nodes publish that they are empty."""


@dataclass
class Rates:
    """Rounds of releases at once."""

    pods: int
    say: Say
    released: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    refused: int = 0

    def run(self, nodes: int, rounds: int, limits: Mapping[str, float]) -> Object:
        """All rounds; the figures."""
        found: dict[str, list[Object]] = {"plain": [], "gatekeeper": []}
        with world(nodes, self.decided, self.say, "LeastAllocated", limits) as self.world:
            about = versions(self.world.cluster)
            watch = ListWatch[tuple[bool, str]](self.world.nodes.client, "pods", g.PODS, _standing, self.seen)
            watch.start()
            for number in range(rounds):
                for mode in [*found][:: 1 if number % 2 else -1]:
                    found[mode].append(self.round(number, mode))
                    self.say(f"round {number + 1}, {mode}: {found[mode][-1]}")
            watch.stop()
        middle = {mode: {name: statistics.median(each[name] for each in rounds_) for name in ("rate", "p50", "p99")}
                  for mode, rounds_ in found.items()}  # fmt: skip
        ratios = {name: round(middle["gatekeeper"][name] / middle["plain"][name], 3) for name in ("rate", "p99")}
        return {"nodes": nodes, "pods": self.pods, "limits": limits, **about, "rounds": found, "medians": middle,
                "ratios": ratios}  # fmt: skip

    def round(self, number: int, mode: str) -> Object:
        """Make gated pods, release them, and wait until all are bound."""
        draw, crowd, self.refused = random.Random(number), self.world.crowd, 0
        names = [f"r{number}-{mode}-{each:04}" for each in range(self.pods)]
        keys, gates = [f"{g.SPACE}/{name}" for name in names], [{"name": GATE}]
        crowd.all(
            partial(posted, manifest(name, draw.choices(SIZES, WEIGHTS)[0], schedulingGates=gates)) for name in names
        )
        before = self.world.used()
        with self.world.gatekeeper("LeastAllocated") if mode == "gatekeeper" else ExitStack() as started:
            for key in keys if mode == "plain" else ():
                crowd.send(partial(lifted, key))
            ends = time.monotonic() + LONGEST
            while any(key not in self.bound for key in keys) and time.monotonic() < ends:
                time.sleep(0.1)
            found = self.world.about(before, started if isinstance(started, g.GateProcess) else None)
        bound = [key for key in keys if key in self.bound]
        took = max(self.bound[key] for key in bound) - min(self.released[key] for key in bound)
        for key in keys:
            self.world.nodes.ended(key)
            crowd.send(partial(deleted, key))
        crowd.wait()
        time.sleep(SETTLE)
        return {"rate": round(len(bound) / took, 1), **waits([self.bound[key] - self.released[key] for key in bound]),
                "refused": self.refused, **found}  # fmt: skip

    def decided(self, _key: str, _body: Object, inside: bool, _before: State) -> None:  # noqa: FBT001 - as in Churn
        """A node decided."""
        self.refused += not inside

    def seen(self, news: News) -> None:
        """Note when a pod was released, and when it was bound; called by the watch."""
        if isinstance(news, Arrived):
            gated, node = news.value
            for there, known in ((not gated, self.released), (node, self.bound)):
                if there:
                    known.setdefault(news.key, time.monotonic())


def _standing(body: Mapping[str, Any], _known: bool) -> tuple[bool, str]:  # noqa: FBT001 - a `list_watch.Reader`
    return bool(g.gates(dict(body))), body["spec"].get("nodeName", "")
