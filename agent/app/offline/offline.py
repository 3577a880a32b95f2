"""Opens what an agent left behind: its saved ledger, its cgroup tree, its containers' names. For `verify`, `release`.

Opening makes and writes nothing. The tree is looked for where an agent with this state folder would have it:

    scratch   the scratch tree in the state folder
    auto      that one if it is there, else the folder of our own on this machine's hierarchy, else the kubelet's
    PATH      the folder of our own below that mount, else the kubelet's cgroups there
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent.app import setup
from agent.app.offline.folder import saved_in, setup_of
from agent.app.places import AUTO, MOUNT, SCRATCH, is_scratch
from agent.app.standalone.runtime import names_of
from agent.core.cgroups.desired import desired_sets
from agent.core.cgroups.naming import named
from agent.core.cgroups.verify import CgroupCase, VerifyReport, check
from agent.core.machines.identity import differs
from agent.core.machines.in_force import within
from agent.core.request.annotations import pod_settings
from agent.engine.enforcer import Enforcer
from agent.errors import CheckpointCorruptError, CheckpointTooNewError, HostError, SettingsError
from agent.host.cgroups import Cgroups
from agent.host.cgroups.mounts import find_mounts
from agent.host.checkpoint import Checkpoint, Saved
from agent.host.podlogs import read_pod_logs
from agent.host.scratch import Scratch
from agent.host.standin import OWN_FOLDER
from agent.model.cgroup import Level, Observed
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.node.recover import names_in

OWN_KUBEPODS = f"/{OWN_FOLDER}/kubepods.slice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Locations:
    """Where to look; as the options of `numalign verify` and `release`."""

    state: Path
    config: Path | None = None
    root: str | None = None
    cgroup_root: str = AUTO
    kubepods: str = ""
    log_dir: Path = Path("/var/log")


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What was found.

    Attributes:
        setup: settings and machine.
        store: the checkpoint, not locked.
        saved: what it holds; None where there is none, or none that can be read.
        cgroups: the tree.
        real: a kernel enforces it, and processes live there.
        names: container id -> (pod uid, container name).
        observed: the tree now.
        notes: sentences on what may surprise the reader.
    """

    setup: setup.Setup
    store: Checkpoint
    saved: Saved | None
    cgroups: Cgroups
    real: bool
    names: Mapping[str, tuple[str, str]]
    observed: Observed
    notes: tuple[str, ...] = ()

    @property
    def ledger(self) -> Ledger:
        """The saved ledger, or one without pods."""
        return self.saved.ledger if self.saved else self.setup.node.start()

    def report(self, *, threads: bool = True) -> VerifyReport:
        """Compare kernel and ledger: cpusets, placement of memory and, on a real kernel, threads' affinities."""
        node = self.setup.node
        enforcer = Enforcer(self.cgroups, lambda _step: None)
        enforcer.names = dict(self.names)
        topology = node.rules.topology
        movers = {
            uid
            for uid, record in self.ledger.pods.items()
            if pod_settings(record.pod, node.rules.cpu.options, topology.policy).move_memory
        }
        affinities: dict[str, Mapping[int, CpuSet]] = {}
        if threads and self.real:
            for cgroup in self.observed.cgroups:
                if cgroup.level is Level.CONTAINER:
                    affinities[cgroup.path] = self.cgroups.affinities(cgroup.path)
        held = enforcer.page_nodes(
            self.observed, desired_sets(self.ledger, self.names, self.observed, node.rules, node.machine), movers
        )
        case = CgroupCase(self.ledger, self.names, self.observed, node.rules, node.machine, held)
        return check(replace(case, lift_quota=self.setup.switches.lift_quota, affinities=affinities))


def open_leftovers(where: Locations, *, needs_ledger: bool) -> Leftovers:
    """Find it all.

    Args:
        where: where to look.
        needs_ledger: without a readable checkpoint nothing can be done.

    Raises:
        SettingsError, MalformedError: the input is wrong; the cgroup that is named is not there.
        HostError: the machine, the checkpoint or the cgroups cannot be read; or there are none.
    """
    found = setup_of(where.state, where.config, where.root)
    store = Checkpoint(where.state / "checkpoint.json")
    notes: list[str] = []
    saved = None
    try:
        saved = saved_in(store) if needs_ledger else store.load()
    except (CheckpointCorruptError, CheckpointTooNewError) as error:
        if needs_ledger:
            raise
        notes.append(f"{error}; going on without it: quotas are not put back")
    different = differs(saved.ledger, saved.extra, found.machine) if saved else ""
    if saved is not None and different is None:
        different = f"the ledger is of machine {saved.ledger.machine}, this one is {found.machine.digest}"
    if different:
        notes.append(different)
    if found.switches.observe_only:
        notes.append("the settings say observe only: the agent writes nothing, so that drift stays")
    cgroups, real = _tree(where, live=where.root is None)
    observed = cgroups.observe()
    _must_be_there(cgroups, where)
    machine = within(found.machine, cgroups.in_force())
    found = replace(found, machine=machine, node=found.node.on(machine))
    limits = found.node.barred(cgroups.kubepods)
    notes += [limits] if limits else []
    ledger = saved.ledger if saved else found.node.start()
    stand_ins = {number: spot for record in ledger.pods.values() for number, spot in names_of(record.pod).items()}
    kept = names_in(saved.extra) if saved else {}
    names = named(ledger, {**kept, **stand_ins, **read_pod_logs(where.log_dir).containers}, observed)
    return Leftovers(found, store, saved, cgroups, real, names, observed, tuple(notes))


def _must_be_there(cgroups: Cgroups, where: Locations) -> None:
    """Raise HostError where there is no tree: a command in the wrong place must not report that all is released."""
    if cgroups.kubepods:
        return
    below = cgroups.mounts.cpuset
    if where.kubepods:
        raise SettingsError("--kubepods", f"no cgroup {where.kubepods} below {below}; write its path as it is there")
    raise HostError(below, "no kubepods cgroup was found there; name the tree with --cgroup-root or --state-dir")


def _tree(where: Locations, *, live: bool) -> tuple[Cgroups, bool]:
    """The tree, and whether a kernel stands behind it."""
    folder = where.state / "cgroup"
    scratch = where.cgroup_root == SCRATCH or (where.cgroup_root == AUTO and (not live or folder.is_dir()))
    named = f"/{where.kubepods.strip('/')}" if where.kubepods else ""
    base = folder if scratch else Path(MOUNT if where.cgroup_root == AUTO else where.cgroup_root)
    if scratch or is_scratch(base):
        return Cgroups(base, kernel=Scratch(base).kernel, kubepods=named), False
    own = OWN_KUBEPODS if Path(find_mounts(str(base)).cpuset + OWN_KUBEPODS).is_dir() else ""
    return Cgroups(base, kubepods=named or own), True
