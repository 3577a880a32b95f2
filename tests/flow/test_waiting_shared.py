"""Places in the line of waiting pods are shared by namespaces; one tenant's wait holds back no other's for long.

Finding 15.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.flow.tenants import Shared
from tests.flow.world import container, manifest

EIGHT = "2 sockets x 1 node x 4 cores x 1 thread"
ONE_NODE = "single-numa-node"


def wants(name: str, namespace: str, cpu: str = "4", created: int = 2, policy: str = ONE_NODE) -> dict[str, Any]:
    """A pod that asks for CPUs and waits for them."""
    app = container(cpu=cpu)
    return manifest(name, app, created=created, namespace=namespace, policy=policy, on_misalignment="wait")


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    """A node of seven CPUs to give; tenant b runs on the four of one NUMA node. Six pods may wait."""
    node = Shared(tmp_path / "tree", monkeypatch, machine=EIGHT)
    node.run(manifest("b-runs", container(cpu="4"), created=1, namespace="b"))
    return node


def test_one_tenants_crowd_takes_nobody_elses_place(full: Shared) -> None:
    """Six pods of one namespace wait; another tenant's pod gets a place, and the latest of the six is refused."""
    full.hear(*(wants(f"evil{n}", "evil", created=2 + n) for n in range(6)))
    assert full.ended == []
    full.hear(wants("victim", "c", created=9))
    assert full.ended == ["evil5"]
    assert "it does not wait: 6 pods may" in full.said("evil5")
    assert not full.starts("victim")
    full.hear(wants("victim2", "c", created=10), wants("victim3", "c", created=11))
    assert full.ended == ["evil5", "evil4", "evil3"]
    full.gone("b-runs")
    assert full.starts("evil0"), "who came first is first: a share is no privilege"
    full.start("evil0")
    full.gone("evil0")
    assert full.starts("evil1")


def test_who_has_as_many_places_as_any_yields_its_own_latest(full: Shared) -> None:
    """Nobody yields to a namespace with as many places; with as many namespaces as places, the newest waits not."""
    full.hear(*(wants(f"{tenant}{n}", tenant, created=2 + n) for n in range(2) for tenant in ("x", "y", "z")))
    full.hear(wants("x2", "x", created=8))
    assert full.ended == ["x2"]
    full.hear(wants("w0", "w", created=9))
    assert full.ended == ["x2", "z1"], "of equal namespaces the one whose latest came last"
    full.hear(wants("v0", "v", created=10), wants("u0", "u", created=11), wants("t0", "t", created=12))
    assert full.ended == ["x2", "z1", "y1", "x1", "t0"]


def test_refusals_that_soften_to_waiting_take_no_place_beyond_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that would wait instead of failing (S12) runs when nobody more may wait: sandboxes stay few (S11)."""
    node = Shared(tmp_path / "tree", monkeypatch, {"waiting": {"sandboxesPerMinute": 5}}, machine=EIGHT)
    node.run(manifest("b-runs", container(cpu="4"), created=1, namespace="b"))
    node.soften_to_wait()
    app, names = container(cpu="4"), ("p0", "p1", "p2")
    pods = [manifest(name, app, created=2, policy=ONE_NODE, on_misalignment="fail") for name in names]
    for each in pods:
        each["metadata"]["ownerReferences"] = [{"controller": True, "uid": "one-job"}]
    node.hear(*pods)
    assert [node.starts(name) for name in names] == [False, False, True]
    assert node.ended == ["p0"]


def test_a_wait_for_the_whole_node_holds_back_others_for_a_minute_only(full: Shared) -> None:
    """A pod that fits is not stopped for ten minutes by another tenant's pod that asks for all there is."""
    full.hear(wants("evil", "evil", cpu="7", policy="none"))
    full.hear(wants("victim", "c", cpu="2", created=3), wants("sibling", "evil", cpu="1", created=4))
    assert "delay" in full.said("victim")
    full.wait(59)
    assert not full.starts("victim"), "a young wait is not delayed by backfill (S11)"
    full.wait(2)
    assert full.starts("victim")
    assert full.holds("victim")
    assert not full.starts("sibling"), "its own namespace's it holds back for as long as it waits"


