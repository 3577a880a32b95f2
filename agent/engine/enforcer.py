"""Bring the kernel to a saved ledger: observe, plan, write in order, remember what was written.

Used by `agent.engine.effects` only, under the engine's lock. `agent.core.cgroups.plan`, `release` and `drift` say
which writes are needed, in which order and why; `agent.core.cgroups.enforced` says whether the result is what was
granted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, groupby, takewhile

from agent.core.cgroups import cuts, drift
from agent.core.cgroups.burstable import common
from agent.core.cgroups.desired import DesiredSets, Names, left_over, managed, one_by_one, parent_of, without
from agent.core.cgroups.enforced import Look, after, unenforced
from agent.core.cgroups.naming import latest, named, nameless, of_pods, several
from agent.core.cgroups.plan import CPUS, MEMS, plan
from agent.core.cgroups.release import quota_plan, release_plan
from agent.core.cgroups.writers import flapping
from agent.engine.backoff import Backoff
from agent.engine.occupancy import Occupancy
from agent.engine.ports import CgroupTree, Steps
from agent.errors import HostError
from agent.model.cgroup import OCCUPIED, UNSAVED, VANISHED, Cause, Cgroup, InForce, Level, Observed, Write, Written
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.rules import Rules
from agent.node.answers import KernelAnswered
from agent.node.fault_isolation import sentence

STARTS = 30.0
"""Seconds in which a runtime starts a container: its first pages may be older than its sets."""
AWAITED = 0.1
"""Seconds for which a question of the runtime (safety.md S9) waits for the end of a write."""


class Enforcer:
    """Keeps which container is which, and what was last written where.

    Args:
        cgroups: the tree.
        steps: called before each write.
        clock: seconds of a steady clock.
        halting: says whether the kill switch was pulled before the engine followed it; asked before every write.
    """

    def __init__(
        self,
        cgroups: CgroupTree,
        steps: Steps,
        *,
        clock: Callable[[], float] = time.monotonic,
        halting: Callable[[], bool] = lambda: False,
    ) -> None:
        self.halting = halting
        self._cgroups, self._steps = cgroups, steps
        self.kubepods = ""
        """The path of the kubelet's own cgroup, as it was read last."""
        self.names: dict[str, tuple[str, str]] = {}
        """Container id -> (pod uid, container name)."""
        self.announced: deque[Mapping[str, tuple[str, str]]] = deque()
        """More names, from `hear`."""
        self.living: Collection[str] = ()
        """Ids of the containers that were there at the last look."""
        self.halted = False
        """The kill switch, set without the engine's lock: it stops all writes, also the rest of a plan."""
        self._unbound_since: dict[str, float] = {}
        self._nameless_since: dict[str, float] | None = None
        """Containers and sandboxes without a name: id -> when they were seen first; None before any look."""
        self._several: set[str] = set()
        """Uids of the pods with more than a sandbox at the last look."""
        self._read: set[str] = set()
        """Ids of the named containers whose cgroups were read."""
        self.given_up = False
        """The last plan was given up for a name that it lacked, and no plan was made since."""
        self._cut = False
        """The last plan was cut short, by that or by the kill switch, even one that is off again."""
        self._turn = threading.Condition()
        """Held for the look at `announced` before each write, and for each change of `_writing`."""
        self._writing = ""
        """The cgroup whose CPUs are being written, "" for none."""
        self._nameless: Mapping[str, str] = {}
        """The containers without a name in the plan that is carried out: id -> the path of their pod."""
        self.cuts: cuts.Cuts = cuts.NONE
        """The sets of applications' own cgroups before they were cut (cgroup v1)."""
        self.backoff = Backoff(clock)
        self._last: dict[tuple[str, str], str] = {}
        """(path, file) -> the value that was written last."""
        self._alone: dict[str, CpuSet] = {}
        """Path -> the container's own CPUs in the last write to it, without the pool of that time."""
        self._errors: dict[tuple[str, str], str] = {}
        """(path, file) -> the error of a write that is still needed."""

    @property
    def off(self) -> bool:
        """Whether the kill switch is on (safety.md S3), also before the engine followed it. Takes no lock."""
        return self.halted or self.halting()

    def observe(self) -> Observed:
        """Read the tree; raises HostError. Forget names of containers long gone, which no runtime may ever report."""
        observed = self._cgroups.observe()
        there = {each.container_id for each in observed.cgroups if each.level is Level.CONTAINER}
        self.names = latest(self.names, there)
        self._several = several(observed)
        return observed

    def running(self) -> set[str]:
        """Return the uids of the pods of which a container exists or existed, named or not; a sandbox is none."""
        heard = (spot for names in (self.names, *self.announced) for spot in names.values())
        return {uid for uid, _ in heard} | self._several

    def in_force(self) -> InForce:
        """Read what the kubelet's own cgroup has in force now; raises HostError."""
        found = self._cgroups.in_force()
        self.kubepods = found.path
        return found

    def hear(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Take names without the engine's lock; the caller may then set these containers' cpusets itself.

        Returns when no write is under way in their pods that was planned without these names, after AWAITED seconds
        at most: the kernel may hang.
        """
        self.announced.append(names)
        pods = tuple(f"{path}/" for number, path in self._nameless.items() if number in names)
        if pods:
            with self._turn:
                self._turn.wait_for(lambda: not f"{self._writing}/".startswith(pods), AWAITED)

    def listen(self) -> None:
        """Add the announced names to `names`."""
        while self.announced:
            self.names |= self.announced.popleft()

    def unseen(self) -> set[str]:
        """Return the uids of the pods that have a named container whose cgroup was never read."""
        self.listen()
        return {uid for number, (uid, _) in self.names.items() if number not in self._read}

    def forget(self, uids: Collection[str]) -> None:
        """Forget the names of containers of pods that are gone."""
        self.names = {key: value for key, value in self.names.items() if value[0] not in uids}

    def keep_of(self, uids: Collection[str]) -> None:
        """Forget the names of gone containers of pods that are not in `uids`, the list of all pods."""
        self.listen()
        if self.living:  # else no look was made yet
            self.names = of_pods(self.names, uids, self.living)

    def enforce(
        self, ledger: Ledger, rules: Rules, machine: Machine, observed: Observed, stopped: Callable[[], str], *,
        left: Callable[[CpuSet], None], lift_quota: bool, all_named: bool, movers: Collection[str] = (),
        unsaved: Collection[tuple[str, str]] = (),
    ) -> tuple[tuple[Written, ...], KernelAnswered]:  # fmt: skip
        """Write what differs, unless that is stopped; return the writes, and which grants are not in force (`Look`).

        Args:
            ledger: the grants to enforce; saved, except for the grants of `unsaved`.
            rules: the settings.
            machine: the hardware.
            observed: the tree as it is.
            stopped: says why nothing is written; asked again after the plan, as a kill switch may be pulled in it.
            left: called when all CPUs are written, before memory that may hang (safety.md S8), with the CPUs on which
                a container still runs that holds them no more.
            lift_quota: whether pods with exclusive CPUs lose their CFS quota (safety.md S16).
            all_named: whether every container has been named (`agent.core.cgroups.naming`).
            movers: uids of pods that want their memory bound even if the kernel moves their pages for that.
            unsaved: containers (pod uid, name) whose grants are not saved: nothing is written to their cgroups.
        """
        self.listen()
        self.given_up = self._cut = False
        self.living = {each.container_id for each in observed.cgroups if each.level is Level.CONTAINER}
        self.names = named(ledger, self.names, observed)
        self._read = (self._read | set(self.living)) & self.names.keys()
        names = named(ledger, self.names, observed, complete=all_named)
        self.cuts = cuts.standing(self.cuts, observed, machine.online)
        wanted, faults = self._desired_sets(ledger, names, observed, rules, machine)
        if faults:
            ledger = without(ledger, faults)
        held = self.page_nodes(observed, wanted, movers)
        unbound = self._notice({each.container_id: held[each.path] for each in observed.cgroups if each.path in held})
        results: tuple[Written, ...] = ()
        lift = lift_quota and rules.cpu.static
        if not stopped():
            writes = plan(observed, wanted, held=held)
            writes += quota_plan(ledger, names, observed, lift=lift)
            kept = {each.path for each in observed.cgroups if names.get(each.container_id) in unsaved}
            saved = tuple(each for each in writes if each.path not in kept)
            results = self._repair(saved, wanted, observed, machine, ledger, left)
            self._errors |= {(each.path, each.file): UNSAVED for each in writes if each.path in kept}
            self.cuts = cuts.after(self.cuts, observed, results)
        soon = {each.path for each in observed.cgroups if each.path in held and each.container_id not in unbound}
        tree = after(observed, results)
        throttled = quota_plan(ledger, names, tree, lift=True) if lift else ()
        why = stopped()
        look = Look(
            ledger, names, machine, wanted, tree, self._errors, unbound, soon,
            {each.path: each for each in throttled}, why, self.given_up, self._left_nameless(observed),
        )  # fmt: skip
        lacking = unenforced(look)
        lacking.update({uid: {"": f"its cgroups are left as they are: {text}"} for uid, text in faults.items()})
        return results, KernelAnswered(lacking, faults, unbound, self.given_up, why, self.backoff.due)

    def _desired_sets(
        self, ledger: Ledger, names: Names, observed: Observed, rules: Rules, machine: Machine
    ) -> tuple[dict[str, DesiredSets], dict[str, str]]:
        """Work out the sets of each cgroup, by path; and by uid, why that failed for a pod that is left as it is."""
        wanted, errors = one_by_one(ledger, names, observed, rules, machine, self.cuts)
        faults = {uid: sentence(error) for uid, error in errors.items()}
        if managed(ledger, rules):
            return wanted, faults
        last = {path: value for (path, file), value in self._last.items() if file == CPUS}
        return left_over(wanted, last, observed, self.cuts), faults

    def learn(self, ledger: Ledger, rules: Rules, machine: Machine, observed: Observed) -> None:
        """Count sets that agree with a ledger as written by this agent: so they can be released before any look."""
        rules = replace(rules, cpu=replace(rules.cpu, static=True))
        names = named(ledger, self.names, observed)
        self._found(one_by_one(ledger, names, observed, rules, machine)[0], observed, ledger.cpus.shared)

    def _repair(
        self, writes: tuple[Write, ...], wanted: Mapping[str, DesiredSets], observed: Observed, machine: Machine,
        ledger: Ledger, left: Callable[[CpuSet], None],
    ) -> tuple[Written, ...]:  # fmt: skip
        """Carry out the writes of a plan that are due."""
        self._found(wanted, observed, (ledger.cpus.shared & common(observed)) or ledger.cpus.shared)
        needed = {(write.path, write.file) for write in writes}
        self._errors = {key: error for key, error in self._errors.items() if key in needed}
        drifts = drift.find(wanted, self._last, observed, machine)
        labelled = drift.label(writes, drifts)
        before = dict(self._last)
        urgent = {(each.path, each.file) for each in drifts if each.cause is Cause.DRIFT_UNDONE}
        urgent |= {(path, CPUS) for path in drift.trespassing(ledger, wanted, observed)}
        allowed = self.backoff.allowed(labelled, before, observed, urgent)
        exclusive = {each.path for each in observed.cgroups if wanted.get(each.path, DesiredSets()).exclusive}
        alone = {each.path: self._alone.get(each.path, CpuSet()) for each in observed.cgroups if self._put(each)}
        moving = {each.path for each in allowed if each.file == CPUS} - exclusive
        moving -= {path for path, file in self._errors if file == CPUS}  # refused before: it leaves when it has left
        leaving = {path: cpus for path, cpus in alone.items() if cpus and path in moving}
        held = [each for each in observed.cgroups if each.path in exclusive or alone.get(each.path)]
        standing = Occupancy(
            {each.path: each.pod_uid for each in held},
            {each.path: alone[each.path] for each in held if each.path in alone and each.path not in leaving},
            {each.path: each.effective_cpus for each in held}, ledger.cpus.shared, wanted, leaving,
        )  # fmt: skip
        self._nameless = {
            each.container_id: parent_of(each.path)
            for each in observed.cgroups
            if each.level is Level.CONTAINER and each.container_id not in self.names
        }
        cpus = tuple(takewhile(lambda write: write.file != MEMS, allowed))
        results = self._write(cpus, standing)
        if not self._cut:
            left(standing.overstayed(ledger))
        results += self._write(allowed[len(cpus) :], standing)
        self._alone = {**leaving, **standing.alone}
        # a write to an empty cgroup disturbs no process, and systemd clears its set again before the first process
        living = {each.path for each in observed.cgroups if each.populated}
        tried = [each.write for each in results if each.error != OCCUPIED and each.write.path in living]
        self.backoff.done(tried, before, exclusive)
        self.backoff.refused(results, observed)
        present = {cgroup.path for cgroup in observed.cgroups}
        self.backoff.forget(present)
        self._last = {key: value for key, value in self._last.items() if key[0] in present}
        return results

    def _notice(self, unbound: Mapping[str, NodeSet]) -> dict[str, NodeSet]:
        """Note containers with pages on other nodes, by id; after STARTS seconds they are to stay unbound (S4)."""
        now = self.backoff.clock()
        self._unbound_since = {each: self._unbound_since.get(each, now) for each in unbound}
        return {each: nodes for each, nodes in unbound.items() if now - self._unbound_since[each] >= STARTS}

    def _left_nameless(self, observed: Observed) -> set[str]:
        """Find the containers that have had no name for STARTS seconds, or had none at the agent's first look."""
        now = self.backoff.clock()
        since = {} if self._nameless_since is None else self._nameless_since
        first = now if self._nameless_since is not None else float("-inf")
        self._nameless_since = {each: since.get(each, first) for each in nameless(self.names, observed)}
        return {each for each, seen in self._nameless_since.items() if now - seen >= STARTS}

    def _found(self, wanted: Mapping[str, DesiredSets], observed: Observed, shared: CpuSet) -> None:
        """Count a set that is as it should be as written: by NRI, or by this agent before a restart.

        So a later change of it is seen as another program's write, even if this agent never wrote the set.

        Before its first write, a container's set without CPUs of the pool (as the BestEffort slice has it now) counts
        as written, too: a runtime never makes such a set. The container had these CPUs alone before this agent began.
        CPUs of them that it gave up and has not left go to no other container.
        """
        for cgroup in observed.cgroups:
            desired = wanted.get(cgroup.path, DesiredSets())
            if desired.cpus is not None and cgroup.cpus == desired.cpus:
                self._last[cgroup.path, CPUS] = str(desired.cpus)
                self._alone[cgroup.path] = desired.own if desired.exclusive else CpuSet()
            elif (
                desired.cpus is not None and (cgroup.path, CPUS) not in self._last
                and cgroup.level is Level.CONTAINER and cgroup.cpus and cgroup.cpus.isdisjoint(shared)
            ):  # fmt: skip
                self._last[cgroup.path, CPUS] = str(cgroup.cpus)
                self._alone[cgroup.path] = cgroup.cpus
            if desired.mems is not None and cgroup.mems == desired.mems:
                self._last[cgroup.path, MEMS] = str(desired.mems)

    def release(self, ledger: Ledger, observed: Observed) -> tuple[Written, ...]:
        """Release all cgroups (safety.md S17), also while the kill switch is on."""
        self._last.clear()
        cut, self.cuts = cuts.standing(self.cuts, observed), cuts.NONE
        return self._write(
            release_plan(ledger, self.names, observed, cut), Occupancy({}, {}, {}, CpuSet(), {}, {}), always=True
        )

    def _put(self, cgroup: Cgroup) -> bool:
        """Say whether a container's CPUs are those that this agent wrote, rather than another program."""
        return self._last.get((cgroup.path, CPUS)) == str(cgroup.cpus)

    def fight(self) -> str:
        """Say that another program undoes this agent's writes again and again; "" otherwise (safety.md S10)."""
        return flapping(self.backoff.repairs, self.backoff.clock())

    def _write(self, writes: tuple[Write, ...], standing: Occupancy, *, always: bool = False) -> tuple[Written, ...]:
        """Write one by one; stop at once for the kill switch, or for a new name that the plan lacked.

        A plan is safe at every point: it shrinks before it grants, and gives a container no CPU that another
        container has not left.
        """
        results: list[Written] = []

        def go_on() -> bool:
            self.given_up = not always and (self.given_up or self._overtaken())
            self._cut = not always and (self._cut or self.given_up or self.off)
            return not self._cut

        for slow, group in groupby(writes, key=lambda write: write.file == MEMS):
            # writes of memory nodes may hang (S8): they share one timeout; each other write is made alone
            together = tuple(group)
            for part in (together,) if slow else ((write,) for write in together):
                with self._taking_turns("" if slow else part[0].path, go_on) as going:
                    if not going:
                        break
                    left = part if standing.in_the_way(part[0]) else ()
                    now = standing.aside(part[0]) if left else tuple(chain.from_iterable(map(standing.pooled, part)))
                    if now:
                        self._steps(" ".join(f"write {write.path} {write.file}" for write in now))
                        done = self._cgroups.apply(now, go_on)
                        standing.moved(done)
                        results += done
                    results += [Written(write, "", "", OCCUPIED) for write in left]
        for result in results:
            key = result.write.path, result.write.file
            self._errors.pop(key, None)
            if not result.error:
                self._last[key] = result.write.value
            elif result.error != VANISHED:
                self._errors[key] = result.error
        return tuple(results)

    @contextmanager
    def _taking_turns(self, path: str, go_on: Callable[[], bool]) -> Iterator[bool]:
        """Say whether a write is still to be made; until its end, `hear` sees that it is under way."""
        with self._turn:
            going = go_on()
            self._writing = path if going else ""
        try:
            yield going
        finally:
            with self._turn:
                self._writing = ""
                self._turn.notify_all()

    def _overtaken(self) -> bool:
        """Say whether a container got its name after the plan was made: the plan is then given up for a new one.

        The runtime names its containers when a plugin registers, and takes their sets from the answer. A plan without
        the names would move these containers off their CPUs again, and would move other containers onto CPUs first.
        """
        return any(number in self._nameless for names in tuple(self.announced) for number in names)

    def page_nodes(
        self, observed: Observed, wanted: Mapping[str, DesiredSets], movers: Collection[str]
    ) -> Mapping[str, NodeSet]:
        """Find where the pages of containers lie whose memory is to be bound and is not yet (safety.md S4), by path.

        Args:
            observed: the tree.
            wanted: path -> its sets.
            movers: uids of pods that are left out, since the kernel may move their memory.
        """
        held: dict[str, NodeSet] = {}
        for cgroup in observed.cgroups:
            mems = wanted.get(cgroup.path, DesiredSets()).mems
            if cgroup.level is not Level.CONTAINER or mems is None or cgroup.mems == mems:
                continue
            if cgroup.pod_uid in movers:
                continue
            try:
                nodes = NodeSet.from_ids(node for node, size in self._cgroups.pages(cgroup.path).items() if size)
            except HostError:  # unknown: the pages may lie on every node where the container may use memory
                nodes = cgroup.effective_mems
            if not nodes.issubset(mems):
                held[cgroup.path] = nodes
        return held
