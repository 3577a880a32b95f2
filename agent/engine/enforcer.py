"""From a saved ledger to the kernel: observe, plan, write in order, remember what was written.

Used by `agent.engine.effects` only, under the engine's lock. Which writes are needed, in which order and why is
for `agent.core.cgroups.plan`, `release` and `drift`; whether the result is what was granted for
`agent.core.cgroups.enforced`.
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
"""Seconds in which a runtime starts a container: until then its first pages may lie where its sets were not yet."""
AWAITED = 0.1
"""Seconds of the runtime's question (safety.md S9) that may pass until a write has ended."""


class Enforcer:
    """Keeps which container is which, and what was last written where.

    Args:
        cgroups: the tree.
        steps: told before each write.
        clock: seconds of a steady clock.
        halting: the kill switch where nobody has told of it yet: asked before every write, by whoever writes.
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
        """The kill switch, without the engine's lock: nothing is written from now on, not even the rest of a plan."""
        self._unbound_since: dict[str, float] = {}
        self._nameless_since: dict[str, float] | None = None
        """Containers and sandboxes that nobody named: id -> when they were seen first; None before any look."""
        self._several: set[str] = set()
        """Uids of the pods with more than a sandbox at the last look."""
        self._read: set[str] = set()
        """Ids of the containers whose cgroups were read, as long as they have names."""
        self.given_up = False
        """The last plan was given up for a name that it lacked, and none was made since."""
        self._cut = False
        """It was ended before its end, by that or by the kill switch, be it off again."""
        self._turn = threading.Condition()
        """Held for the look at `heard` before each write, and where `_writing` changes."""
        self._writing = ""
        """The cgroup whose CPUs are being written, "" for none."""
        self._nameless: Mapping[str, str] = {}
        """The containers without a name in the plan that is carried out: id -> the path of their pod."""
        self.cuts: cuts.Cuts = cuts.NONE
        """What cgroups that applications made had before they were cut (cgroup v1)."""
        self.backoff = Backoff(clock)
        self._last: dict[tuple[str, str], str] = {}
        self._alone: dict[str, CpuSet] = {}
        """Of what was last written to containers with CPUs of their own: these, without what the pool had then."""
        self._errors: dict[tuple[str, str], str] = {}
        """What stands in the way of a write that is still needed."""

    @property
    def off(self) -> bool:
        """Whether the kill switch is on, told or not (safety.md S3): nothing is written then. Takes no lock."""
        return self.halted or self.halting()

    def observe(self) -> Observed:
        """The tree now; raises HostError. Names of containers that are long gone go with it, as no runtime tells."""
        observed = self._cgroups.observe()
        there = {each.container_id for each in observed.cgroups if each.level is Level.CONTAINER}
        self.names = latest(self.names, there)
        self._several = several(observed)
        return observed

    def running(self) -> set[str]:
        """Uids of the pods of which a container exists or did, named or not; a sandbox is none."""
        heard = (spot for names in (self.names, *self.announced) for spot in names.values())
        return {uid for uid, _ in heard} | self._several

    def in_force(self) -> InForce:
        """What the kubelet's own cgroup has in force now; raises HostError."""
        found = self._cgroups.in_force()
        self.kubepods = found.path
        return found

    def hear(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Names from whoever must not wait for the engine's lock, and may put their containers where they belong.

        Returns when no write in their pods is on its way that was planned without them; a kernel that hangs is waited
        for briefly.
        """
        self.announced.append(names)
        pods = tuple(f"{path}/" for number, path in self._nameless.items() if number in names)
        if pods:
            with self._turn:
                self._turn.wait_for(lambda: not f"{self._writing}/".startswith(pods), AWAITED)

    def listen(self) -> None:
        """What was heard counts from now on."""
        while self.announced:
            self.names |= self.announced.popleft()

    def unseen(self) -> set[str]:
        """Uids of pods of which a container was named whose cgroup was never read."""
        self.listen()
        return {uid for number, (uid, _) in self.names.items() if number not in self._read}

    def forget(self, uids: Collection[str]) -> None:
        """Pods are gone: their containers' names go too."""
        self.names = {key: value for key, value in self.names.items() if value[0] not in uids}

    def keep_of(self, uids: Collection[str]) -> None:
        """No other pods are there: of their containers only those that live keep their names."""
        self.listen()
        if self.living:  # else no look was made yet
            self.names = of_pods(self.names, uids, self.living)

    def enforce(
        self, ledger: Ledger, rules: Rules, machine: Machine, observed: Observed, stopped: Callable[[], str], *,
        left: Callable[[CpuSet], None], lift_quota: bool, all_named: bool, movers: Collection[str] = (),
        unsaved: Collection[tuple[str, str]] = (),
    ) -> tuple[tuple[Written, ...], KernelAnswered]:  # fmt: skip
        """Write what differs, unless that is stopped; what was written, and whose grants are not in force (`Look`).

        Args:
            ledger: what shall be; saved, but for the grants of `unsaved`.
            rules: the settings.
            machine: the hardware.
            observed: the tree as it is.
            stopped: why nothing is written; asked again afterwards, since a kill switch waits for nobody.
            left: told when all CPUs are written, before memory that may hang (safety.md S8); with those on which a
                container still stands that does not hold them any more.
            lift_quota: whether pods with exclusive CPUs lose their CFS quota (safety.md S16).
            all_named: whether every container has been named (`agent.core.cgroups.naming`).
            movers: uids of pods that want their memory bound even where the kernel moves it then.
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
        """Work out the set of each cgroup, by path; and why that failed, by uid of a pod that is left as it is."""
        wanted, errors = one_by_one(ledger, names, observed, rules, machine, self.cuts)
        faults = {uid: sentence(error) for uid, error in errors.items()}
        if managed(ledger, rules):
            return wanted, faults
        last = {path: value for (path, file), value in self._last.items() if file == CPUS}
        return left_over(wanted, last, observed, self.cuts), faults

    def learn(self, ledger: Ledger, rules: Rules, machine: Machine, observed: Observed) -> None:
        """What is in order counts as written by this agent, for sets that are to be taken back before any look."""
        rules = replace(rules, cpu=replace(rules.cpu, static=True))
        names = named(ledger, self.names, observed)
        self._found(one_by_one(ledger, names, observed, rules, machine)[0], observed, ledger.cpus.shared)

    def _repair(
        self, writes: tuple[Write, ...], wanted: Mapping[str, DesiredSets], observed: Observed, machine: Machine,
        ledger: Ledger, left: Callable[[CpuSet], None],
    ) -> tuple[Written, ...]:  # fmt: skip
        """Carry out a plan, but for what has its time to come yet."""
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
        # nobody is disturbed in an empty one, and systemd empties its set more than once before the first process
        living = {each.path for each in observed.cgroups if each.populated}
        tried = [each.write for each in results if each.error != OCCUPIED and each.write.path in living]
        self.backoff.done(tried, before, exclusive)
        self.backoff.refused(results, observed)
        present = {cgroup.path for cgroup in observed.cgroups}
        self.backoff.forget(present)
        self._last = {key: value for key, value in self._last.items() if key[0] in present}
        return results

    def _notice(self, unbound: Mapping[str, NodeSet]) -> dict[str, NodeSet]:
        """Note containers with pages on other nodes, by id; those that have had them for long stay unbound (S4)."""
        now = self.backoff.clock()
        self._unbound_since = {each: self._unbound_since.get(each, now) for each in unbound}
        return {each: nodes for each, nodes in unbound.items() if now - self._unbound_since[each] >= STARTS}

    def _left_nameless(self, observed: Observed) -> set[str]:
        """Whom nobody names though there was time to; whoever was there at the first look had it."""
        now = self.backoff.clock()
        since = {} if self._nameless_since is None else self._nameless_since
        first = now if self._nameless_since is not None else float("-inf")
        self._nameless_since = {each: since.get(each, first) for each in nameless(self.names, observed)}
        return {each for each, seen in self._nameless_since.items() if now - seen >= STARTS}

    def _found(self, wanted: Mapping[str, DesiredSets], observed: Observed, shared: CpuSet) -> None:
        """A set that is as it should be counts as written: by NRI, or by this agent before it was started again.

        Without that, nobody else's write would be seen as one until the agent had a reason to write there itself.
        And where nothing was written yet, a container's set that has none of the pool (as the BestEffort slice has it
        now) was: no runtime makes one. It stood there alone before this agent began. What it gave up and could not
        leave is no other container's meanwhile.
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
        """Put everything back (safety.md S17); the kill switch keeps nobody from that."""
        self._last.clear()
        cut, self.cuts = cuts.standing(self.cuts, observed), cuts.NONE
        return self._write(
            release_plan(ledger, self.names, observed, cut), Occupancy({}, {}, {}, CpuSet(), {}, {}), always=True
        )

    def _put(self, cgroup: Cgroup) -> bool:
        """Whether a container stands where this agent put it, rather than where somebody else did."""
        return self._last.get((cgroup.path, CPUS)) == str(cgroup.cpus)

    def fight(self) -> str:
        """Who undoes our writes again and again, "" when nobody does (safety.md S10)."""
        return flapping(self.backoff.repairs, self.backoff.clock())

    def _write(self, writes: tuple[Write, ...], standing: Occupancy, *, always: bool = False) -> tuple[Written, ...]:
        """One by one, and none after the kill switch or a name that the plan lacked, not even half of a change.

        What is there then is safe: a plan shrinks before it grants, and puts nobody where others have not left.
        """
        results: list[Written] = []

        def go_on() -> bool:
            self.given_up = not always and (self.given_up or self._overtaken())
            self._cut = not always and (self._cut or self.given_up or self.off)
            return not self._cut

        for slow, group in groupby(writes, key=lambda write: write.file == MEMS):
            # writes of memory nodes may hang (S8): they share one patience; the others are told and done one by one
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
        """Whether a write is still to be made; from then on to its end, `hear` knows that it is on its way."""
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
        """Whether a container that had no name in the plan was named meanwhile: all of it is planned anew then.

        The runtime names its containers when a plugin registers, and takes their sets from the answer: what was
        planned without the names would move them off their CPUs again, and who is to leave CPUs leaves them first.
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
            except HostError:  # nobody can say where they are: they may be wherever it may use memory
                nodes = cgroup.effective_mems
            if not nodes.issubset(mems):
                held[cgroup.path] = nodes
        return held
