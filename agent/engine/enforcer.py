"""From a saved ledger to the kernel: observe, plan, write in order, remember what was written.

Used by `agent.engine.effects` only, under the lock. Which writes are needed, in which order and why is for
`agent.core.plan`, `release` and `drift`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from itertools import groupby

from agent.core import drift
from agent.core.naming import latest, named
from agent.core.plan import CPUS, MEMS, plan
from agent.core.release import quota_plan, release_plan
from agent.core.wanted import Want, share, wants
from agent.core.writers import flapping
from agent.engine.backoff import Backoff
from agent.engine.ports import Cgroups, Steps
from agent.model.cgroup import Level, Observed, Write, Written
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.rules import Rules

STARTS = 30.0
"""Seconds in which a runtime starts a container: until then its first pages may lie where its sets were not yet."""


class Enforcer:
    """Keeps which container is which, and what was last written where.

    Args:
        cgroups: the tree.
        steps: told before each write.
        lift_quota: whether pods with exclusive CPUs lose their CFS quota (safety.md S16).
    """

    def __init__(self, cgroups: Cgroups, steps: Steps, *, lift_quota: bool = True) -> None:
        self._cgroups, self._steps = cgroups, steps
        self.lift_quota = lift_quota
        self.names: dict[str, tuple[str, str]] = {}
        """Container id -> (pod uid, container name)."""
        self.heard: deque[Mapping[str, tuple[str, str]]] = deque()
        """More names, from whoever must not wait for the engine's lock."""
        self.all_named = False
        """The API or the runtime has named all containers since this agent began (`agent.core.naming`)."""
        self.living: Collection[str] = ()
        """Ids of the containers that were there at the last look."""
        self.movers: Collection[str] = ()
        """Uids of pods that want their memory bound even when the kernel moves it."""
        self.halted = False
        """The kill switch, without the engine's lock: nothing is written from now on, not even the rest of a plan."""
        self.unbound: Mapping[str, NodeSet] = {}
        """Containers whose memory stays unbound, since they have pages on other nodes: id -> nodes (safety.md S4)."""
        self._unbound_since: dict[str, float] = {}
        self.backoff = Backoff()
        self._last: dict[tuple[str, str], str] = {}

    def observe(self) -> Observed:
        """The tree now; raises HostError. Names of containers that are long gone go with it, as no runtime tells."""
        observed = self._cgroups.observe()
        there = {each.container_id for each in observed.cgroups if each.level is Level.CONTAINER}
        self.names = latest(self.names, there)
        return observed

    def listen(self) -> None:
        """What was heard counts from now on."""
        while self.heard:
            self.names |= self.heard.popleft()

    def forget(self, uid: str) -> None:
        """A pod is gone: its containers' names go too."""
        self.names = {key: value for key, value in self.names.items() if value[0] != uid}

    def enforce(self, ledger: Ledger, rules: Rules, machine: Machine, observed: Observed) -> tuple[Written, ...]:
        """Write what differs; what was written and read back."""
        self.listen()
        self.living = {each.container_id for each in observed.cgroups if each.level is Level.CONTAINER}
        self.names = named(ledger, self.names, observed)
        names = named(ledger, self.names, observed, complete=self.all_named)
        wanted = wants(ledger, names, observed, rules, machine)
        held = self.held(ledger, rules, machine, observed)
        self._notice({each.container_id: held[each.path] for each in observed.cgroups if each.path in held})
        writes = plan(ledger, names, observed, rules, machine, held=held)
        writes += quota_plan(ledger, names, observed, lift=self.lift_quota and rules.cpu.static)
        self._found_in_order(wanted, observed)
        labelled = drift.label(writes, drift.find(wanted, self._last, observed, machine))
        before = dict(self._last)
        allowed = self.backoff.allowed(labelled, before)
        results = self._write(allowed)
        self.backoff.done(allowed, before, {path for path, want in wanted.items() if want.exclusive})
        present = {cgroup.path for cgroup in observed.cgroups}
        self.backoff.forget(present)
        self._last = {key: value for key, value in self._last.items() if key[0] in present}
        return results

    def _notice(self, unbound: Mapping[str, NodeSet]) -> None:
        now = self.backoff.clock()
        self._unbound_since = {each: self._unbound_since.get(each, now) for each in unbound}
        self.unbound = {each: nodes for each, nodes in unbound.items() if now - self._unbound_since[each] >= STARTS}

    def _found_in_order(self, wanted: Mapping[str, Want], observed: Observed) -> None:
        """A set that is as it should be counts as written: by NRI, or by this agent before it was started again.

        Without that, nobody else's write would be seen as one until the agent had a reason to write there itself.
        """
        for cgroup in observed.cgroups:
            want = wanted.get(cgroup.path, Want())
            if want.cpus is not None and cgroup.cpus == want.cpus:
                self._last[cgroup.path, CPUS] = str(want.cpus)
            if want.mems is not None and cgroup.mems == want.mems:
                self._last[cgroup.path, MEMS] = str(want.mems)

    def release(self, ledger: Ledger, observed: Observed) -> tuple[Written, ...]:
        """Put everything back (safety.md S17)."""
        self._last.clear()
        return self._write(release_plan(ledger, self.names, observed), always=True)

    def fight(self) -> str:
        """Who undoes our writes again and again, "" when nobody does (safety.md S10)."""
        return flapping(self.backoff.repairs, self.backoff.clock())

    def _write(self, writes: tuple[Write, ...], *, always: bool = False) -> tuple[Written, ...]:
        results: list[Written] = []
        for slow, group in groupby(writes, key=lambda write: write.file == MEMS):
            # writes of memory nodes may hang (S8): they share one patience; the others are told and done one by one
            together = tuple(group)
            for part in (together,) if slow else ((write,) for write in together):
                if self.halted and not always:
                    break
                self._steps(" ".join(f"write {write.path} {write.file}" for write in part))
                results += self._cgroups.apply(part)
        for result in results:
            if not result.error:
                self._last[result.write.path, result.write.file] = result.write.value
        return tuple(results)

    def held(self, ledger: Ledger, rules: Rules, machine: Machine, observed: Observed) -> Mapping[str, NodeSet]:
        """Where the pages of containers lie whose memory is to be bound and is not yet (safety.md S4)."""
        held: dict[str, NodeSet] = {}
        for cgroup in observed.cgroups:
            if cgroup.level is not Level.CONTAINER or cgroup.container_id not in self.names:
                continue
            uid, name = self.names[cgroup.container_id]
            record = ledger.pods.get(uid)
            mems = share(ledger, uid, name, rules, machine).mems
            if record is None or uid in self.movers or mems is None or cgroup.mems == mems:
                continue
            nodes = NodeSet.from_ids(node for node, size in self._cgroups.pages(cgroup.path).items() if size)
            if not nodes.issubset(mems):
                held[cgroup.path] = nodes
        return held
