"""The scheduler's sums and choices that `simulate` uses: what a pod requests, where it fits, which node is best."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.admission.allocatable import node_room
from agent.forecast.scheduling import Needs, Scheduler, Strategy, needs_of
from agent.model.podspec import pod_from
from tests.world.nodes import managers_of

GI = 1000 * 2**30


def needs(spec: dict[str, Any]) -> dict[str, int]:
    """What a pod of this spec requests."""
    body = {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    return dict(needs_of(pod_from(body)).amounts)


def part(name: str, cpu: str, **extra: str) -> dict[str, Any]:
    """A container that requests CPUs."""
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **extra}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [part("a", "1"), part("b", "500m")]}, 1500),
        ({"containers": [part("a", "1")], "initContainers": [part("i", "3")]}, 3000),
        ({"containers": [part("a", "2")], "initContainers": [part("s", "1", restartPolicy="Always")]}, 3000),
        ({"containers": [part("a", "1")],
          "initContainers": [part("s", "1", restartPolicy="Always"), part("i", "3")]}, 4000),
        ({"containers": [part("a", "1")],
          "initContainers": [part("i", "3"), part("s", "1", restartPolicy="Always")]}, 3000),
        ({"containers": [part("a", "1")], "resources": {"requests": {"cpu": "5"}}}, 5000),
        ({"containers": [{"name": "a"}], "resources": {"requests": {"cpu": "5"}}}, 5000),
        ({"containers": [part("a", "1")], "overhead": {"cpu": "250m"}}, 1250),
    ],
)  # fmt: skip
def test_requests_are_what_is_held_at_once(spec: dict[str, Any], cpu: int) -> None:
    """Init containers count one by one beside the sidecars before them; pod-level requests replace, overhead adds."""
    assert needs(spec) == {"cpu": cpu, "pods": 1000}


def test_what_is_not_requested_counts_in_scores() -> None:
    """Each container without a request counts as 100m and 200Mi there; one that requests zero does not."""
    zero = {"name": "z", "resources": {"requests": {"cpu": "0"}}}
    body = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}, zero]}}
    found = needs_of(pod_from(body))
    assert dict(found.amounts) == {"pods": 1000}
    assert (found.cpu, found.memory) == (200, 3 * 200 * 2**20 * 1000)


LEAST, MOST = Strategy.LEAST_ALLOCATED, Strategy.MOST_ALLOCATED


@pytest.mark.parametrize(
    ("strategy", "rooms", "taken", "asked", "scores"),
    [  # cases of least_allocated_test.go and most_allocated_test.go in kube-scheduler v1.36: (CPU, memory)
        (LEAST, [(4000, 10_000), (4000, 10_000)], [(0, 0), (0, 0)], (0, 0), [100, 100]),
        (LEAST, [(4000, 10_000), (6000, 10_000)], [(0, 0), (0, 0)], (3000, 5000), [37, 50]),
        (LEAST, [(10_000, 20_000), (10_000, 50_000)], [(3000, 0), (3000, 5000)], (3000, 5000), [57, 60]),
        (LEAST, [(4000, 10_000), (4000, 10_000)], [(3000, 0), (3000, 5000)], (3000, 0), [50, 25]),
        (LEAST, [(0, 0), (0, 0)], [(3000, 0), (3000, 5000)], (0, 0), [0, 0]),
        (MOST, [(4000, 10_000), (6000, 10_000)], [(0, 0), (0, 0)], (3000, 5000), [62, 50]),
        (MOST, [(10_000, 20_000), (10_000, 20_000)], [(6000, 0), (6000, 5000)], (0, 0), [30, 42]),
        (MOST, [(5000, 10_000), (10_000, 9000)], [(0, 0), (0, 0)], (5000, 9000), [95, 75]),
    ],
)
def test_scores_are_the_schedulers(
    strategy: Strategy, rooms: list[tuple[int, int]], taken: list[tuple[int, int]], asked: tuple[int, int],
    scores: list[int],
) -> None:  # fmt: skip
    """The same pods on the same nodes score as in the scheduler itself."""
    scheduler = Scheduler([room(*each) for each in rooms], strategy)
    for number, held in enumerate(taken):
        scheduler.take(number, Needs((), *held))
    assert [scheduler._score(number, Needs((), *asked)) for number in range(len(rooms))] == scores


def ask(cpu: int = 0, memory: int = 0, **others: int) -> Needs:
    """Needs in thousandths."""
    found = {"pods": 1000, **others, **({"cpu": cpu} if cpu else {}), **({"memory": memory} if memory else {})}
    return Needs(tuple(sorted(found.items())), cpu or 100, memory or 200 * 2**20 * 1000)


def room(cpu: int = 8000, memory: int = 16 * GI, pods: int = 110_000, **others: int) -> dict[str, int]:
    """Allocatable."""
    return {"cpu": cpu, "memory": memory, "pods": pods, **others}


def test_least_allocated_spreads_and_most_allocated_packs() -> None:
    """The default goes where more is free, the other where less is; ties go to the node that was named first."""
    for strategy, expected in ((Strategy.LEAST_ALLOCATED, [0, 1, 0, 1]), (Strategy.MOST_ALLOCATED, [0, 0, 0, 0])):
        scheduler, chosen = Scheduler([room(), room()], strategy), []
        for _ in range(4):
            number = scheduler.choose(ask(cpu=1000))
            assert number is not None
            scheduler.take(number, ask(cpu=1000))
            chosen.append(number)
        assert chosen == expected


def test_a_pod_goes_only_where_everything_fits() -> None:
    """CPU, memory, the number of pods, devices and huge pages all count; what is given back can be had again."""
    scheduler = Scheduler([room(cpu=1000), room(memory=GI), room(pods=1000), room(gpu=1000)])
    assert scheduler.choose(ask(gpu=1000)) == 3
    assert scheduler.choose(ask(gpu=2000)) is None
    assert scheduler.choose(ask(cpu=2000, memory=2 * GI)) == 2
    scheduler.take(2, ask(cpu=2000, memory=2 * GI))
    assert scheduler.choose(ask(cpu=2000, memory=2 * GI)) == 3
    assert scheduler.choose(ask(cpu=2000, memory=2 * GI), avoid={3}) is None
    assert scheduler.lacking(ask(cpu=9000)) == {"cpu": 4, "pods": 1}
    scheduler.give(2, ask(cpu=2000, memory=2 * GI))
    assert scheduler.choose(ask(cpu=2000, memory=2 * GI), avoid={3}) == 2
    assert scheduler.choose(ask(cpu=100), only=1) == 1
    assert scheduler.choose(ask(**{"hugepages-2Mi": 1000})) is None


def test_what_is_lacking_is_told_in_one_order() -> None:
    """By name, whichever node lacks what first: two reports of the same cluster can be compared."""
    needs, nodes = ask(cpu=2000, memory=2 * GI), [room(memory=GI), room(cpu=1000)]
    assert list(Scheduler(nodes).lacking(needs)) == list(Scheduler(nodes[::-1]).lacking(needs)) == ["cpu", "memory"]


def test_a_resource_that_no_node_counts_keeps_nobody_away() -> None:
    """Devices of plugins are not known here: that is told, and the pod is placed by what is known."""
    assert Scheduler([room()]).choose(ask(**{"example.com/fpga": 1000})) == 0


def test_allocatable_is_what_the_machine_has_less_what_is_reserved() -> None:
    """Offline CPUs and huge pages are no CPUs and no memory; devices that numalign hands out are resources."""
    machine = "2 sockets x 4 cores, 4G per node, 512 2Mi pages on 0, 2 nics on 1, offline 7"
    node = managers_of(machine, {"devices": [{"resource": "numalign.io/nic", "class": "02"}]})
    found = node_room(node, reserved_cpu=500, reserved_memory=2**30, most_pods=10)
    assert found == {
        "cpu": 6500, "memory": 6 * GI, "hugepages-2Mi": GI, "numalign.io/nic": 2000, "pods": 10_000,
    }  # fmt: skip


kinds = st.sampled_from([Needs((("cpu", cpu), ("pods", 1000)), cpu, 0) for cpu in (500, 1000, 2000, 3000)])
steps = st.lists(st.tuples(st.sampled_from(["bind", "bind", "bind", "end", "close"]), kinds, st.integers(0, 9)))


@given(st.sampled_from(Strategy), steps, st.sets(st.integers(0, 5), max_size=2))
def test_the_best_node_is_found_without_looking_at_all(
    strategy: Strategy, done: list[tuple[str, Needs, int]], barred: set[int]
) -> None:
    """Whatever came and went before, the choice is the first of the best of all nodes that fit."""
    scheduler = Scheduler([{"cpu": 1000 * cpus, "pods": 4000} for cpus in (4, 8, 8, 6, 4, 9)], strategy)
    bound = list[tuple[int, Needs]]()
    for what, asked, number in done:
        if what == "close":
            scheduler.close(number % 6)
        elif what == "end" and bound:
            scheduler.give(*bound.pop(number % len(bound)))
        avoid = {number}
        fit = scheduler.order(asked, frozenset(barred))
        best = [each for each in fit if each not in avoid]
        assert scheduler.choose(asked, avoid, barred=frozenset(barred)) == (best[0] if best else None)
        chosen = scheduler.choose(asked, barred=frozenset(barred))
        assert chosen == (fit[0] if fit else None)
        if what == "bind" and chosen is not None:
            scheduler.take(chosen, asked)
            bound.append((chosen, asked))


def test_a_strict_scheduler_knows_every_resource() -> None:
    """A resource that no node has keeps pods away from a real cluster; in a simulation of machines it is unknown."""
    asked = Needs((("example.com/fpga", 1000),), 0, 0)
    assert Scheduler([room(4000, 4000)]).choose(asked) == 0
    strict = Scheduler([room(4000, 4000)], strict=True)
    assert (strict.choose(asked), strict.lacking(asked)) == (None, {"example.com/fpga": 1})
