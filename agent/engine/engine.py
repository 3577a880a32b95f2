"""The engine: the only lock, and one order of effects.

    decide -> check invariants -> save (or stop) -> shrink the shared pool -> grant -> tell

A release goes the same way (save, then widen): nothing is ever written that was not saved, and a crash between two
effects leaves a ledger that the next start can only complete. Whoever knows of a pod, a container, a change of the
machine or of the settings calls in here; everything runs under one lock, and nothing in here waits for a network.

Driven by `agent.app`: the watch of the API, the folder of manifests, NRI, new cgroup folders and timers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from agent.core.admission.node import Node
from agent.core.admission.pressure import PressureCheck
from agent.core.admission.resize import pending
from agent.core.devices.kubelet import Given, Offered
from agent.core.request.annotations import Ask
from agent.engine.adopt import CarriedGrant
from agent.engine.alone import Survived, one_by_one, sentence
from agent.engine.carry import Carried, carry
from agent.engine.deciding import asked, decided, set_aside, was_set_aside
from agent.engine.effects import FLAPPING, Effects
from agent.engine.following import Following
from agent.engine.known import Known, Switches, same, softer
from agent.engine.line import crowded_out, line_of, refused_for_good, softened, turn
from agent.engine.nobodys import keep
from agent.engine.recover import recover
from agent.model.cgroup import Written
from agent.model.ledger import Ledger, PodRecord
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment


class Engine(Effects):
    """All decisions. Every public method takes the lock; the arguments are `Effects`'."""

    @property
    def ledger(self) -> Ledger:
        """The grants now."""
        with self._lock:
            return self._ledger

    @property
    def node(self) -> Node:
        """The managers now."""
        with self._lock:
            return self._node

    @property
    def known(self) -> Mapping[str, Known]:
        """Every pod that the engine knows, by uid."""
        with self._lock:
            return dict(self._known)

    @property
    def names(self) -> Mapping[str, tuple[str, str]]:
        """Container id -> (pod uid, container name), as far as known."""
        return dict(self._enforcer.names)

    # ---- pods

    def pods_seen(self, pods: Iterable[Pod], *, ran: Collection[str] = ()) -> None:
        """Pods were listed, added or changed. Decided in order of creation, then saved once, then enforced once.

        Args:
            pods: any number.
            ran: uids of pods that run already: adopted, never refused (safety.md S4).
        """
        with self._lock:
            judge = self._memory.judge()

            def see(pod: Pod) -> list[Pod]:
                known = self._known.get(pod.uid)
                if known is not None and not known.ended and same(known.pod, pod):
                    self._known[pod.uid] = replace(known, pod=pod)
                    return []
                ran_before = pod.uid in ran or (known is not None and known.ran)
                return [pod, *self._try(pod, ran=ran_before, judge=judge)]

            self._decide_each(sorted(pods, key=lambda each: (each.created, each.uid)), see, ran)

    def adopt(
        self, pods: Iterable[Pod], names: Mapping[str, tuple[str, str]], words: Mapping[str, CarriedGrant],
        there: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Pods that run were listed for the first time, and the ledger may lack them: what they run on is theirs.

        From now on cgroups are written: what runs is known, and what is told of pods can be read back.

        As at a start (`agent.engine.recover`), for one that had neither a ledger nor the API server.

        Args:
            pods: all that run.
            names: their containers: id -> (pod uid, name).
            words: what they carry of an earlier agent, by uid.
            there: uids of all pods of the list.
        """
        with self._lock:
            observed = None if self.listening else self._observe()
            if observed is None:
                return
            self._enforcer.names.update(names)
            mine = sorted((pod for pod in pods if not self._exempt(pod)), key=lambda pod: (pod.created, pod.uid))

            def take(some: Sequence[Pod]) -> None:
                known, only = dict(self._known), {pod.uid for pod in some}
                with self._whole():
                    found = recover(
                        self._node, self._ledger, observed, self._enforcer.names, mine, words=words, only=only
                    )
                    self._ledger = found.ledger
                    for uid in found.adopted:
                        pod = found.ledger.pods[uid].pod
                        self._known[uid] = Known(pod, asked(self._node, pod), ran=True)
                if self._ledger != found.ledger:
                    self._known = known  # it could not be saved: they are decided as pods that ran
                for text in found.untold:
                    self._teller.problem("devices", text)

            def failed(pod: Pod, error: Exception) -> None:
                self._teller.problem("set-aside", f"what pod {pod.key} runs on is not known: {sentence(error)}")

            one_by_one(mine, take, failed)
            with self._alone("what containers run on that nobody knows"):
                self._ledger, left = keep(self._node, self._ledger, observed, {*there, *(pod.uid for pod in mine)})
                for uid, text in left.items():
                    self._known[uid] = Known(self._ledger.pods[uid].pod, Ask(), ran=True, ended=True)
                    self._teller.problem("unlisted", text)
                self._complete = True
            self._save()

    def pods_gone(self, uids: Iterable[str]) -> None:
        """Pods left the API. What they hold is freed when their cgroups have gone (safety.md S13)."""
        with self._lock:
            for uid in uids:
                known = self._known.get(uid)
                if known is not None:
                    self._known[uid] = replace(known, ended=True)
            self._publish()
            self._free()

    def pods_listed(self, uids: Collection[str]) -> None:
        """A complete list was read: whoever is not in it is gone. Nothing is freed before the first (S13)."""
        with self._lock:
            first, self._listed = not self.listening, True
            if first:
                self._save()  # the store has it as one that may lack somebody
            self.all_named()
            self.pods_gone([uid for uid in self._known if uid not in uids])

    def containers_seen(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Containers appeared: id -> (pod uid, name). What init containers before them held may go (spec 5.9)."""
        with self._lock:
            before, told_already = self._ledger, self._enforcer.names.items() >= names.items()
            self._enforcer.listen()
            self._enforcer.names.update(names)

            def started(spots: Sequence[tuple[str, str]]) -> None:
                with self._whole():
                    for uid, name in spots:
                        self._ledger = self._node.container_started(self._ledger, uid, name)
                    after = self._ledger
                if self._ledger != after:  # it could not be saved
                    self._unsaved_starts |= names

            def failed(spot: tuple[str, str], error: Exception) -> None:
                self._teller.problem("set-aside", f"container {spot[1]} of pod {spot[0]}: {sentence(error)}")

            one_by_one([spot for _, spot in sorted(names.items())], started, failed)
            if self._ledger != before or not told_already or self._enforcer.given_up:
                self._enforce()

    def containers_heard(self, names: Mapping[str, tuple[str, str]]) -> None:
        """The runtime is about to make containers: known to the next write, whoever holds the lock until then."""
        self._enforcer.hear(names)

    def container_gone(self, container_id: str) -> None:
        """The runtime removed a container: its id names nobody any more."""
        with self._lock:
            self._enforcer.listen()
            self._enforcer.names.pop(container_id, None)

    def all_named(self) -> None:
        """Every container that runs has been named, by a complete list of pods or by the runtime."""
        with self._lock:
            if not self._enforcer.all_named:
                self._enforcer.all_named = True
                self._enforce()

    def names_known(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Container ids and whose they are, learnt at start; nothing is written yet."""
        with self._lock:
            self._enforcer.names.update(names)

    def retry(self, uids: Iterable[str]) -> None:
        """Try refused and unsaved pods again, in order of creation; those that are in now are told."""
        with self._lock:
            known = [self._known[uid] for uid in uids if uid in self._known]
            self._again([each for each in known if (each.refusal is not None or each.unsaved) and not each.ended])

    def let_in(self) -> None:
        """Room may have appeared: whoever waits for it is tried, in order of arrival (safety.md S11)."""
        with self._lock:
            moving = {*pending(self._ledger), *(each.pod.uid for each in line_of(self._known, self._node.rules))}
            now = self._clock()
            moving -= self._aside.later(now)
            before, told, passed = self._ledger, list[Pod](), set[str]()

            def enter(uids: Sequence[str]) -> None:
                # in the order of the line, also one by one: nobody passes whoever came before
                known = {
                    uid: each for uid, each in self._known.items() if uid not in moving or uid in passed | {*uids}
                }
                with self._whole():
                    found = turn(
                        self._node, self._ledger, known, self._switches, self._following.given, now,
                        self._memory.judge(),
                    )  # fmt: skip
                    self._ledger = found.ledger
                    self._known.update(found.changed)
                passed.update(uids)
                told.extend(found.told)

            if moving and not self.unwritable:
                one_by_one(sorted(moving, key=self._came), enter, self._failed)
            if told:
                self._settle(before, told)

    def soften(self, uid: str, wish: OnMisalignment) -> None:
        """A refused pod's owner was refused too often: from now on something milder is done to it (safety.md S12)."""
        with self._lock:
            if uid in self._known:
                before = self._known[uid]
                self._known[uid] = softened(before, wish, self._clock())
                if len(line_of(self._known, self._node.rules)) > self._switches.most_waiting:
                    self._known[uid] = softened(
                        before, OnMisalignment.RUN, self._clock()
                    )  # no place in line (safety.md S11)
            self._publish()

    def devices_known(self, uid: str, given: Given) -> None:
        """The kubelet told which devices it gave a pod. One that is decided already may be decided once more."""
        with self._lock:
            self._following = self._following.tell(uid, given)
            self._rebuilt()
            before, known = self._ledger, self._known.get(uid)
            if known is None or known.exempt or known.ended or uid not in before.pods:
                return  # looked at when the pod is decided, or tried again
            started = known.ran or any(owner == uid for owner, _ in self._enforcer.names.values())
            others, changed = list[Pod](), False
            with self._alone(f"the devices of pod {known.pod.key}"), self._whole():
                self._ledger, again = self._following.late(self._node, before, uid, started=started)
                if again:
                    self._following = self._following.once_more(uid)
                    self._ledger = self._node.release(self._ledger, uid)
                    others = self._decide(known.pod, ran=known.ran, judge=self._memory.judge())
                changed = self._ledger != before
            if self._ledger != before:
                self._settle(before, [known.pod, *others])
            elif changed:  # it could not be saved: as it was, and told once more when it can
                self._known[uid] = replace(known, unsaved=True)
                self._following = replace(self._following, again=self._following.again - {uid})

    def devices_offered(self, offered: Iterable[Offered]) -> None:
        """The kubelet told which devices its plugins have; what the settings select of them is the plugins' (S22)."""
        with self._lock:
            self._following, new = self._following.offer(offered)
            for text in new:
                self._teller.problem("devices", text)
            self._rebuilt()

    # ---- time, machine, settings

    def reconcile(self, *, again: bool = True) -> tuple[Written, ...]:
        """Compare the kernel with the ledger and repair; free what ended meanwhile. On a timer and on demand.

        Args:
            again: try what the kernel refused, too; a look for every event leaves it to its back-off.
        """
        with self._lock:
            if again:
                self._enforcer.backoff.retry()
            if self._truce.over(self._clock()):
                self.switch(observe_only=False, source=FLAPPING)
            if self._pending is not None:
                self.changed(*self._pending)
            self._free()
            self._again([self._known[uid] for uid in self._aside.due(self._clock()) if uid in self._known])
            if not self.unwritable or self._save():
                self._follow_unsaved()
            self.let_in()
            return self._enforce()

    def changed(self, node: Node, switches: Switches | None = None) -> Carried:
        """Another machine or other settings are in force: every grant is carried over; what was lost is told.

        Where that goes wrong, all stays as it was, and it is tried again with each reconciliation.
        """
        with self._lock:
            before, was = self._ledger, (self._node, self._following, self._switches)
            fault, self._pending = self._pending is not None, (node, switches)
            with Survived(lambda error: self._not_changed(was, error, again=fault)):
                with self._whole():
                    self._following = replace(self._following, plain=node)
                    self._node = node = self._following.node(node)
                    self._switches = switches or self._switches
                    self._enforcer.lift_quota = self._switches.lift_quota
                    carried = carry(before, node)
                    self._ledger = carried.ledger
                    for uid, known in self._known.items():
                        ask = softer(asked(self._node, known.pod), known.softer)
                        self._known[uid] = replace(known, ask=ask, exempt=self._exempt(known.pod))
                if self._ledger != carried.ledger:
                    self._ledger = carried.ledger  # unsaved: the old one is of another machine
                self._pending = None
            if self._pending is not None:
                return Carried(self._ledger)
            for text in carried.sentences():
                self._teller.problem("lost", text)
            less = {loss.uid for loss in carried.losses}
            self._enforce(but=less)
            self._tell(known for uid, known in self._known.items() if uid in less and not known.ended)
            left_alone = [uid for uid, known in self._known.items() if known.exempt]
            self.retry(left_alone)  # no refusal of theirs stands any more (safety.md S2)
            return carried

    # ---- the inside; all of it needs the lock

    def _alone(self, what: str) -> Survived:
        """Whatever goes wrong inside leaves ledger and pods as they were, is told, and costs nobody else anything."""
        ledger, known = self._ledger, dict(self._known)

        def failed(error: Exception) -> None:
            self._ledger, self._known = ledger, known
            self._teller.problem("set-aside", f"{what}: {sentence(error)}")

        return Survived(failed)

    def _try(self, pod: Pod, *, ran: bool, judge: PressureCheck) -> list[Pod]:
        """Decide on a pod. One with which that goes wrong is set aside, with all that it holds, until it changes."""
        with self._alone(f"pod {pod.key} is set aside until it changes"):
            if was_set_aside(self._ledger, pod.uid):
                self._ledger = self._node.release(self._ledger, pod.uid)
            return self._decide(pod, ran=ran, judge=judge)
        known = self._known.get(pod.uid) or Known(pod, asked(self._node, pod), ran=ran)
        self._ledger, self._known[pod.uid] = set_aside(self._node, self._ledger, replace(known, pod=pod))
        return []

    def _decide(self, pod: Pod, *, ran: bool, judge: PressureCheck) -> list[Pod]:
        """Put a pod into the ledger, or a refusal beside it; other pods that have no place in line any more."""
        before = self._known.get(pod.uid) or Known(pod, Ask())
        known = Known(
            pod, softer(asked(self._node, pod), before.softer), exempt=self._exempt(pod), ran=ran,
            since=before.since, softer=before.softer,
        )  # fmt: skip
        final = refused_for_good(before, known, self._node.rules)
        if final is not None:
            self._known[pod.uid] = replace(known, refusal=final)
            return []
        self._ledger, self._known[pod.uid] = decided(
            self._node, self._ledger, known, given=self._following.given.get(pod.uid), unwritable=self.unwritable,
            switches=self._switches, now=self._clock(), line=line_of(self._known, self._node.rules, but=pod.uid),
            judge=judge,
        )  # fmt: skip
        out = crowded_out(self._known, self._node.rules, self._switches.most_waiting)
        self._known.update(out)
        return [each.pod for uid, each in out.items() if uid != pod.uid]

    def _follow_unsaved(self) -> None:
        """What could not be saved can be now: what the kubelet gave first, since it may place a pod anew."""
        unsaved = [uid for uid, known in self._known.items() if known.unsaved]
        started, self._unsaved_starts = self._unsaved_starts, {}
        if started:
            self.containers_seen(started)
        for uid in unsaved:
            if uid in self._following.given:
                self.devices_known(uid, self._following.given[uid])
        if unsaved:
            self.retry(unsaved)

    def _not_changed(self, was: tuple[Node, Following, Switches], error: Exception, *, again: bool) -> None:
        self._node, self._following, self._switches = was
        self._enforcer.lift_quota = self._switches.lift_quota
        if not again:
            text = f"what changed of machine or settings is not followed yet: {sentence(error)}"
            self._teller.problem("set-aside", text)

    def _again(self, tried: Collection[Known]) -> None:
        """Decide once more on pods; those that are in now are told."""
        judge, pods = self._memory.judge(), [each.pod for each in tried]
        ran = {each.pod.uid for each in tried if each.ran}

        def decide(pod: Pod) -> list[Pod]:
            others = self._try(pod, ran=pod.uid in ran, judge=judge)
            return others if self._known[pod.uid].refusal is not None else [pod, *others]

        if pods:
            self._decide_each(sorted(pods, key=lambda pod: (pod.created, pod.uid)), decide, ran)

    def _decide_each(self, pods: Sequence[Pod], decide: Callable[[Pod], list[Pod]], ran: Collection[str]) -> None:
        """Decide on pods in order, save once, enforce once, and tell.

        Where a rule of the books breaks, they are decided and saved one by one; whoever breaks it is set aside.

        Args:
            pods: in order.
            decide: puts one into ledger or refusal; the pods that are to be told of.
            ran: uids of pods that run already.
        """
        before, told = self._ledger, list[Pod]()

        def together(some: Sequence[Pod]) -> None:
            with self._whole():
                found = [each for pod in some for each in decide(pod)]
            self._aside = self._aside.without([pod.uid for pod in some])
            told.extend(found)

        def aside(pod: Pod, error: Exception) -> None:
            known = self._known.get(pod.uid) or Known(pod, asked(self._node, pod), ran=pod.uid in ran)
            self._failed(pod.uid, error, pod.key)
            with self._alone(f"pod {pod.key}"), self._whole():
                self._ledger, self._known[pod.uid] = set_aside(self._node, self._ledger, replace(known, pod=pod))
            self._known.setdefault(pod.uid, replace(known, pod=pod, unsaved=True))
            told.append(pod)

        one_by_one(pods, together, aside)
        self._settle(before, told)

    def _failed(self, uid: str, error: Exception, key: str = "") -> None:
        """A pod breaks something: it is left as it is, tried again later, and told once."""
        first, self._aside = uid not in self._aside.tries, self._aside.wrong(uid, self._clock())
        if first:
            key = key or self._known[uid].pod.key
            self._teller.problem("set-aside", f"pod {key} is set aside, and tried again later: {sentence(error)}")

    def _came(self, uid: str) -> tuple[float, str]:
        """The order of arrival in the line; a resize that waits has no place in it."""
        return self._known[uid].since if uid in self._known else 0.0, uid

    def _settle(self, before: Ledger, told: Iterable[Pod]) -> None:
        """After decisions that are saved: enforce, tell."""
        told = list(told)
        if self._commit(before):
            self._enforce(but={pod.uid for pod in told})
        self._publish()
        unbound = [each.pod for each in self._ledger.pods.values() if _less_bound(before, each)]
        self._tell(replace(self._known[pod.uid], pod=pod) for pod in (*told, *unbound))

    def _tell(self, pods: Iterable[Known]) -> None:
        for known in pods:
            if known.refusal is not None:
                self._teller.refused(known.pod, known.refusal, known.ask)
            elif known.pod.uid in self._ledger.pods:
                unenforced = self._standing.told.get(known.pod.uid, {})
                self._teller.admitted(known.pod, self.snapshot.ledger, known.ask, unenforced)

    def _free(self) -> None:
        """Release pods that ended and whose cgroups are gone; forget them."""
        ended = [uid for uid, known in self._known.items() if known.ended]
        observed = self._observe() if ended and self._listed else None
        if observed is None:
            return
        alive = {cgroup.pod_uid for cgroup in observed.cgroups}
        if not self._node.rules.cpu.static:
            self._enforcer.learn(self._ledger, self._node.rules, self._node.machine, observed)
        later, freed = self._aside.later(self._clock()), list[str]()

        def free(uids: Sequence[str]) -> None:
            with self._whole():
                for uid in uids:
                    self._ledger = self._node.release(self._ledger, uid)
            freed.extend(uid for uid in uids if uid not in self._ledger.pods)  # all, unless it cannot be saved

        one_by_one([uid for uid in sorted(ended) if uid not in alive | later], free, self._failed)
        if not freed:
            return
        self._following, self._standing = self._following.without(freed), self._standing.without(freed)
        self._aside = self._aside.without(freed)
        for uid in freed:
            del self._known[uid]
            self._enforcer.forget(uid)
            self._teller.released(uid)
        self.let_in()  # first, so that the pool does not widen by what others get at once (safety.md S6)
        self._enforce()

    def _rebuilt(self) -> None:
        self._node = self._following.node(self._node)
        self._publish()


def _less_bound(before: Ledger, record: PodRecord) -> bool:
    """Whether a pod's memory is not bound any more, since another pod came (`agent.core.memory.confined`)."""
    was = before.pods.get(record.pod.uid)
    return was is not None and was.bind_memory and not record.bind_memory
