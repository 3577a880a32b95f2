"""`python -m tools.bench.gate_cluster`: the gatekeeper beside a real etcd, kube-apiserver and kube-scheduler.

Nodes are on paper, with the real managers: a bound pod is decided by its node, a refused one is set Failed, and the
agent's own loop publishes the summary. The gatekeeper is its real process. Clusters begin empty.

A pod that fits as it comes, and is not bound in time or is refused, counts as not served: "sums" where some node had
the CPUs in all, "decision" where some node would have taken it. Pods live so long that the rate makes the load.
"""

from __future__ import annotations

import heapq
import json
import logging
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from agent.core.cpus.pools import granted
from agent.forecast.gate.values import GATE
from agent.kube.gate.patches import REQUIRED, TERMS
from agent.node.state import State
from tests.cluster import gate_world as g
from tests.cluster.control_plane import ApiError
from tests.cluster.nodes import SYSTEM
from tests.cluster.objects import Object
from tests.patience import until
from tools.bench import crowd as c
from tools.bench.gate import CPUS, SIZES, WEIGHTS
from tools.bench.gate_rate import Rates
from tools.bench.gate_servers import (
    FAST,
    SCORING,
    STOCK,
    Say,
    deleted,
    manifest,
    path,
    posted,
    versions,
    waits,
    world,
)

MEAN = sum(a * b for a, b in zip(SIZES, WEIGHTS, strict=True)) / sum(WEIGHTS)
STEADY = 2.0
"""Lifetimes after which a cluster that began empty is as full as it gets."""
BEFORE = 10.0
"""Seconds before a refusal of which the node's pods are told: those that came, and those that ended."""
LATE = 1.0
"""Seconds after which a pod that never asked is looked at, and a refused one is deleted."""


@dataclass
class Lot:
    """A pod of the stream, and what became of it."""

    cpus: int
    asks: bool
    came: float
    sums: bool
    decision: bool
    bound: float = 0.0
    node: str = ""
    promised: str = ""
    refused: bool = False
    left: bool = False
    late: str = ""


@dataclass(frozen=True)
class Plan:
    """What a run of churn is; see the options."""

    pods: int
    nodes: int
    rate: float
    load: float
    patience: float
    plain: float
    strategy: str
    gatekeeper: bool
    uninstall: bool
    seed: int

    @property
    def life(self) -> float:
        """Seconds that a pod lives, on the average."""
        return self.load * self.nodes * CPUS / (self.rate * MEAN)