def test_a_young_wait_behind_an_old_one_still_holds_back(full: Shared) -> None:
    """Once the first of the line holds nobody back any more, the next one does, for its own minute."""
    full.hear(wants("old", "x", cpu="7", policy="none"))
    full.wait(61)
    full.hear(wants("young", "y", cpu="7", created=3, policy="none"), wants("small", "z", cpu="1", created=4))
    assert not full.starts("small")
    full.wait(61)
    assert full.starts("small")


def test_a_chain_of_young_waits_holds_back_each_victim_for_a_minute_only(full: Shared) -> None:
    """A tenant replaces its waiting pods, so that one of them is always young, and others' pods come all the time.

    Who comes later stands behind: each victim waits for holdBackOthers, from when it came, and no longer.
    """
    since, waited = dict[str, int](), dict[str, int]()
    for clock in range(0, 200, 5):
        if clock % 20 == 0:
            full.hear(wants(f"evil{clock}", "evil", cpu="7", created=2 + clock, policy="none"))
            full.engine.pods_gone([f"evil{clock - 80}"])
        if clock % 30 == 0:
            name = f"victim{clock}"
            since[name] = clock
            full.hear(wants(name, f"tenant{clock}", cpu="1", created=3 + clock, policy="none"))
        for name in [name for name in since if name not in waited and full.starts(name)]:
            waited[name] = clock - since[name]
            full.start(name)
            full.gone(name)
        full.wait(5)
    assert set(waited) == {name for name, came in since.items() if came < 200 - 60 - 5}
    assert min(waited.values()) > 0
    assert max(waited.values()) <= 60


def asks(name: str, namespace: str, created: int, cpu: str = "4", wish: str = "wait", **more: str) -> dict[str, Any]:
    """A pod that asks for CPUs of one node; `more` are further annotations."""
    body = manifest(
        name, container(cpu=cpu), created=created, namespace=namespace, policy="single-numa-node",
        on_misalignment=wish,
    )  # fmt: skip
    body["metadata"]["annotations"] |= {f"numalign.io/{key}": value for key, value in more.items()}
    return body


@pytest.fixture
def crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    """Six pods wait. A third of x came before most of them, and was refused for good; x has one place now."""
    node = Shared(tmp_path / "tree", monkeypatch, machine=EIGHT)
    node.run(manifest("b-runs", container(cpu="4"), created=1, namespace="b"))
    node.hear(asks("x0", "x", 2), asks("x1", "x", 3), asks("x2", "x", 4))
    node.hear(asks("y0", "y", 5), asks("y1", "y", 6), asks("z0", "z", 7), asks("z1", "z", 8))
    assert node.ended == ["x2"]
    node.engine.pods_gone(["x1"])
    node.hear(asks("w0", "w", 9))
    assert node.ended == ["x2"]
    return node


@pytest.mark.parametrize(
    "change", [{"anything": "1"}, {"scope": "pod"}, {"wish": "fail"}, {"wish": "evict"}], ids=str
)
def test_an_annotation_brings_nobody_back_into_the_line(crowd: Shared, change: dict[str, str]) -> None:
    """Changed by its owner, and changed back: refused as before, and nobody who waits loses his place."""
    crowd.hear(asks("x2", "x", 4, **change), asks("x2", "x", 4))
    assert set(crowd.ended) == {"x2"}
    crowd.gone("b-runs")
    assert not crowd.starts("x2")
    assert crowd.starts("x0")


def test_who_waited_too_long_does_not_wait_again(crowd: Shared) -> None:
    """After waiting.limit an annotation makes no new wait either."""
    crowd.wait(601)
    late = set(crowd.ended)
    assert "z1" in late
    crowd.hear(asks("z1", "z", 8, anything="1"))
    crowd.gone("b-runs")
    assert not crowd.starts("z1")


def test_a_pod_that_asks_for_less_is_another_matter(crowd: Shared) -> None:
    """Decided anew when its containers changed, as is one that would rather run on the shared pool."""
    crowd.hear(asks("x2", "x", 4, cpu="1", wish="run"))
    assert crowd.starts("x2")
