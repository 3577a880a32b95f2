"""Finds containers with CPUs of their own that were started on a part of them, for their pods' condition.

Called by the loop on the clock. Nothing is repaired (safety rule S15): `CPUAffinity=` of the runtime's unit looks the
same as an application that was started with taskset.
"""

from __future__ import annotations

from agent.app.service.container_notes import ContainerNotes
from agent.core.cgroups.verify import INHERITED, inherited
from agent.engine.engine import Engine


class Affinities(ContainerNotes):
    """What was seen of threads at the last look."""

    def look(self, engine: Engine) -> None:
        """Read the threads of containers with CPUs of their own, and report pods whose sentence changed.

        Raises HostError.
        """
        if not self._cgroups.real:
            return
        ledger, found = engine.ledger, dict[str, list[str]]()
        for cgroup, uid, name in self._containers(engine):
            if not ledger.grant(uid, name).cpus:
                continue
            cpus = inherited(self._cgroups.affinities(cgroup.path), cgroup.effective_cpus)
            if cpus:
                part = f"CPUs {cpus} of {cgroup.effective_cpus}"
                found.setdefault(uid, []).append(f"all threads of {name} may use {part} only")
        self._tell(engine, {uid: f"{'; '.join(each)}: {INHERITED}" for uid, each in found.items()})