class Churn:
    """A run of churn."""

    def __init__(self, plan: Plan, say: Say) -> None:
        self.plan, self.say = plan, say
        self.draw, self.lives = random.Random(plan.seed), random.Random(plan.seed + 1)
        self.lots: dict[str, Lot] = {}
        self.fill: list[tuple[float, float]] = []
        self.refusals: list[Object] = []
        self.arrivals: dict[str, deque[tuple[float, str, int, str, object]]] = {}
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.lock = threading.Lock()
        self.gatekeeper: g.GateProcess | None = None
        self.running = self.turn = self.done = self.restarts = 0

    def run(self) -> Object:
        """Run it; the figures."""
        plan = self.plan
        with (
            world(plan.nodes, self.bound, self.say, plan.strategy, STOCK) as self.world,
            self.world.gatekeeper(plan.strategy) if plan.gatekeeper else ExitStack() as started,
        ):
            self.gatekeeper = started if isinstance(started, g.GateProcess) else None
            if self.gatekeeper:
                until(self.world.gates, "the gate", within=60)
            found, before = versions(self.world.cluster), self.world.used(self.gatekeeper)
            self.began = time.monotonic()
            self.at(self.began, partial(self.come, 0, self.began))
            self.at(self.began, self.sample)
            self.stream()
            found |= {"seconds": round(time.monotonic() - self.began, 1), "left behind": self.left_behind()}
            found |= {"restarts": self.restarts, **self.world.about(before, self.gatekeeper)}
        return {"plan": {**vars(plan), "life": round(plan.life, 1)}, **found, **self.figures(), "fill": self.fill}

    # ---- what happens, in order of time

    def at(self, moment: float, what: Callable[[], None]) -> None:
        """Do something then."""
        with self.lock:
            self.turn += 1
            heapq.heappush(self.due, (moment, self.turn, what))

    def stream(self) -> None:
        """Until each pod that came is bound or has left."""
        half = self.plan.pods // 2 if self.plan.uninstall else self.plan.pods + 1
        while self.done < self.plan.pods:
            with self.lock:
                wait = self.due[0][0] - time.monotonic() if self.due else 0.05
                what = heapq.heappop(self.due)[2] if self.due and wait <= 0 else None
            if what is None:
                time.sleep(min(0.02, max(0.0, wait)))
            else:
                what()
            if len(self.lots) >= half and self.gatekeeper:
                half = self.plan.pods + 1
                threading.Thread(target=self.uninstall, args=(self.gatekeeper,), daemon=True).start()

    def come(self, number: int, planned: float) -> None:
        """A pod comes, and the next one is drawn: one that is late makes none of those after it late."""
        plan, key = self.plan, f"{g.SPACE}/p{number:05}"
        cpus, asks = self.draw.choices(SIZES, WEIGHTS)[0], self.draw.random() >= plan.plain
        sums, decision = self.world.nodes.fits(cpus)
        now = time.monotonic()
        self.lots[key] = lot = Lot(cpus, asks, now, sums, decision if asks else sums)
        self.world.crowd.send(partial(posted, manifest(f"p{number:05}", cpus, asks=asks)))
        self.at(now + plan.patience, partial(self.give_up, key, lot))
        if not asks:
            self.at(now + LATE, partial(self.look, key, lot))
        if number + 1 < plan.pods:
            planned += self.draw.expovariate(plan.rate)
            self.at(planned, partial(self.come, number + 1, planned))

    def bound(self, key: str, body: Object, inside: bool, before: State) -> None:  # noqa: FBT001 - what a node tells
        """A node decided; called by its thread."""
        now = time.monotonic()
        with self.lock:
            lot = self.lots.get(key)
            if lot is None or lot.left:
                return
            lot.bound = now
            self.done += 1
        lot.node, lot.promised, lot.refused = body["spec"]["nodeName"], promised(body), not inside
        there = self.arrivals.setdefault(lot.node, deque(maxlen=50))
        free, after = free_on(before), free_on(self.world.nodes.nodes[lot.node].run.state)
        got = next((each for each in free if after[each] != free[each]), None)
        there.append((now, key, lot.cpus, lot.promised, got))
        if inside:
            self.running += lot.cpus
            self.at(now + self.lives.expovariate(1 / self.plan.life), partial(self.end, key, lot))
            return
        recent = [(round(now - at, 3), *rest) for at, *rest in there if now - at < BEFORE and rest[0] != key]
        self.refusals.append({
            "pod": key, "cpus": lot.cpus, "node": lot.node, "promised": lot.promised, "free": free,
            "avoids": len(avoided(body)), "waited": round(now - lot.came, 3), "before it": recent,
        })  # fmt: skip
        self.at(now + LATE, lambda: self.world.crowd.send(partial(deleted, key)))

    def end(self, key: str, lot: Lot) -> None:
        """A pod has done its work."""
        self.running -= lot.cpus
        self.arrivals[lot.node].append((time.monotonic(), key, -lot.cpus, lot.node, None))
        self.world.nodes.ended(key)
        self.world.crowd.send(partial(deleted, key))

    def give_up(self, key: str, lot: Lot) -> None:
        """A pod that was not bound in time is deleted."""
        with self.lock:
            lot.left = not lot.bound
            self.done += lot.left
        if lot.left:
            self.world.crowd.send(partial(deleted, key))

    def look(self, key: str, lot: Lot) -> None:
        """Ask why a pod that never asked is not bound yet."""
        if not lot.bound:
            room = "room in sum" if self.world.nodes.fits(lot.cpus)[0] else "no room in sum"
            self.world.crowd.send(partial(_looked, key, lot, room))

    def sample(self) -> None:
        """Note each second how full it is; a gatekeeper that ended is started again, as its kubelet would."""
        now, share = time.monotonic(), self.running / (self.plan.nodes * CPUS)
        self.fill.append((round(now - self.began, 1), round(share, 4)))
        self.at(now + 1.0, self.sample)
        if self.gatekeeper and not self.gatekeeper.lives:
            self.restarts += 1
            self.gatekeeper.__enter__()
        if not len(self.fill) % 10:
            came, refused = len(self.lots), len(self.refusals)
            left = sum(each.left for each in [*self.lots.values()])
            self.say(f"{came} came, {self.done - left} bound, {left} left, {refused} refused, {share:.0%} full")

    def uninstall(self, gatekeeper: g.GateProcess) -> None:
        """As `helm uninstall` does: the hook, which takes the policy's binding too, and then the Deployment."""
        command = [sys.executable, "-m", "agent", "ungate", "--all", "--policy", "--namespace", SYSTEM]
        config, self.gatekeeper = str(self.world.cluster.kubeconfig), None
        found = subprocess.run([*command, "--kubeconfig", config], capture_output=True, text=True, check=False)
        self.say(f"ungate ended with {found.returncode}: {found.stdout}{found.stderr}")
        self.say(f"the gatekeeper ended with {gatekeeper.end()}; left behind: {self.left_behind()}")

    def left_behind(self) -> Object:
        """Gates, nominations of gated pods, and whether the switch stands."""
        items = self.world.cluster.call("GET", f"{g.PODS}?fieldSelector=spec.nodeName=")["items"]
        gated = [each for each in items if GATE in g.gates(each)]
        nominated = sum(bool(g.nominated(each)) for each in gated)
        return {"gates": len(gated), "nominations": nominated, "switch": g.switched_on(self.world.cluster)}

    # ---- what came of it

    def figures(self) -> Object:
        """Counts of all pods, and of those after the beginning."""
        every, steady = [*self.lots.values()], self.began + STEADY * self.plan.life
        full = [share for at, share in self.fill if self.began + at >= steady]
        slow = sorted((each for each in every if not each.asks and each.bound), key=lambda e: e.came - e.bound)
        fit = [each for each in every if each.bound and each.sums]
        return {
            "all": counts(every), "steady": counts([each for each in every if each.came >= steady]),
            "full": round(statistics.mean(full), 4) if full else 0.0,
            "waits": {name: waits([each.bound - each.came for each in fit if each.asks is asks])
                      for name, asks in (("asked", True), ("never asked", False))},
            "slowest that never asked": [(round(e.bound - e.came, 3), e.cpus, e.sums, e.late) for e in slow[:10]],
            "refusals": [{"why": self.why(each), **each} for each in self.refusals],
        }  # fmt: skip

    def why(self, refusal: Object) -> str:
        """The race that explains a refusal."""
        lot = self.lots[refusal["pod"]]
        if not lot.promised:
            return "bound by sums" if lot.asks else "never asked"
        if lot.promised != lot.node:
            return f"bound elsewhere than {lot.promised}"
        strangers = [key for _, key, _, node, _ in refusal["before it"] if node != lot.node]
        return f"{strangers[-1]} came before it, and was not promised there" if strangers else "not known"


