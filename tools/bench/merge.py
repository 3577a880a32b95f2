"""`python -m tools.bench.merge`: the merge timed against the kubelet's own, in the same run.

The Go oracle measures the merge of kubelet 1.36, as it is until 1.37, of lists that hold every mask (Go walks their
product, whatever is in it; 1.38 looks among preferred hints first: `tools.bench.kubelets`);
ours merges the same lists as demands. Two columns: as they are (a mask is preferred by all), and with nothing
preferred in common, which is ours at its worst and the same to Go.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import click

from agent.core.merge.demand import Budget, Demand, Family, Need, Positions
from agent.core.merge.merge import merge_answers
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer
from agent.model.hint import IMPOSSIBLE, Stance
from agent.model.rules import Policy, TopologyRules
from tests.peers.oracle import NoOracleError, bench, oracle
from tools.bench.machines import HARD, ORDINARY, Scene, near

GOALS = {(4, 3): 10, (6, 3): 100, (8, 3): 10_000}
"""(nodes, lists) -> how many times faster than Go every column of ours must be."""

BATCHES = 9
ORDINARY_MS = 10.0  # three providers on 64 nodes


@dataclass(frozen=True, slots=True)
class Row:
    """One case; seconds per merge, Go's too."""

    case: str
    nodes: int
    lists: int
    go: float
    as_demands: float
    as_demands_not_preferred: float

    @property
    def ours(self) -> tuple[float, ...]:
        """All columns of ours."""
        return self.as_demands, self.as_demands_not_preferred

    @property
    def missed(self) -> bool:
        """Whether a goal is missed."""
        policy = self.case.startswith(Policy.BEST_EFFORT)
        return policy and self.go / max(self.ours) < GOALS.get((self.nodes, self.lists), 0)


def seconds(work: Callable[[], object], spend: float = 0.2) -> float:
    """Time of a call: the median over batches, so that another process on the machine does not decide."""
    start = time.perf_counter()
    work()
    batch = max(1, int(spend / BATCHES / max(time.perf_counter() - start, 1e-6)))
    return median(_mean(work, batch) for _ in range(BATCHES))


def _mean(work: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - start) / count


def compare(results: Iterator[dict[str, Any]]) -> Iterator[Row]:
    """Measure ours beside each of Go's merge results; others end it."""
    for result in results:
        if result["bench"] != "merge":
            return
        yield _row(result)


def _row(result: dict[str, Any]) -> Row:
    nodes, count, policy = result["numa_nodes"], result["lists"], Policy(result["policy"])
    closest = result["case"].endswith("closest")
    order = Order([[10 + 2 * abs(a - b) for b in range(nodes)] for a in range(nodes)] if closest else None)
    everything = (1 << nodes) - 1
    demand = Demand(Family(everything, (Need(1, (1,) * nodes),)), size=1)
    rules = TopologyRules(policy, prefer_closest=closest)
    positions = Positions.of(range(nodes))

    def of_demands(*more: Answer) -> float:
        answers: list[Answer] = [{"r": demand} for _ in range(count)]
        return seconds(lambda: merge_answers([*answers, *more], positions, rules, order))

    return Row(
        result["case"],
        nodes,
        count,
        result["ns_per_op"] / 1e9,
        of_demands(),
        of_demands({"impossible": IMPOSSIBLE}),
    )


def alone(width: int, scene: Scene, *, closest: bool) -> tuple[float, int, bool]:
    """(seconds, steps, exact) of one best-effort merge of demands."""
    offers: list[Demand | Stance] = scene(width)
    answers: list[Answer] = [{"r": offer} for offer in offers]
    order = Order(near(width) if closest else None)
    rules = TopologyRules(Policy.BEST_EFFORT, prefer_closest=closest)
    positions, budget = Positions.of(range(width)), Budget()
    exact = merge_answers(answers, positions, rules, order, budget=budget).exact
    return (
        seconds(lambda: merge_answers(answers, positions, rules, order)),
        Budget().left - max(budget.left, 0),
        exact,
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--alone", "only_ours", is_flag=True, help="Do not build or run the Go oracle.")
def main(*, only_ours: bool) -> None:
    """Time the hint merge: against the kubelet's own where Go and its oracle are there, then alone on wide machines.

    Exit code 1 if a goal is missed: with 3 lists 10 times faster than Go at 4 nodes, 100 at 6, 10,000 at 8, and
    ordinary merges of demands under 10 ms at 64 nodes.
    """
    missed = False
    if not only_ours:
        try:
            missed = _against_go(compare(bench(oracle())))
        except NoOracleError as why:
            click.echo(f"not compared with the kubelet: {why}")
    click.echo("\nours alone, best-effort, from demands (ms; * = step budget spent, not proved)")
    click.echo(f"{'':60}{'16':>9}{'32':>9}{'64':>9}  nodes")
    for scenes, limit in ((ORDINARY, ORDINARY_MS), (HARD, None)):
        for name, (scene, closest) in scenes.items():
            times = [alone(width, scene, closest=closest) for width in (16, 32, 64)]
            click.echo(f"{name:60}" + "".join(f"{t * 1e3:8.2f}{' ' if exact else '*'}" for t, _, exact in times))
            missed |= limit is not None and times[-1][0] * 1e3 >= limit
    sys.exit(1 if missed else 0)


def _against_go(rows: Iterator[Row]) -> bool:
    click.echo("microseconds per merge (times faster than Go); ! = goal missed")
    click.echo(f"{'case':42}{'Go':>12}{'ours':>19}{'not preferred':>19}")
    missed = False
    for row in rows:
        cells = "".join(f"{t * 1e6:>9.1f} {f'({row.go / t:,.1f}x)':>9}" for t in row.ours)
        click.echo(f"{row.case:42}{row.go * 1e6:>12,.1f}{cells}{' !' if row.missed else ''}")
        missed |= row.missed
    return missed


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.merge")
