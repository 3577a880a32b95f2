"""Finds containers with CPUs of their own that were started on a part of them, for their pods' condition.

Called by the loop on the clock. Nothing is repaired (safety rule S15): `CPUAffinity=` of the runtime's unit looks the
same as an application that was started with taskset.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.cgroups.verify import INHERITED, inherited
from agent.engine.engine import Engine
from agent.host.cgroups import Cgroups
from agent.model.cgroup import Level


class Affinities:
    """What was seen of threads at the last look.

    Args:
        cgroups: the tree; only a real kernel's has threads.
    """

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._notes: Mapping[str, str] = {}

    def note(self, uid: str) -> str:
        """Return the sentence on a pod's containers; "" for none."""
        return self._notes.get(uid, "")

    def look(self, engine: Engine) -> None:
        """Read the threads of containers with CPUs of their own, and report pods whose sentence changed.

        Raises HostError.
        """
        if not self._cgroups.real:
            return
        ledger, names, found = engine.ledger, engine.names, dict[str, list[str]]()
        for cgroup in self._cgroups.observe().cgroups:
            uid, name = names.get(cgroup.container_id, ("", ""))
            if cgroup.level is not Level.CONTAINER or not ledger.grant(uid, name).cpus:
                continue
            cpus = inherited(self._cgroups.affinities(cgroup.path), cgroup.effective_cpus)
            if cpus:
                part = f"CPUs {cpus} of {cgroup.effective_cpus}"
                found.setdefault(uid, []).append(f"all threads of {name} may use {part} only")
        before, self._notes = self._notes, {uid: f"{'; '.join(each)}: {INHERITED}" for uid, each in found.items()}
        engine.retell(uid for uid in before.keys() | found.keys() if before.get(uid) != self._notes.get(uid))
