"""Devices that numalign hands out itself go to whom settings or scheduler name; an IOMMU group to one pod.

Finding 17.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.app.cluster.topology_loop import devices_per_node
from agent.app.setup import made
from agent.app.statedir import node_allocatable as keeping
from agent.app.statedir import state_file
from agent.app.statedir.node_allocatable import NodeAllocatable
from agent.core.devices.kubelet import Offered
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import SettingsError
from agent.kube.nodes import node_facts
from agent.model.idset import NodeSet
from agent.model.machine import Machine
from agent.settings import parse, rules_of
from tests.flow.world import MemoryStore, World, container, manifest

NVME = "numalign.io/nvme"
TWO = "2 sockets x 1 node x 4 cores x 1 thread, nvme on 0, nvme on 1"


def settings(*namespaces: str, resource: str = NVME) -> dict[str, Any]:
    """Devices of class NVMe, for these namespaces."""
    return {"devices": [{"resource": resource, "class": "0108", "namespaces": list(namespaces)}]}


class Disks(World):
    """A node with NVMe drives that a Node object may advertise; groups: the IOMMU group of each, in order."""

    def __init__(
        self, folder: Path, *namespaces: str, groups: tuple[int | None, ...] = (), machine: str = TWO,
        kept: NodeAllocatable | None = None, store: MemoryStore | None = None, pods: Any = (),  # noqa: ANN401 - World's
    ) -> None:  # fmt: skip
        self.groups, self.advertising = groups, kept
        super().__init__(folder, machine=machine, settings=settings(*namespaces), store=store, pods=pods)
        self.engine.pods_listed(set(self.pods))

    def node(self, machine: Machine | None = None, **more: Any) -> Any:  # noqa: ANN401 - World's
        found = machine or self.machine
        pci = (replace(each, iommu_group=group) for each, group in zip(found.devices, self.groups, strict=False))
        found = self.machine = replace(found, devices=tuple(pci) if self.groups else found.devices)
        return made(parse({**self.settings, **more})[0], found, kept=self.advertising).node

    def disks(self, uid: str) -> tuple[str, ...]:
        """What a pod holds."""
        return tuple(each for ids in self.engine.ledger.grant(uid, "app").devices.values() for each in ids)


def noted(name: str, count: int = 1, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - manifest's
    """A BestEffort pod that asks by annotation."""
    return manifest(name, {"name": "app", "image": "x"}, devices=f"{NVME}={count}", **more)


def limited(name: str, count: int = 1, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - manifest's
    """A pod that asks in its limits."""
    app = container(cpu="1")
    app["resources"]["limits"][NVME] = str(count)
    return manifest(name, app, **more)


def problems(of: World, uid: str) -> str:
    """What is told of a pod's wishes."""
    return " ".join(str(each) for each in of.engine.pods[uid].settings.problems)


def test_by_default_nobody_takes_a_device_by_annotation(tmp_path: Path) -> None:
    """A tenant's BestEffort pod gets none and is told what to set; who asks as the scheduler sees it gets his."""
    node = Disks(tmp_path, kept=NodeAllocatable(known=True, resources=frozenset({NVME})))
    node.see(noted("evil", 2, namespace="tenant"))
    assert node.disks("evil") == ()
    assert "evil" not in node.ears.refused_
    assert "pods of namespace tenant may not take it without the scheduler" in problems(node, "evil")
    assert f"devices[].namespaces of {NVME}" in problems(node, "evil")
    node.see(limited("db", namespace="prod", created=1))
    assert node.disks("db") == ("0000:01:00.0",)
    assert problems(node, "db") == ""


def test_namespaces_that_are_named_may(tmp_path: Path) -> None:
    """A list by resource; "*" is everybody."""
    node = Disks(tmp_path / "a", "storage")
    node.see(noted("good", namespace="storage"), noted("evil", namespace="tenant", created=1))
    assert (node.disks("good"), node.disks("evil")) == (("0000:01:00.0",), ())
    node = Disks(tmp_path / "b", "*")
    node.see(noted("any", namespace="tenant"))
    assert node.disks("any") == ("0000:01:00.0",)


def test_a_limit_that_nobody_counted_is_as_an_annotation(tmp_path: Path) -> None:
    """A pod that names its node passes the scheduler, and the kubelet lets in what the Node does not advertise."""
    node = Disks(tmp_path / "a", "storage", kept=NodeAllocatable(known=True))
    node.see(limited("evil", namespace="tenant"), limited("good", namespace="storage", created=1))
    assert (node.disks("evil"), node.disks("good")) == ((), ("0000:01:00.0",))
    assert "this Node does not advertise" in problems(node, "evil")
    alone = Disks(tmp_path / "b")
    alone.see(limited("own", namespace="any"))
    assert alone.disks("own") == ("0000:01:00.0",), "where there is no Node, a manifest is its owner's word"


