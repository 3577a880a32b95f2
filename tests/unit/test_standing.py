"""What a pod holds, in which state, and why: one answer for page, tables, gauges and simulations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.app.page.values import WORDS, PageInput, pods_value
from agent.app.service.gauges import shown
from agent.core.admission.waiting import FINAL
from agent.node.standing import GONE, UNDECIDED, PodState, standing_of
from agent.node.state import State
from tests.flow.world import World, container, manifest

STATES = {
    "aligned": (PodState.ALIGNED, "aligned"), "apart": (PodState.NOT_ALIGNED, "not aligned"),
    "small": (PodState.SHARED, "shared"), "kube": (PodState.LEFT_ALONE, "left alone"),
    "runs": (PodState.OVERRULED, "shared"), "waits": (PodState.WAITING, "waiting"),
    "fails": (PodState.REFUSED, "refused"), "gone": (PodState.ENDED, "ended"),
}  # fmt: skip
"""Pod -> its state, and the page's documented word for it."""


def node(tmp_path: Path) -> World:
    """A node that has a pod in each state."""
    world = World(tmp_path, exempt=lambda pod: "its namespace is excluded" if pod.name == "kube" else "")
    world.see(
        manifest("aligned", container(cpu="2"), created=1), manifest("gone", container(cpu="3"), created=2),
        manifest("apart", container(cpu="2"), policy="best-effort", created=3),
        manifest("small", container(cpu="500m"), created=4), manifest("kube", container(cpu="2"), created=5),
    )  # fmt: skip
    for number, (name, wish) in enumerate((("runs", "run"), ("waits", "wait"), ("fails", "fail")), 6):
        world.see(manifest(name, container(cpu="3"), policy="single-numa-node", on_misalignment=wish, created=number))
    return world


def with_an_ended_pod(state: State) -> State:
    """The state in which the pod `gone` has ended, and holds its CPUs still."""
    return state.with_pods(replace(state.pods["gone"], ended=True))


def test_each_state_has_one_word_on_every_surface(tmp_path: Path) -> None:
    """The page's word follows from the state; the sentence is the same on both."""
    state = with_an_ended_pod(node(tmp_path).engine.snapshot)
    found = {uid: standing_of(state, uid) for uid in STATES}
    assert {uid: stand.state for uid, stand in found.items() if stand} == {
        uid: each for uid, (each, _) in STATES.items()
    }
    page = {each["uid"]: each for each in pods_value(PageInput(state))}
    assert {uid: page[uid]["state"] for uid in STATES} == {uid: word for uid, (_, word) in STATES.items()}
    for uid, stand in found.items():
        assert stand is not None
        assert page[uid]["why"].endswith(stand.why)
    assert (page["gone"]["why"], page["kube"]["why"]) == (GONE, "its namespace is excluded")
    assert standing_of(state, "nobody") is None
    assert set(WORDS) == set(PodState)


def test_the_gauges_count_the_same_states(tmp_path: Path) -> None:
    """A pod that is refused for good waits no more."""
    world = node(tmp_path)
    counted = shown(world.engine, None)
    assert counted["pods"] == {"pinned": 3, "shared": 1, "refused": 3, "exempt": 1, "ended": 0}
    assert counted["waiting_pods"] == 1
    known = world.engine.snapshot.pods["waits"]
    assert known.refusal is not None
    final = replace(known, refusal=replace(known.refusal, facts={**known.refusal.facts, FINAL: "overdue"}))
    stand = standing_of(world.engine.snapshot.with_pods(final), "waits")
    assert stand is not None
    assert stand.state is PodState.REFUSED


def test_a_pod_that_nothing_accepted_yet_is_undecided(tmp_path: Path) -> None:
    """Its spec alone names the node."""
    world = World(tmp_path)
    world.see(manifest("p", container(cpu="2")))
    state = world.engine.snapshot
    named = replace(state.pods["p"], pod=replace(state.pods["p"].pod, stage=type(state.pods["p"].pod.stage).NAMED))
    stand = standing_of(state.with_pods(named), "p")
    assert stand is not None
    assert (stand.state, stand.why) == (PodState.UNDECIDED, UNDECIDED)


@pytest.mark.parametrize(("uid", "cpus", "nodes"), [("aligned", "1-2", "0"), ("small", "None", "")])
def test_the_standing_says_what_is_held_and_where(tmp_path: Path, uid: str, cpus: str, nodes: str) -> None:
    """The same holdings as those of an explanation."""
    stand = standing_of(node(tmp_path).engine.snapshot, uid)
    assert stand is not None
    (got,) = stand.holdings
    assert (str(got.cpus), str(got.nodes)) == (cpus, nodes)
