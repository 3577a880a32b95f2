"""S12: what was softened stays so, whatever its pod's annotations become and whoever starts the agent anew.

Finding 25.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from agent.core.request.annotations import PodSettings
from agent.model.rules import OnMisalignment
from tests.flow.tenants import Shared
from tests.flow.world import World, container, manifest
from tests.unit.reporter_cases import REFUSAL, Queue, body, known, reporter

ONE_NODE = "single-numa-node"
EIGHT = "2 sockets x 1 node x 4 cores x 1 thread"


def replica(name: str, created: int, **annotations: Any) -> dict[str, Any]:  # noqa: ANN401 - manifest's
    """A pod of one owner that does not fit on a node now and asks to be ended then."""
    wish: dict[str, Any] = {"policy": ONE_NODE, "on_misalignment": "fail", **annotations}
    pod = manifest(name, container(cpu=wish.pop("cpu", "4")), created=created, **wish)
    pod["metadata"]["ownerReferences"] = [{"controller": True, "uid": "rs"}]
    return pod


def carrying(node: Shared, body: dict[str, Any]) -> dict[str, Any]:
    """The pod as the API has it when what was told of it was written."""
    body = copy.deepcopy(body)
    last = next(each for each in reversed(node.queue.pod_reports) if each.uid == body["metadata"]["uid"])
    body["metadata"]["annotations"] |= {key: value for key, value in last.annotations.items() if value is not None}
    return body


def shared(folder: Path, clock: pytest.MonkeyPatch, **more: Any) -> Shared:  # noqa: ANN401 - World's
    """A node where one refusal of an owner an hour is enough, and what follows waits."""
    node = Shared(folder, clock, machine=EIGHT, **more)
    node.soften_to_wait()
    return node


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    """Another pod has the four CPUs of one NUMA node; the first replica was ended, the next ones are softened."""
    found = shared(tmp_path / "tree", monkeypatch)
    found.run(manifest("big", container(cpu="4"), created=1, policy=ONE_NODE))
    found.hear(replica("one", 2))
    assert found.ended == ["one"]
    found.engine.pods_gone(["one"])
    return found


def test_a_change_of_annotations_does_not_harden_it(node: Shared) -> None:
    """Softened to wait, it changes its scope, its policy, its wish to evict: it still waits, and nobody ends it."""
    node.hear(replica("two", 3))
    assert not node.starts("two")
    for change in ({"scope": "pod"}, {"policy": "restricted"}, {"on_misalignment": "evict"}):
        node.hear(replica("two", 3, **change))
        assert node.queue.actions == [("fail", "one")]
        assert node.engine.pods["two"].settings.on_misalignment is OnMisalignment.WAIT


def test_it_may_ask_for_something_milder_still(node: Shared) -> None:
    """Nothing is milder than to run."""
    node.hear(replica("two", 3))
    node.hear(replica("two", 3, on_misalignment="run"))
    assert node.starts("two")


def test_other_settings_do_not_harden_it(node: Shared) -> None:
    """The machine is read again: it still waits."""
    node.hear(replica("two", 3))
    node.engine.changed(node.node())
    assert node.engine.pods["two"].settings.on_misalignment is OnMisalignment.WAIT
    assert node.queue.actions == [("fail", "one")]


def test_after_an_hour_it_is_still_soft() -> None:
    """The count of refusals is an hour's, what was done to a pod is not; the engine hears of it each time."""
    now, queue = [0.0], Queue()
    talk = reporter(queue, OnMisalignment.FAIL, most_refusals=1, fallback=OnMisalignment.WAIT, clock=lambda: now[0])

    def refused(name: str) -> OnMisalignment | None:
        return talk.refused(known(talk, body(name, "rs")), REFUSAL, PodSettings())

    assert [refused("one"), refused("two")] == [None, OnMisalignment.WAIT]
    assert queue.actions == [("fail", "uid-one")]
    now[0] = 3700.0
    assert refused("two") is OnMisalignment.WAIT
    assert queue.actions == [("fail", "uid-one")]
    assert refused("three") is None
    assert queue.actions[1:] == [("fail", "uid-three")], "another pod of that owner, an hour later"


def test_the_engine_alone_keeps_it(tmp_path: Path) -> None:
    """Whoever softened it need not say so again: a change of the pod's annotations leaves the milder wish."""
    world = World(tmp_path, machine=EIGHT)
    world.engine.pods_listed({"p"})
    world.see(manifest("p", container(cpu="6"), policy=ONE_NODE, on_misalignment="fail"))
    world.engine.soften("p", OnMisalignment.WAIT)
    world.see(manifest("p", container(cpu="6"), policy=ONE_NODE, on_misalignment="fail", scope="pod"))
    assert world.engine.pods["p"].settings.on_misalignment is OnMisalignment.WAIT


def test_it_survives_a_restart_of_the_agent(node: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod's own annotation says that it was softened: the next agent does not end it."""
    node.hear(replica("two", 3))
    told = carrying(node, replica("two", 3))
    again = shared(tmp_path / "tree", monkeypatch, store=node.store, pods=[node.pods["big"]])
    again.hear(told)
    assert again.ended == []
    assert not again.starts("two")
    again.hear(carrying(again, replica("two", 3, scope="pod")))
    assert again.ended == []


def test_s12_refused_for_good_and_softened_to_wait_it_stands_in_line(node: Shared) -> None:
    """Not even an empty node has room for it, so it is refused for good; softened, it waits like others."""
    node.hear(replica("never", 3, cpu="6", on_misalignment="wait"))
    assert node.queue.actions == [("fail", "one")]
    known = node.engine.pods["never"]
    assert known.refusal is not None
    assert "final" not in known.refusal.facts
    assert not node.starts("never")
    assert node.queue.actions == [("fail", "one")]
