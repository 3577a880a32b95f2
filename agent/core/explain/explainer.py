"""Explains one pod by admitting it again: to the ledger as it was before it, or, if it is not in, as it is now.

A ledger keeps what was granted, not why. So the admission is run once more with a trace, on the ledger without the
pod's own grants. Where that gives what the ledger says, the evidence is that of the decision itself; else the pods
that came after it are left out too; and where even that differs (pods of that time have ended, settings changed), it
is said, and the evidence is what the managers would answer now.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from agent.core.admission.node import Node
from agent.core.admission.pod import Step
from agent.core.admission.waiting import hopeless
from agent.core.cgroups.page_policies import asked
from agent.core.confine import align_requested
from agent.core.devices.claims import told
from agent.core.devices.kubelet import explained, given_to, handed_over
from agent.core.devices.nearness import pairs_of, sentences
from agent.core.explain.case import Case
from agent.core.explain.cause import with_cause
from agent.core.explain.grants import beside_movable, gives, grants_of, held_words, holdings_of
from agent.core.explain.merges import MergeExplainer
from agent.core.explain.nearer import nearer
from agent.core.explain.remarks import beyond, remarks
from agent.core.explain.remedies import Found, remedies
from agent.core.explain.requested import requested_resources
from agent.core.explain.standing import PodStanding
from agent.core.explain.summary import Facts, answer, fate
from agent.core.explain.supply import Counter
from agent.core.explain.values import AsOf, Explanation, Holding, Merge, Origin, Verdict
from agent.core.request import isolated
from agent.core.request.annotations import PodSettings, pod_settings
from agent.model.ledger import Ledger, PodRecord
from agent.model.outcome import Admitted, Reason, Refusal
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment, Policy, Scope


@dataclass(frozen=True, slots=True)
class _Run:
    """One admission, traced. `ledger` is None when it was refused."""

    case: Case
    ledger: Ledger | None
    refusal: Refusal | None
    merges: tuple[Merge, ...]


_UNKNOWN = PodStanding()


def explain(
    node: Node,
    ledger: Ledger,
    pod: Pod,
    *,
    settings: PodSettings | None = None,
    standing: PodStanding = _UNKNOWN,
    search: bool = True,
) -> Explanation:
    """Explain a pod.

    Args:
        node: the managers.
        ledger: what each pod holds now; the pod may be in it or not.
        pod: the pod; of one in the ledger, the ledger's own record of it is taken.
        settings: its own; read from its annotations if not given.
        standing: what else is known of it.
        search: look for remedies; many admissions are tried for that (`agent.core.explain.remedies`).
    """
    record = ledger.pods.get(pod.uid)
    pod = record.pod if record else pod
    settings = settings or pod_settings(pod, node.rules.cpu.options, node.rules.topology.policy)
    explainer = _Explainer(node, ledger, pod, settings, standing, search=search)
    if standing.exempt or not settings.pin:
        return explainer.unscheduled() if explainer.beyond else explainer.left_alone()
    if record is None:
        return explainer.outside()
    return explainer.inside(record) if record.affinity or not pod.containers else explainer.beside(record)


class _Explainer:
    """Explains one pod."""

    def __init__(
        self, node: Node, ledger: Ledger, pod: Pod, settings: PodSettings, standing: PodStanding, *, search: bool
    ) -> None:
        self.node = node
        self.ledger = ledger
        self.pod = pod
        self.settings = settings
        self.standing = standing
        self.search = search
        self.given = standing.given or given_to(ledger, node.inventory, pod.uid)
        said = remarks(node, pod, self.given, claims=standing.claims)
        self.first = (*map(str, settings.problems), *(each.text for each in said if each.first))
        self.partly = any(each.first for each in said)
        self.notes = [each.text for each in said if not each.first and each.topic != "whole"]  # its reasons say that
        self.beyond = beyond(pod, standing.room) if standing.hypothetical and standing.room is not None else ()
        self.record: PodRecord | None = None

    def left_alone(self) -> Explanation:
        """Explain an exempt pod. It keeps what it was granted before that: a pod that runs is never moved."""
        why = self.standing.exempt or "its annotation numalign.io/pin is false"
        held = held_words(self.node, self.ledger, self.pod)
        topology = self.node.rules.topology
        return Explanation(
            self.pod.key, self.pod.uid, self.pod.qos.value, Verdict.LEFT_ALONE,
            summary=f"{self.pod.key} is left alone: {why}",
            policy=topology.policy, policy_from=Origin.NODE, scope=topology.scope, scope_from=Origin.NODE,
            reasons=(
                f"{held}, and keeps that until it ends" if held
                else "it is neither refused nor pinned; it runs on the shared pool",
            ),
            requests=requested_resources(self.node, self.pod),
            holdings=holdings_of(self.node, self.ledger, self.pod) if self.pod.uid in self.ledger.pods else (),
            answers=self.node.rules.answers, first=self.first,
        )  # fmt: skip

    def unscheduled(self) -> Explanation:
        """It requests more than the machine has: no scheduler sends it here."""
        return self._made(Verdict.UNSCHEDULABLE, self._run(self._case()), Found(), AsOf.NOW, ())

    def inside(self, record: PodRecord) -> Explanation:
        """In the ledger, by the managers' decision."""
        self.record = record
        admitted = replace(self.settings, policy=Policy(record.policy), scope=Scope(record.scope))
        run, as_of = self._reproduced(replace(self._case(), settings=admitted))
        if record.adopted:
            self.notes.append("it ran before the agent: it was pinned where it could be, and never asked to leave")
        return self._placed(run, holdings_of(self.node, self.ledger, self.pod), as_of)

    def beside(self, record: PodRecord) -> Explanation:
        """Explain a pod of the ledger that holds nothing: it was refused and runs, or was never decided on."""
        self.record = record
        run = self._run(self._case())
        got = holdings_of(self.node, self.ledger, self.pod)
        refusal = self.standing.refusal or refusal_in(record)
        if refusal is not None:
            return self._refused(run, refusal, got)
        why = "it ran before the agent" if record.adopted else "it was left alone when it came"
        self.notes.append(
            f"{why}, so nothing was decided; the hints and merges are what the managers would answer now"
        )
        return self._made(Verdict.SHARED, run, Found(), AsOf.NOW, got)

    def outside(self) -> Explanation:
        """Not in the ledger: refused, waiting, or not there yet."""
        run = self._run(self._case())
        if self.standing.refusal is not None or run.ledger is None:
            return self._refused(run, self.standing.refusal, ())
        if self.beyond:
            return self._made(Verdict.UNSCHEDULABLE, run, Found(), AsOf.NOW, ())
        return self._placed(run, holdings_of(self.node, run.ledger, self.pod), AsOf.NOW)

    def _placed(self, run: _Run, got: tuple[Holding, ...], as_of: AsOf) -> Explanation:
        verdict = Verdict.ALIGNED
        if not all(each.aligned for each in got):
            verdict = Verdict.NOT_PREFERRED
        elif not any(each.cpus or each.nodes or each.devices for each in got):
            verdict = Verdict.SHARED
        found, movable = Found(), beside_movable(run.ledger or self.ledger, self.pod.uid, self.node.machine)
        self.notes += [movable] if movable else []
        if run.ledger is not None and (self.record is None or as_of is AsOf.ADMISSION):
            self.notes += filter(None, [nearer(self.node, run.case, run.ledger)])
        if verdict is Verdict.NOT_PREFERRED and run.ledger is not None and run.ledger.pods[self.pod.uid].is_aligned:
            self.notes.append(f"created again now, it would be aligned: {self._would(run.ledger)}")
        elif verdict is Verdict.NOT_PREFERRED and self.search:
            found = remedies(self.node, run.case, aligned=True)
        return self._made(verdict, run, found, as_of, got)

    def _would(self, ledger: Ledger) -> str:
        given = gives(self.node, ledger, self.pod)
        return "; ".join(f"{name}: {text}" if len(given) > 1 else text for name, text in given.items())

    def _refused(self, run: _Run, before: Refusal | None, got: tuple[Holding, ...]) -> Explanation:
        found = Found()
        if run.ledger is not None:
            behind = before is not None and before.reason is Reason.BEHIND
            first = "pods that wait are served first; alone" if behind else "there is room by now: tried again"
            self.notes.append(f"{first}, it would get in: {self._would(run.ledger)}")
        elif self.search:
            found = remedies(self.node, run.case)
        # what was decided last counts, unless the managers say more now (a saved ledger keeps the sentence only)
        keeps = before is not None and (run.refusal is None or bool(before.facts))
        refusal = before if keeps else run.refusal
        wish = self.settings.on_misalignment or self.node.rules.on_misalignment
        if self.standing.hypothetical and run.ledger is None and wish is OnMisalignment.WAIT:
            refusal = self._for_good() or refusal
        refusal = with_cause(self.node, run.case, refusal, self._handed) if refusal else None
        return self._made(Verdict.REFUSED, replace(run, refusal=refusal), found, AsOf.NOW, got)

    def _for_good(self) -> Refusal | None:
        """What the agent tells of a pod that it lets wait for nothing, since an empty node would refuse it, too."""
        return hopeless(self.node, self.pod, self.settings, lambda ledger, _: self._handed(ledger))

    # ---- the evidence

    def _case(self, others: Collection[str] = ()) -> Case:
        """Admit it again: without what the pod holds, but for what the kubelet gave it; without some other pods."""
        ledger = self.ledger
        for uid in (*others, self.pod.uid):
            ledger = self.node.release(ledger, uid)
        return Case(self._handed(ledger), self.pod, self.settings)

    def _run(self, case: Case) -> _Run:
        steps = list[Step]()
        outcome = case.admit(self.node, steps.append)
        counter = Counter(self.node, self.pod, case.options(self.node))
        reporter = MergeExplainer(self.node, counter, self.node.rules.topology.prefer_closest)
        merges = tuple(reporter.merge(step) for step in steps)
        if isinstance(outcome, Admitted):
            return _Run(case, outcome.ledger, None, merges)
        refusal = explained(outcome.refusal, case.ledger, self.node.inventory, self.pod)
        return _Run(case, None, refusal, merges)

    def _handed(self, ledger: Ledger) -> Ledger:
        """A ledger in which the pod holds what the kubelet gave it."""
        return handed_over(ledger, self.pod, self.given) if self.given else ledger

    def _reproduced(self, case: Case) -> tuple[_Run, AsOf]:
        """The run that gives what the ledger says, if any does."""
        run = self._run(case)
        if self._same(run):
            return run, AsOf.ADMISSION
        mine = (self.pod.created, self.pod.uid)
        later = [uid for uid, each in self.ledger.pods.items() if (each.pod.created, uid) > mine]
        again = self._run(replace(case, ledger=self._case(later).ledger)) if later else run
        if later and self._same(again):
            came = "1 pod that came later is" if len(later) == 1 else f"{len(later)} pods that came later are"
            self.notes.append(f"this is as of its admission: {came} left out of the numbers")
            return again, AsOf.ADMISSION
        self.notes.append(
            "since its admission pods have ended, or settings or devices have changed; it keeps what it has, and the "
            "hints and merges are what the managers would answer now"
        )
        return run, AsOf.NOW

    def _same(self, run: _Run) -> bool:
        """Whether a run grants what the ledger says."""
        return run.ledger is not None and grants_of(run.ledger, self.pod) == grants_of(self.ledger, self.pod)

    def _made(
        self, verdict: Verdict, run: _Run, found: Found, as_of: AsOf, got: tuple[Holding, ...]
    ) -> Explanation:  # fmt: skip
        rules, case = self.node.rules, run.case
        policy, scope = case.settings.policy or rules.topology.policy, case.settings.scope or rules.topology.scope
        confined = align_requested(self.pod)[0]
        facts = Facts(
            self.node, self.pod.key, verdict, policy, requested_resources(self.node, self.pod), run.merges, got,
            run.refusal, self.settings.on_misalignment or rules.on_misalignment,
            hypothetical=self.standing.hypothetical, runs=self.record is not None,
            adopted=bool(self.record and self.record.adopted),
            fits_now=run.ledger is not None and not (run.refusal and run.refusal.reason is Reason.BEHIND),
            beyond=self.beyond, partly=self.partly,
        )  # fmt: skip
        summary, reasons = answer(facts)
        holding = self.ledger if self.record is not None else run.ledger
        own = [each.cpus for each in got]
        near = pairs_of(holding, self.pod.uid, self.node.machine, rules) if holding is not None else ()
        return Explanation(
            self.pod.key, self.pod.uid, self.pod.qos.value, verdict, summary,
            policy=policy, policy_from=_source(self.settings.policy, policy, rules.topology.policy),
            scope=Scope.POD if confined else scope,
            scope_from=Origin.CONFINED if confined else _source(self.settings.scope, scope, rules.topology.scope),
            fate=fate(facts), reasons=reasons, requests=facts.requests, merges=run.merges, holdings=got,
            refusal=run.refusal, remedies=found.remedies, searched=found.searched, as_of=as_of,
            notes=(
                *self.notes, *told(holding or run.case.ledger, self.pod.uid), *sentences(near),
                *asked(holding or run.case.ledger, self.pod.uid, rules, self.node.machine),
                *filter(None, (isolated.note(own, self.node.machine), isolated.counted(self.pod, rules))),
            ),
            answers=rules.answers, first=self.first,
        )  # fmt: skip


def refusal_in(record: PodRecord) -> Refusal | None:
    """The refusal that a record of a pod on the shared pool tells of (`agent.node.tracked_pod.on_shared_pool`)."""
    why = record.why.get("", "")
    word, colon, message = why.partition(": ")
    return Refusal(Reason(word), message) if colon and word in set(Reason) else None


def _source(asked: Policy | Scope | None, now: Policy | Scope, default: Policy | Scope) -> Origin:
    if asked is not None and asked == now:
        return Origin.POD
    return Origin.NODE if now == default else Origin.ADMISSION
