"""After the loss of the checkpoint nobody gets a device that a running pod holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.core.wanted import own_of
from agent.kube.story import ASSIGNMENT, CONDITION, admitted, word_of
from agent.model.podspec import pod_from
from tests.flow.world import World, container, manifest

MACHINE = "2 sockets x 1 node x 4 cores x 1 thread, nvme on 0, nvme on 1"
NVME = "numalign.io/nvme"
SETTINGS: dict[str, Any] = {"devices": [{"resource": NVME, "class": "0108", "namespaces": ["*"]}]}
FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"


def node(folder: Path, *bodies: Mapping[str, Any]) -> World:
    """A node on which these pods run, each admitted by an agent."""
    world = World(folder, machine=MACHINE, settings=SETTINGS)
    world.engine.pods_listed({body["metadata"]["uid"] for body in bodies})
    for body in bodies:
        world.run(body)
    return world


def told(world: World, body: dict[str, Any]) -> dict[str, Any]:
    """A pod as the API has it after its agent told it what it holds."""
    story = admitted(body["metadata"]["uid"], world.engine.ledger, world.machine)
    notes = {**body["metadata"]["annotations"], **{key: text for key, text in story.annotations.items() if text}}
    condition = {"type": CONDITION, "status": story.status, "reason": story.reason, "message": story.message}
    return {**body, "metadata": {**body["metadata"], "annotations": notes}, "status": {"conditions": [condition]}}


def lost(before: World, *bodies: Mapping[str, Any]) -> World:
    """The next agent, without a checkpoint; the API server has these pods."""
    words = {body["metadata"]["uid"]: word for body in bodies if (word := word_of(body))}
    after = World(before.tree.folder, machine=MACHINE, settings=SETTINGS, pods=before.pods.values(), words=words)
    after.engine.pods_seen(before.pods.values(), ran=after.recovered.running)
    after.engine.pods_listed(set(before.pods))
    return after


def disks(world: World, uid: str) -> tuple[str, ...]:
    """The disks that a pod holds."""
    held = world.engine.ledger.devices.held.get(uid, {})
    return tuple(number for by in held.values() for number in by.get(NVME, ()))


def disk(name: str, cpu: str = "2", *, created: int = 0, count: int = 1, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - notes
    """A pod that asks for disks."""
    return manifest(name, container(cpu=cpu), created=created, devices=f"{NVME}={count}", **more)


@pytest.mark.parametrize("cpu", ["2", "500m"])
def test_finding_03b_devices_are_rebuilt_from_the_pods_own_word(tmp_path: Path, cpu: str) -> None:
    """With exclusive CPUs or without: the pod keeps its disk, the next one gets the other, a third none."""
    db = disk("db", cpu)
    before = node(tmp_path, db)
    was = disks(before, "db")
    after = lost(before, told(before, db))
    assert (disks(after, "db"), after.effective("db")) == (was, before.effective("db"))
    after.see(disk("new", "1", created=2))
    assert sorted((*was, *disks(after, "new"))) == [FIRST, SECOND]
    after.see(disk("third", "1", created=3, on_misalignment="fail"))
    assert disks(after, "third") == ()


def broken(body: dict[str, Any], how: str) -> dict[str, Any]:
    """A pod whose word is no good."""
    notes = dict(body["metadata"]["annotations"])
    said = json.loads(notes[ASSIGNMENT])
    devices = said["containers"]["app"]["devices"]
    match how:
        case "no condition":
            return {**body, "status": {}}
        case "no word":
            del notes[ASSIGNMENT]
        case "no json":
            notes[ASSIGNMENT] = "{" * 5000
        case "another shape":
            notes[ASSIGNMENT] = json.dumps({"containers": {"app": {"devices": [FIRST]}}})
        case "a device that is not there":
            devices[NVME] = ["0000:ff:00.0"]
            notes[ASSIGNMENT] = json.dumps(said)
        case "more than it asks for":
            devices[NVME] = [FIRST, SECOND]
            notes[ASSIGNMENT] = json.dumps(said)
        case "none":
            devices.clear()
            notes[ASSIGNMENT] = json.dumps(said)
        case _:
            notes[ASSIGNMENT] = json.dumps({"refused": "TopologyAffinityError", "policy": "none", "scope": "pod"})
    return {**body, "metadata": {**body["metadata"], "annotations": notes}}


@pytest.mark.parametrize(
    "how",
    [
        "no condition", "no word", "no json", "another shape", "a device that is not there", "more than it asks for",
        "none", "refused, it says",
    ],
)  # fmt: skip
def test_finding_03b_nothing_is_handed_out_beside_a_pod_whose_devices_nobody_knows(tmp_path: Path, how: str) -> None:
    """It is told, the next pod is refused with the reason, over restarts; with the pod's end it is over."""
    db = disk("db")
    before = node(tmp_path, db)
    after = lost(before, broken(told(before, db), how))
    assert (disks(after, "db"), after.effective("db")) == ((), "1-2")
    assert [text for text in after.recovered.untold if "pod default/db: nobody knows which devices" in text]
    after.see(disk("new", "1", created=2, on_misalignment="fail"), manifest("plain", container(cpu="1"), created=3))
    assert (disks(after, "new"), after.holds("plain") != "") == ((), True)
    assert f"{NVME} not being handed out while pod default/db runs" in after.ears.refused_["new"].message
    again = World(tmp_path, machine=MACHINE, settings=SETTINGS, pods=after.pods.values(), store=after.store)
    again.engine.pods_listed({"db", "plain"})
    again.see(disk("db", note="changed"), disk("next", "1", created=4, on_misalignment="fail"))
    assert disks(again, "next") == ()
    again.end("db")
    again.engine.pods_gone(["db"])
    again.engine.retry(["next"])
    assert disks(again, "next") == (FIRST,)


