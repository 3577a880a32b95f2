"""While the ledger cannot be saved: a pod without CPUs of its own runs, another one is held, and none is ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.core.devices.kubelet import Offered
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.kube.objects.pod_objects import seen
from agent.model.idset import CpuSet, NodeSet
from agent.model.rules import OnMisalignment
from tests.flow.world import World
from tests.unit.reporter_cases import Queue, reporter
from tests.world.manifests import container, manifest

FULL = "No space left on device"
GPU = "example.com/gpu"
WISHES = tuple(OnMisalignment)


class Site:
    """A node whose refusals are carried out, with the answers that the runtime gets."""

    def __init__(self, folder: Path, wish: OnMisalignment) -> None:
        self.queue = Queue()
        self.reporter = reporter(self.queue, wish)
        self.world = World(folder, settings={"onMisalignment": wish.value}, reporters=[self.reporter])
        self.world.engine.pods_listed(set())
        offered = (Offered(GPU, "g0", NodeSet.of(1)),)
        self.world.engine.devices_offered(offered)
        self.world.engine.devices_reported("gpu", {"app": offered})
        self.answers = EngineDecisions(self.world.engine, lambda _address: Usable((), ""))

    def full(self, *, known: bool = True) -> None:
        """Fill the disk, which an attempt to save found already, or will."""
        self.world.store.full = FULL
        if known:
            self.world.engine._keeper.save()

    def mended(self) -> None:
        """Make room on the disk, and let the agent look at all."""
        self.world.store.full = ""
        self.world.engine.reconcile()

    def comes(self, body: Mapping[str, Any]) -> None:
        """List a pod."""
        self.reporter.pod_seen(body, seen(body))
        self.world.see(body)

    def held(self, uid: str) -> bool:
        """Say whether the runtime does not start it."""
        return bool(self.answers.verdict(uid))


SHARERS: dict[str, dict[str, Any]] = {
    "half": manifest("half", container(cpu="500m")),
    "besteffort": manifest("besteffort", {"name": "app", "image": "example.com/x"}, policy="none"),
    "burstable": manifest("burstable", container(memory=""), exclusive="none"),
    "unpinned": manifest("unpinned", container(cpu="2"), pin="false"),
    "confined": manifest("confined", container(cpu="500m"), align="numa"),
    "gpu": manifest("gpu", {"name": "app", "resources": {"limits": {"cpu": "500m", "memory": "64Mi", GPU: 1}}}),
}
"""Pods that need no CPUs or devices of numalign's."""


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("name", SHARERS)
@pytest.mark.parametrize("known", [False, True], ids=["found full", "known full"])
def test_a_pod_that_needs_no_cpus_of_its_own_runs(
    tmp_path: Path, name: str, wish: OnMisalignment, *, known: bool
) -> None:
    """It is not refused, held or ended, whatever is done with refused pods; the next save has it in the ledger."""
    site = Site(tmp_path, wish)
    site.full(known=known)
    site.comes(SHARERS[name])
    assert site.world.engine.snapshot.unwritable
    assert (site.world.engine.pods[name].refusal, site.held(name), site.queue.actions) == (None, False, [])
    site.mended()
    assert name in site.world.engine.ledger.pods
    assert (site.world.ears.refused_, site.queue.actions) == ({}, [])


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("known", [False, True], ids=["found full", "known full"])
def test_a_pod_that_wants_cpus_is_held_and_not_ended(tmp_path: Path, wish: OnMisalignment, *, known: bool) -> None:
    """Under wait and fail it does not start, under none of them it is ended; it has its CPUs with the next save."""
    site = Site(tmp_path, wish)
    site.full(known=known)
    site.comes(manifest("db"))
    assert site.world.ears.refused_["db"].message.endswith(FULL)
    assert site.held("db") == (wish in {OnMisalignment.WAIT, OnMisalignment.FAIL})
    assert site.queue.actions == []
    site.mended()
    assert (len(CpuSet.parse(site.world.holds("db"))), site.held("db"), site.queue.actions) == (2, False, [])


@pytest.mark.parametrize("wish", WISHES)
def test_room_whose_release_cannot_be_saved_ends_no_pod(tmp_path: Path, wish: OnMisalignment) -> None:
    """A pod has left, and the ledger has it still: the next one is held until that is saved, and gets in then."""
    site = Site(tmp_path, wish)
    site.comes(manifest("old", container(cpu="6")))
    site.full()
    site.world.engine.pods_gone(["old"])
    assert "old" in site.world.engine.ledger.pods
    site.comes(manifest("new", container(cpu="6"), created=1))
    assert site.world.ears.refused_["new"].message.endswith(FULL)
    assert site.queue.actions == []
    site.mended()
    assert (len(CpuSet.parse(site.world.holds("new"))), site.queue.actions) == (6, [])


def test_a_refusal_that_is_none_of_the_disk_is_carried_out_when_it_is_known(tmp_path: Path) -> None:
    """Under fail a pod that does not fit is held while the disk is full, and ended as soon as it is not."""
    site = Site(tmp_path, OnMisalignment.FAIL)
    site.comes(manifest("old", container(cpu="6")))
    site.full()
    site.comes(manifest("new", container(cpu="6"), created=1))
    assert (site.held("new"), site.queue.actions) == (True, [])
    site.mended()
    assert site.queue.actions == [("fail", "new")]