def free_on(state: State) -> dict[int, int]:
    """CPUs of each NUMA node that no pod has for itself."""
    return {each.id: len(each.cpus - granted(state.ledger.cpus)) for each in state.node.machine.nodes}


def promised(body: Object) -> str:
    """The node that the gatekeeper chose for a pod, "" for none: its condition outlives the nomination."""
    told = g.condition(body)
    return str(told["message"]).partition(": ")[0] if told.get("status") == "True" else ""


def avoided(body: Object) -> Sequence[str]:
    """The nodes that a pod must avoid."""
    required = body["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED, {})
    rules = (rule for term in required.get(TERMS, ()) for rule in term.get("matchExpressions", ()))
    return [name for each in rules if each["operator"] == "NotIn" for name in each["values"]]


def counts(lots: list[Lot]) -> Object:
    """What became of pods."""
    bound = [each for each in lots if each.bound and each.asks]
    found: Object = {
        "pods": len(lots), "refused": sum(each.refused for each in lots), "left": sum(each.left for each in lots),
        "where promised": sum(bool(each.promised) and each.promised == each.node for each in bound),
        "elsewhere": sum(bool(each.promised) and each.promised != each.node for each in bound),
        "not promised": sum(not each.promised for each in bound),
    }  # fmt: skip
    for name in ("sums", "decision"):
        fit = [each for each in lots if getattr(each, name)]
        lost = sum(not each.bound or each.refused for each in fit)
        found[name] = {"fit": len(fit), "not served": lost, "share": round(lost / max(1, len(fit)), 4)}
    return found


def _looked(key: str, lot: Lot, room: str, line: c.Line) -> None:
    with suppress(ApiError):  # it is gone
        condition = g.condition(line.call("GET", path(key)), "PodScheduled")
        lot.late = f"{room}; {condition.get('message', 'not tried yet')}"


# ---- picture

WIDE, HIGH, LEFT, TOP, ROW = 640, 260, 50, 20, 18
STYLE = (
    "text{fill:#4a5568}path,polyline{fill:none}.g{stroke:#cbd5e0}.most{stroke:#2b6cb0;stroke-width:2}"
    ".least{stroke:#c05621;stroke-width:2}.without{stroke-dasharray:5 4}@media(prefers-color-scheme:dark){"
    "text{fill:#cbd5e0}.g{stroke:#4a5568}.most{stroke:#63b3ed}.least{stroke:#f6ad55}}"
)


def picture(runs: list[Object]) -> str:
    """How full the cluster was over time, as SVG: a line for each run."""
    last, foot = max(at for run in runs for at, _ in run["fill"]), TOP + HIGH + 3 * ROW
    parts = list[str]()
    for percent in range(0, 101, 25):
        y = TOP + HIGH * (100 - percent) // 100
        parts.append(f'<path class="g" d="M{LEFT} {y}h{WIDE}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{percent} %</text>')
    for at in range(0, int(last) + 1, 50):
        x = LEFT + WIDE * at / last
        parts.append(f'<text x="{x:.0f}" y="{TOP + HIGH + ROW}" text-anchor="middle">{at} s</text>')
    for number, run in enumerate(runs):
        strategy, word = run["plan"]["strategy"], "with" if run["plan"]["gatekeeper"] else "without"
        kind, y = f"{strategy.removesuffix('Allocated').lower()} {word}", foot + ROW * number
        points = (f"{LEFT + WIDE * at / last:.0f},{TOP + HIGH * (1 - share):.0f}" for at, share in run["fill"][::2])
        told = f"{run['full']:.0%} full, {run['all']['sums']['share']:.1%} of the pods that fit by sums not served"
        parts.append(f'<polyline class="{kind}" points="{" ".join(points)}"/>')
        parts.append(f'<path class="{kind}" d="M{LEFT} {y - 4}h40"/>')
        parts.append(f'<text x="{LEFT + 50}" y="{y}">{strategy}, {word} the gatekeeper: {told}</text>')
    size, title = f"{LEFT + WIDE + 20} {foot + ROW * len(runs)}", "CPUs that pods run on, of all CPUs, over time"
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" aria-labelledby="t"',
        f' font-family="system-ui, sans-serif" font-size="12"><title id="t">{title}</title><style>{STYLE}</style>',
        *parts, "</svg>", "",
    ))  # fmt: skip