def test_what_the_node_advertises_is_remembered(tmp_path: Path) -> None:
    """Read from the Node's allocatable, kept beside the ledger for a start without the API; an older file loads."""
    facts = node_facts({"status": {"allocatable": {"cpu": "4", NVME: "2"}, "capacity": {"cpu": "4"}}})
    assert facts.resources == {NVME}
    keeping.save(tmp_path, NodeAllocatable(1, 2, known=True, resources=facts.resources))
    assert keeping.load(tmp_path).resources == {NVME}
    (tmp_path / state_file.FILE).unlink()
    (tmp_path / state_file.EARLIER[0]).write_text('{"cpuMilli": 1, "memoryBytes": 2, "observeOnly": ""}', "utf-8")
    assert keeping.load(tmp_path) == NodeAllocatable(1, 2, known=True)


def test_after_an_upgrade_a_running_pod_keeps_its_device(tmp_path: Path) -> None:
    """What an earlier version granted by annotation stays, through restarts, and nobody else gets it."""
    old = Disks(tmp_path, "*")
    old.run(noted("db", namespace="tenant"))
    new = Disks(tmp_path, store=old.store, pods=old.pods.values())
    new.see(noted("db", namespace="tenant"), ran=["db"])
    assert new.disks("db") == ("0000:01:00.0",)
    assert "may not take it" in problems(new, "db")
    new.see(limited("next", 2, namespace="prod", policy="single-numa-node", created=1))
    assert new.disks("next") == ()


def test_two_lists_for_one_resource_are_an_error() -> None:
    """Which of them would hold for a device is nobody's guess."""
    two = [*settings("a")["devices"], {"resource": NVME, "class": "02", "namespaces": ["b"]}]
    with pytest.raises(SettingsError, match="a resource has one list"):
        rules_of(parse({"devices": two})[0], parse_synthetic(TWO))


FOUR = "1 socket x 1 node x 8 cores x 1 thread, nvme on 0, nvme on 0, nvme on 0, nvme on 0"


def test_an_iommu_group_goes_to_one_pod(tmp_path: Path) -> None:
    """Two functions of one group never go to two pods; a second container of the pod may have the other."""
    node = Disks(tmp_path, "*", groups=(7, 7))
    node.see(
        limited("a", policy="best-effort"), limited("b", created=1, policy="best-effort", on_misalignment="fail")
    )
    assert len(node.disks("a")) == 1
    assert (node.disks("b"), "b" in node.ears.refused_) == ((), True)
    assert [each[NVME][1] for each in devices_per_node(node.engine.ledger, node.engine.node.inventory).values()] == [
        0, 0,
    ]  # fmt: skip
    node.start("a")
    node.end("a")
    node.engine.pods_gone(["a"])
    both = limited("c", created=2)
    both["spec"]["containers"].append({**both["spec"]["containers"][0], "name": "side"})
    node.see(both)
    held = node.engine.ledger.devices.held["c"]
    assert {each for own in held.values() for ids in own.values() for each in ids} == {"0000:01:00.0", "0000:02:00.0"}


def test_as_few_groups_as_can_be_are_opened(tmp_path: Path) -> None:
    """One drive comes out of the smallest group, two out of a group of two, so that others find whole groups left."""
    node = Disks(tmp_path / "a", "*", groups=(1, 1, 1, 2), machine=FOUR)
    node.see(limited("one"))
    assert node.disks("one") == ("0000:04:00.0",)
    node = Disks(tmp_path / "b", "*", groups=(1, 2, 2, 3), machine=FOUR)
    node.see(limited("two", 2))
    assert node.disks("two") == ("0000:02:00.0", "0000:03:00.0")


def test_a_plugins_group_is_the_plugins(tmp_path: Path) -> None:
    """A function beside one that a device plugin hands out is never handed out here."""
    node = Disks(tmp_path, "*", groups=(7, 7))
    node.engine.devices_offered([Offered("vendor.com/disk", "0000:01:00.0", NodeSet.of(0))])
    node.see(limited("a", on_misalignment="fail"))
    assert (node.disks("a"), "a" in node.ears.refused_) == ((), True)


def test_an_old_ledger_that_shares_a_group_loads_and_is_told(tmp_path: Path) -> None:
    """Granted by a version that did not look at groups: both pods keep their drives, and people are told."""
    old = Disks(tmp_path, "*")
    old.run(limited("a"))
    old.run(limited("b", created=1))
    before = {uid: old.disks(uid) for uid in ("a", "b")}
    new = Disks(tmp_path, "*", groups=(7, 7), store=old.store, pods=old.pods.values())
    assert {uid: new.disks(uid) for uid in ("a", "b")} == before
    assert [len(each) for each in before.values()] == [1, 1]
    (told,) = [text for what, text in new.ears.problems if what == "devices"]
    assert "default/a and default/b hold functions of one IOMMU group, 7" in told
    new.see(limited("c", created=2, on_misalignment="fail"))
    assert new.disks("c") == ()
