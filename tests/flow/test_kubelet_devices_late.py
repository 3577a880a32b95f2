"""The kubelet's word on devices comes after the pod was decided: who moves, who does not, and who is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.admission.node import Node
from agent.core.request.annotations import PodSettings
from agent.host.standin import container_id
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.outcome import Outcome
from agent.model.pod import Pod
from tests.flow.gpus import GPU, asking, gpu, nodes, world
from tests.flow.world import MemoryStore, container, manifest


def test_late_word_moves_a_pod_that_does_not_run(tmp_path: Path) -> None:
    """The watch was quicker than the kubelet's allocation: decided without, decided once more with the device."""
    made = world(tmp_path)
    made.see(asking(policy="restricted"))
    assert nodes(made) == "0"
    made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    made.check()
    record = made.engine.ledger.pods["job"]
    assert (nodes(made), record.aligned, dict(record.why)) == ("1", {"app": True}, {})
    assert made.ears.admitted_ == ["job", "job"]


def test_late_word_moves_nothing_that_runs(tmp_path: Path) -> None:
    """A container runs already: it stays, and the pod's record says why it is not aligned."""
    made = world(tmp_path)
    made.run(asking(policy="restricted"))
    before = made.effective("job")
    made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    made.check()
    record = made.engine.ledger.pods["job"]
    assert (made.effective("job"), record.aligned) == (before, {"app": False})
    assert record.why["app"] == (
        "CPUs 1-2 lie on NUMA node 0, device g1 of vendor.com/gpu on NUMA node 1; "
        "the kubelet named the device when the container's place was decided already"
    )
    assert made.store.saved == made.engine.ledger


def test_a_pod_is_decided_once_more_only_once(tmp_path: Path) -> None:
    """Whatever the kubelet says next, a place is not changed a third time."""
    made = world(tmp_path)
    made.see(asking(gpus=2, policy="best-effort"))
    made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    assert nodes(made) == "1"
    made.engine.devices_reported("job", {"app": (gpu("g1", 1), gpu("g0", 0))})
    assert nodes(made) == "1"
    assert not made.engine.ledger.pods["job"].aligned["app"]
    assert made.ears.admitted_ == ["job", "job", "job"]


@pytest.mark.parametrize("fault", ["breaks a rule of the ledger", "raises"])
def test_a_second_decision_that_goes_wrong_was_none(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All stays as it was, that is told, and the next look decides the pod once more after all."""
    made, admit = world(tmp_path), Node.admit
    made.see(asking(policy="restricted"))

    def greedy(node: Node, ledger: Ledger, pod: Pod, settings: PodSettings) -> Outcome:
        if fault == "raises":
            raise ArithmeticError(fault)
        outcome = admit(node, ledger, pod, settings)
        reserved = {**outcome.ledger.cpus.assigned, pod.uid: {"app": CpuSet.of(0)}}
        return replace(outcome, ledger=replace(outcome.ledger, cpus=replace(outcome.ledger.cpus, assigned=reserved)))

    with monkeypatch.context() as wrong:
        wrong.setattr(Node, "admit", greedy)
        made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    made.check()
    assert (nodes(made), len(made.ears.problems)) == ("0", 1)
    assert ("ArithmeticError" in str(made.ears.problems)) == (fault == "raises")
    made.engine.reconcile()
    made.check()
    assert (nodes(made), made.engine.ledger.pods["job"].aligned) == ("1", {"app": True})


def test_late_word_can_refuse_a_pod_that_does_not_run(tmp_path: Path) -> None:
    """Under single-numa-node, with no room beside the device, the pod is refused before it starts."""
    made = world(tmp_path)
    made.see(manifest("first", container(cpu="4")))
    made.see(asking(policy="single-numa-node", on_misalignment="fail", created=1))
    assert nodes(made) == "0"
    made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    made.check()
    assert "job" not in made.engine.ledger.pods
    assert "g1 of vendor.com/gpu" in made.ears.refused_["job"].message
    assert made.engine.snapshot.pods["job"].refusal is not None


def test_a_device_goes_to_the_next_pod_when_the_kubelet_says_so(tmp_path: Path) -> None:
    """The kubelet frees a device a moment before the cgroup is gone; two pods never hold it here."""
    made = world(tmp_path)
    made.engine.devices_reported("old", {"app": (gpu("g1", 1),)})
    made.run(asking("old"))
    made.engine.pods_gone(["old"])
    made.engine.devices_reported("new", {"app": (gpu("g1", 1),)})
    made.see(asking("new", created=1))
    made.check()
    assert {uid: dict(held) for uid, held in made.engine.ledger.devices.held.items()} == {
        "new": {"app": {GPU: ("g1",)}}
    }


def test_a_full_disk_leaves_a_late_pod_as_it_was(tmp_path: Path) -> None:
    """The new place cannot be saved: the old one stands, in the ledger and in what readers see."""
    store = MemoryStore()
    made = world(tmp_path, store=store)
    made.see(asking(policy="restricted"))
    before = made.engine.ledger
    store.full = "no space left"
    made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    assert made.engine.ledger == made.engine.snapshot.ledger == before
    assert made.engine.snapshot.pods["job"].refusal is None


def test_readers_see_decisions_before_slow_writes(tmp_path: Path) -> None:
    """Nobody waits for a write that hangs (S8, S9): the snapshot has the new grant while a cgroup is written."""
    made = world(tmp_path)
    made.run(manifest("web", container(cpu="", memory="")))
    seen: list[str] = []

    def look(step: str) -> None:
        if step.startswith("write"):
            seen.append(str(made.engine.snapshot.ledger.grant("job", "app").cpus))

    made.engine._enforcer._steps = look
    made.see(manifest("job", created=1))
    assert seen
    assert set(seen) == {made.holds("job")}


def test_names_of_removed_containers_are_dropped(tmp_path: Path) -> None:
    """A container that is gone does not count as one that runs."""
    made = world(tmp_path)
    made.run(asking(policy="restricted"))
    number = container_id("job", "app")
    made.tree.remove_container("job", number)
    made.engine.container_gone(number)
    made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    assert nodes(made) == "1"


def test_a_pod_carries_no_word_of_devices_that_only_the_kubelet_knows(tmp_path: Path) -> None:
    """The word is for a start without a checkpoint, where the kubelet tells of its own devices again."""
    made = world(tmp_path, gpu("g0", 0))
    made.engine.devices_reported("job", {"app": (gpu("g0", 0),)})
    made.run(asking(policy="restricted"))
    assert made.engine.ledger.devices.held["job"] == {"app": {GPU: ("g0",)}}
    assert "devices" not in made.report("job").message


def test_late_word_on_a_pod_that_is_left_alone_is_none(tmp_path: Path) -> None:
    """Nothing is booked for it and nothing told of it, whatever the kubelet gave it."""
    made = world(tmp_path, exempt=lambda _pod: "namespace kube-system is left alone")
    made.see(asking(policy="restricted"))
    ledger, words = made.engine.ledger, list(made.ears.words)
    made.engine.devices_reported("job", {"app": (gpu("g1", 1),)})
    assert (made.engine.ledger, made.ears.words) == (ledger, words)