# ---- command line

FILE = click.Path(path_type=Path)


def saying() -> Say:
    """Progress, a line each."""
    began = time.monotonic()
    return lambda text: click.echo(f"{time.monotonic() - began:5.0f} s  {text}", err=True)


def written(found: Object, output: Path | None) -> None:
    """Write what was found."""
    text = json.dumps(found, indent=1)
    output.write_text(text, "utf-8") if output else click.echo(text)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, help=__doc__)
def main() -> None:
    """See the module."""
    logging.disable(logging.WARNING)  # watches end with the servers, and say so
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are ended then, too


@main.command("churn")
@click.option("--pods", default=10_000, show_default=True)
@click.option("--nodes", default=40, show_default=True, help="Of 4 NUMA nodes with 32 CPUs each.")
@click.option("--rate", default=45.0, show_default=True, help="Pods that come, a second.")
@click.option("--load", default=1.0, show_default=True, help="CPUs that all pods would take, as a share of all CPUs.")
@click.option("--patience", default=3.0, show_default=True, help="Seconds until a pod that is not bound leaves.")
@click.option("--plain", default=0.0, show_default=True, help="Share of pods that never ask, and share CPUs.")
@click.option("--scoring", "strategy", default="MostAllocated", show_default=True, type=click.Choice([*SCORING]))
@click.option("--only", type=click.Choice(["with", "without"]), help="One run.  [default: without, then with]")
@click.option("--uninstall", is_flag=True, help="The gatekeeper is uninstalled after half of the pods.")
@click.option("--seed", default=1, show_default=True)
@click.option("--output", type=FILE, help="JSON.  [default: printed]")
def churn(*, only: str | None, output: Path | None, **options: Any) -> None:  # noqa: ANN401 - of Plan
    """Count what becomes of pods that come and go, without a gatekeeper and with it.

    \b
    Examples:
      python -m tools.bench.gate_cluster churn --output most.json
      python -m tools.bench.gate_cluster churn --plain 0.3 --load 0.85 --patience 60
      python -m tools.bench.gate_cluster churn --pods 500 --nodes 10 --rate 12
    """  # noqa: D301 - click's mark for text that is not folded is this very character
    say, runs = saying(), list[Object]()
    for word in (only,) if only else ("without", "with"):
        runs.append(Churn(Plan(gatekeeper=word == "with", **options), say).run())
        short = {name: each for name, each in runs[-1].items() if name not in ("fill", "refusals")}
        say(f"{word}: {json.dumps(short)}")
    written({"runs": runs}, output)


@main.command("rate")
@click.option("--pods", default=1000, show_default=True, help="In a round.")
@click.option("--nodes", default=1000, show_default=True)
@click.option("--rounds", default=5, show_default=True, help="Of each, in turn.")
@click.option("--stock", is_flag=True, help="kube-scheduler with its own limits: qps 50, burst 100.")
@click.option("--output", type=FILE, help="JSON.  [default: printed]")
def rate(*, pods: int, nodes: int, rounds: int, stock: bool, output: Path | None) -> None:
    """Time how fast gated pods are bound that a script releases, and the gatekeeper."""
    written(Rates(pods, saying()).run(nodes, rounds, STOCK if stock else FAST), output)


@main.command("picture")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--output", required=True, type=FILE, help="SVG.")
def drawn(files: tuple[Path, ...], output: Path) -> None:
    """Draw how full the cluster was, from the JSON of churn."""
    runs = [run for each in files for run in json.loads(each.read_text("utf-8"))["runs"]]
    output.write_text(picture(runs), "utf-8")


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.gate_cluster")