def test_finding_03b_two_pods_that_claim_one_disk_are_both_not_believed(tmp_path: Path) -> None:
    """One of them is wrong, and nobody knows which: neither has it in the books, and nobody else gets any."""
    one, two = disk("one", "1"), disk("two", "1", created=1)
    before = node(tmp_path, one, two)
    liar = told(before, two)
    liar["metadata"]["annotations"][ASSIGNMENT] = told(before, one)["metadata"]["annotations"][ASSIGNMENT]
    after = lost(before, told(before, one), liar)
    assert (disks(after, "one"), disks(after, "two"), len(after.recovered.untold)) == ((), (), 2)
    after.see(disk("new", "1", created=2, on_misalignment="fail"))
    assert disks(after, "new") == ()


def test_finding_03b_a_refused_pod_holds_nothing_and_bars_nobody(tmp_path: Path) -> None:
    """It runs on the shared pool, its word and its condition say that it was refused."""
    big = disk("big", "2", count=3, policy="single-numa-node", on_misalignment="run")
    before = node(tmp_path, big)
    refusal = {"refused": "UnexpectedAdmissionError", "policy": "single-numa-node", "scope": "container", "why": ""}
    body = told(before, big)
    body["metadata"]["annotations"][ASSIGNMENT] = json.dumps(refusal)
    body["status"] = {"conditions": [{"type": CONDITION, "status": "False", "reason": "UnexpectedAdmissionError"}]}
    after = lost(before, body)
    assert after.recovered.untold == ()
    after.see(disk("new", "1", created=2))
    assert disks(after, "new") != ()


def test_finding_03b_confinements_and_policies_are_rebuilt(tmp_path: Path) -> None:
    """A confined pod stays on its node, accounted as before; the policy that was asked for is known again."""
    first = manifest("first", container(cpu="2500m"), align="numa")
    pinned = manifest("pinned", container(cpu="2"), created=1, policy="restricted")
    second = manifest("second", container(cpu="1500m"), created=2, align="numa")
    before = node(tmp_path, first, pinned, second)
    books = before.engine.ledger.cpus.confined
    assert {str(each.nodes) for each in books.values()} == {"0", "1"}
    where = {uid: before.effective(uid) for uid in before.pods}
    after = lost(before, told(before, first), told(before, pinned), told(before, second))
    assert after.engine.ledger.cpus.confined == books
    assert {uid: after.effective(uid) for uid in before.pods} == where
    record, was = after.engine.ledger.pods["pinned"], before.engine.ledger.pods["pinned"]
    assert (record.policy, record.scope, record.asked) == (was.policy, was.scope, was.asked)
    assert own_of(after.engine.ledger, "pinned") == own_of(before.engine.ledger, "pinned")
    assert after.ears.refused_ == {}
    after.check()


def test_finding_03b_the_policy_in_force_then_is_known_without_its_annotation(tmp_path: Path) -> None:
    """It came from the namespace, whose annotations could not be read at this start: the pod's own word has it."""
    asked = manifest("db", policy="single-numa-node")
    before = node(tmp_path, asked)
    body = told(before, asked)
    before.pods["db"] = pod_from(manifest("db"))
    after = lost(before, body)
    record = after.engine.ledger.pods["db"]
    assert (record.policy, record.asked, after.holds("db")) == ("single-numa-node", "single-numa-node", "1-2")
