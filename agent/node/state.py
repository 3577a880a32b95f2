"""All that the engine knows, as one value. A transition makes the next one (`agent.node.transitions`).

A state counts from the moment that it is saved; a state that fails its check or its save never counts. Readers take
the state that counts without a lock: the answers to the runtime, which never waits (safety rule S9), the page and
metrics. So a write that hangs delays no reader (S8).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from agent.core.admission.node import Node
from agent.core.cgroups.cuts import Cuts
from agent.core.cgroups.enforced import Unenforced
from agent.core.cpus.pools import granted
from agent.core.devices.kubelet import Given
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Grant, Ledger
from agent.node.device_tracker import DeviceTracker
from agent.node.retries import Looks, Retries, Truce
from agent.node.tracked_pod import SWITCHES, Switches, TrackedPod, with_unsaved_changes
from agent.node.unenforced_pods import UnenforcedPods

MOST_GONE = 1000
"""Pods that are gone and still known as such, at most: ten times a node's pods. News of them come minutes late."""


@dataclass(frozen=True)
class State:
    """The node as the engine has it.

    Attributes:
        ledger: the grants.
        node: the managers, with the devices that the kubelet reports.
        device_tracker: the devices that the kubelet and claims reported.
        pods: every known pod, by uid; every holder of a grant is among them.
        switches: the engine's own settings.
        saved: the grants as the store has them; None where it has none. After a change of machine or settings,
            `ledger` has the new grants even while they cannot be saved.
        names_saved: the containers' names that were saved with them.
        cut_saved: the sets of applications' own cgroups before they were cut, as saved with them.
        unwritable: why the ledger cannot be saved; "" while it can. Until then new grants are refused.
        starts: containers that started while the store was unwritable, so that their init containers' grants stay.
        pending: machine and settings that could not be followed yet.
        retries: pods that were set aside, and when each is tried again.
        looks: when refused pods were decided once more (`agent.node.second_look`).
        complete: the first ledger lacks no pod.
        listed: a complete list of pods was read.
        all_named: the API server or the runtime has named every container since this agent began.
        yields: why nothing is written though the settings allow it: source -> sentence (safety rule S10: never two
            writers).
        truce: how long a writer that fights is left alone.
        unenforced_pods: pods whose cgroups differ from the ledger, as reported.
        settled: every grant was in force at the end of the last look.
        cleared: CPUs of a container that their earlier holders have left: uid -> container -> CPUs. As of the last
            write of CPUs, without what was given up since.
        staying: CPUs that containers gave up and may still run on: by the last write of CPUs, or given up since.
        broken: why the cgroups cannot be read; "" while they can.
        fault: why the last look went wrong; "" if it went well.
        faults: pods whose sets could not be worked out at the last look: uid -> why.
        unbound: containers whose memory stays unbound: id -> the nodes where they have pages (safety.md S4).
        gone: uids of the pods that went last; only the watch may bring one back.
        repair_due: when a repair that waits may be made, by the last look, on the engine's clock.
    """

    ledger: Ledger
    node: Node
    device_tracker: DeviceTracker
    pods: Mapping[str, TrackedPod] = field(default_factory=dict)
    switches: Switches = SWITCHES
    saved: Ledger | None = None
    names_saved: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    cut_saved: Cuts = field(default_factory=dict)
    unwritable: str = ""
    starts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    pending: tuple[Node, Switches | None] | None = None
    retries: Retries = field(default_factory=Retries)
    looks: Looks = field(default_factory=Looks)
    complete: bool = True
    listed: bool = False
    all_named: bool = False
    yields: Mapping[str, str] = field(default_factory=dict)
    truce: Truce = field(default_factory=Truce)
    unenforced_pods: UnenforcedPods = field(default_factory=UnenforcedPods)
    settled: bool = False
    cleared: Mapping[str, Mapping[str, CpuSet]] = field(default_factory=dict)
    staying: CpuSet = CpuSet()
    broken: str = ""
    fault: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)
    unbound: Mapping[str, NodeSet] = field(default_factory=dict)
    repair_due: float | None = None
    gone: Mapping[str, None] = field(default_factory=dict)

    @cached_property
    def stands(self) -> bool:
        """Whether the store has these grants."""
        return self.ledger == self.saved

    @cached_property
    def in_effect(self) -> Ledger:
        """The grants, with the shared pool that may be written: the saved pool, minus all that is granted here.

        The two ledgers differ while the disk refuses and the machine or the settings have changed, or pods were found
        that the ledger lacked. The pool widens only after a save.
        """
        saved = self.saved
        if saved is None or self.stands:
            return self.ledger
        shared = (saved.cpus.shared & self.node.machine.online) - granted(self.ledger.cpus)
        return replace(self.ledger, cpus=replace(self.ledger.cpus, shared=shared))

    @cached_property
    def unsaved(self) -> frozenset[tuple[str, str]]:
        """Containers (pod uid, name) whose grants the store does not have yet."""
        return frozenset() if self.stands else frozenset(_not_in(self.saved, self.ledger))

    @cached_property
    def shown(self) -> Ledger:
        """The grants for people: each pod whose change could not be saved has a sentence on that."""
        return with_unsaved_changes(self.ledger, self.pods, self.unwritable)

    @property
    def listening(self) -> bool:
        """Whether cgroups may be written: every pod that runs is known."""
        return self.complete or self.listed

    @property
    def missing(self) -> dict[str, str]:
        """What an agent lacks after its start: "pods", "names" -> a sentence."""
        found = {} if self.listed else {"pods": "no complete list of pods has been read yet: nothing is freed"}
        if not self.all_named:
            found["names"] = (
                "neither the API server nor the runtime has named the containers yet: those without a name "
                "are left where they are"
            )
        return found

    @cached_property
    def lingering(self) -> CpuSet:
        """Find the CPUs that containers gave up, by the saved ledger, and may still run on."""
        books = self.saved.cpus.assigned if self.saved else {}
        return self.staying | CpuSet.union(
            cpus - books.get(uid, {}).get(name, CpuSet())
            for uid, each in self.cleared.items()
            for name, cpus in each.items()
        )

    @property
    def given(self) -> Mapping[str, Given]:
        """Devices that the kubelet and claims gave, by uid."""
        return self.device_tracker.together()

    @property
    def unenforced(self) -> Mapping[str, Unenforced]:
        """Pods whose cgroups differ from the ledger, as reported: uid -> container -> why."""
        return self.unenforced_pods.reported

    def over(self, uid: str) -> bool:
        """Say whether a pod has ended or is gone: then only the watch has newer news of it."""
        return uid in self.gone or (uid in self.pods and self.pods[uid].ended)

    def with_pods(self, *pods: TrackedPod, ledger: Ledger | None = None) -> State:
        """Copy the state with these pods, and with another ledger where one is given."""
        known = {**self.pods, **{each.pod.uid: each for each in pods}} if pods else self.pods
        return replace(self, pods=known, ledger=self.ledger if ledger is None else ledger)

    def without(self, uids: Collection[str]) -> State:
        """Copy the state without pods that are gone and hold nothing; it remembers their uids for late news."""
        if not uids:
            return self
        gone = [*(uid for uid in self.gone if uid not in uids), *sorted(uids)]
        return replace(
            self, gone=dict.fromkeys(gone[-MOST_GONE:]),
            pods={uid: each for uid, each in self.pods.items() if uid not in uids},
            device_tracker=self.device_tracker.without(uids), unenforced_pods=self.unenforced_pods.without(uids),
            retries=self.retries.without(uids),
        )  # fmt: skip


def _not_in(saved: Ledger | None, ledger: Ledger) -> Iterator[tuple[str, str]]:
    books: tuple[Mapping[str, Mapping[str, object]], ...] = (ledger.cpus.assigned, ledger.memory.blocks)
    for uid, name in {(uid, name) for book in books for uid, held in book.items() for name in held}:
        holds, had = ledger.grant(uid, name), saved.grant(uid, name) if saved else Grant(None, None)
        if (holds.cpus or CpuSet()) - (had.cpus or CpuSet()) or holds.mems not in (None, had.mems):
            yield uid, name
