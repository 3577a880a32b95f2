"""Reports the engine's decisions to the API: annotations, conditions, Events, and the end of refused pods.

Called by the engine (`agent.engine.ports.Reporter`) and by the intake (`agent.kube.watch.intake.PodListener`), each
on its own thread; hands everything to the publisher's queue at once.

A refused pod's own wish, else the node's setting, says what becomes of it: `run` leaves it on the shared pool, `wait`
leaves it to the runtime's error (`agent.host.nri.driver`), `fail` has the kubelet end it (decision 7), `evict` asks
for its eviction. Pods that ran before the agent came are only reported (safety.md S4); one owner's pods are not
failed without end (S12).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.core.admission.waiting import FINAL, OPEN
from agent.core.cgroups.enforced import IN_FORCE, Unenforced
from agent.core.request.annotations import PodSettings, Problem
from agent.core.request.late import LATE, late
from agent.kube import pod_report as pod_reports
from agent.kube.objects.kept_fields import slim
from agent.kube.objects.pod_objects import Raw, SeenPod, identity
from agent.kube.publishing.publisher import Notice, Publisher, Regarding
from agent.kube.publishing.refusal_limiter import RefusalLimiter, owner_of
from agent.model import notes
from agent.model.cgroup import Written
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.outcome import UNSAVED, Refusal
from agent.model.pod import Pod
from agent.model.rules import OnMisalignment, Rules

FULL = (
    f"it has more than {notes.MOST_TO_TOUCH} annotations, and each write to it would cost the API server more "
    "than it may; it is decided like any other, and what it carries of numalign may be old"
)
Count = Callable[[str, str], None]
"""Called with (what, label): ("action", "fail"), ("storm", "run"), ("malformed", "pod")."""


@dataclass(frozen=True, slots=True)
class _Face:
    """A pod as the API knows it; `body` is what is kept of it, `wishes` its own annotations that count at its start.

    One that is `full` of annotations is never written to, but for its deadline (`agent.model.notes`).
    """

    api_uid: str
    namespace: str
    name: str
    body: Raw
    ran: bool
    full: bool = False
    wishes: Mapping[str, str] = field(default_factory=dict)


class PodReporter:
    """Reports to the API.

    Args:
        publisher: the queue.
        node: this Node, for Events about it.
        facts: the machine and the rules now.
        ran: whether a pod of this uid had containers when the agent began: then nothing is done to it, nor to one
            that had run for longer than a start takes when it was heard of first.
        most_refusals: of one owner within an hour (safety.md S12).
        fallback: what `fail` and `evict` become beyond that.
        hints: which devices containers cannot use through a file (safety.md S22).
        note: a sentence beside the grant of a pod, by uid.
        exempt: why a pod is left alone (safety.md S2): nothing is written to it then.
        acting: False while only observing: pods are reported, and nothing is done to them (safety rule S3).
    """

    def __init__(
        self,
        publisher: Publisher,
        node: Regarding,
        facts: Callable[[], tuple[Machine, Rules]],
        *,
        ran: Callable[[str], bool] = lambda _uid: False,
        most_refusals: int = 5,
        fallback: OnMisalignment = OnMisalignment.RUN,
        acting: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
        count: Count = lambda _what, _label: None,
        hints: pod_reports.Hints = pod_reports.no_hints,
        note: Callable[[str], str] = lambda _uid: "",
        exempt: Callable[[Pod], str] = lambda _pod: "",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._publisher = publisher
        self._node = node
        self._facts = facts
        self._hints = hints
        self._note = note
        self._exempt = exempt
        self._ran, self._now = ran, now
        self._fallback = fallback
        self._acting = acting
        self._count = count
        self._refusals = RefusalLimiter(most_refusals, clock)
        self._lock = threading.Lock()
        self._faces: dict[str, _Face] = {}
        self._mild: set[str] = set()
        self._kept_back: dict[str, pod_reports.PodReport] = {}
        """The last report for each pod that is full of annotations, by the API's uid."""
        self._left = False

    def configure(self, most_refusals: int, fallback: OnMisalignment) -> None:
        """Other settings are in force from now on."""
        self._refusals.most, self._fallback = most_refusals, fallback

    def leave(self, *, decommission: bool = True) -> None:
        """Take numalign's annotations and conditions off every pod (safety rule S18); or report again."""
        self._left = decommission
        with self._lock:
            faces = [face for face in self._faces.values() if not face.full] if decommission else []
        for face in faces:
            nothing = pod_reports.nothing(face.api_uid, face.namespace, face.name)
            if self._publisher.has_report(face.api_uid) or not pod_reports.carried(face.body, nothing):
                self._publisher.publish(nothing)

    def bodies(self) -> tuple[Raw, ...]:
        """The pods of this node as the API showed them last; none while the node is being left."""
        with self._lock:
            return () if self._left else tuple(face.body for face in self._faces.values())

    # ---- from the intake

    def pod_seen(self, body: Raw, found: SeenPod) -> None:
        """Remember how the API calls a pod, and what it carries already."""
        ran = found.started and self._ran(found.pod.uid)
        annotations = (body.get("metadata") or {}).get("annotations") or {}
        full = notes.too_many(annotations)
        with self._lock:
            word = None if full else self._kept_back.pop(found.api_uid, None)
            if found.pod.uid not in self._faces and pod_reports.softened(body):
                self._mild.add(found.api_uid)
            known = self._faces.get(found.pod.uid)
            ran = ran or (found.ran(self._now()) if known is None else known.ran)
            self._faces[found.pod.uid] = _Face(
                found.api_uid,
                found.pod.namespace,
                found.pod.name,
                slim(body),
                ran,
                full,
                {name: text for name, text in notes.bounded_texts(annotations).items() if name in LATE},
            )
        if word is not None and not self._left and (not found.ended or pod_reports.is_refusal(word)):
            self._publisher.publish(word)
        elif not full:
            self._publisher.seen(found.api_uid, lambda report: pod_reports.carried(body, report))

    def pod_malformed(self, body: Raw, why: str) -> None:
        """Record an Event on a pod that cannot be read."""
        uid, key = identity(body)
        namespace, _, name = key.partition("/")
        self._count("malformed", "pod")
        about = Regarding("Pod", namespace, name, uid)
        self._publisher.record(Notice(about, "Warning", "MalformedPod", f"numalign cannot read this pod: {why}"))

    def pod_gone(self, uid: str) -> None:
        """Forget a pod that left the API."""
        with self._lock:
            face = self._faces.pop(uid, None)
            if face is not None:
                self._mild.discard(face.api_uid)
                self._kept_back.pop(face.api_uid, None)
        if face is not None:
            self._publisher.forget(face.api_uid)

    # ---- from the engine

    def admitted(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced = IN_FORCE) -> None:
        """Report the grant of a pod, and its bad annotations."""
        face = self._face(pod.uid)
        if face is not None and not self._left and not self._exempt(pod):
            self._admitted(face, pod.uid, ledger, unenforced)
            self._problems(face, (*settings.problems, *late(face.wishes, ledger.pods[pod.uid])))

    def enforced(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced) -> None:  # noqa: ARG002 - of the protocol
        """Report the grant once more: what the kernel has in force has changed."""
        face = self._face(pod.uid)
        if face is not None and not self._left and not self._exempt(pod):
            self._admitted(face, pod.uid, ledger, unenforced)

    def _admitted(self, face: _Face, uid: str, ledger: Ledger, unenforced: Unenforced) -> None:
        machine, rules = self._facts()
        told = pod_reports.admitted(uid, ledger, machine, self._hints, unenforced, rules, self._note(uid))
        if told.reason in pod_reports.WARNED and not pod_reports.carried_but_pinned(face.body, told):
            about = Regarding("Pod", face.namespace, face.name, face.api_uid)
            self._publisher.record(Notice(about, "Warning", told.reason, told.message))
        self._tell(face, told)

    def retold(self, pod: Pod, ledger: Ledger, settings: PodSettings, unenforced: Unenforced = IN_FORCE) -> None:
        """Report a pod of the saved ledger after a restart, in case the agent before could not.

        A pod that was refused and runs on the shared pool keeps the report of its refusal.
        """
        face = self._face(pod.uid)
        words = (face.body.get("metadata") or {}).get("annotations") if face else None
        if '"refused":' in str((words or {}).get(pod_reports.ASSIGNMENT, "")) and ledger.pods[pod.uid].why:
            return
        self.admitted(pod, ledger, settings, unenforced)

    def refused(self, pod: Pod, refusal: Refusal, settings: PodSettings) -> OnMisalignment | None:
        """Report a refusal and carry out the pod's wish.

        Returns:
            The milder wish that replaces it, if its owner had too many pods refused (safety.md S12).
        """
        face = self._face(pod.uid)
        if face is None or self._left:
            return None
        _, rules = self._facts()
        policy, scope = settings.policy or rules.topology.policy, settings.scope or rules.topology.scope
        wish = settings.on_misalignment or rules.on_misalignment
        if wish is OnMisalignment.WAIT and FINAL in refusal.facts:
            wish = OnMisalignment.FAIL
        waits = wish is OnMisalignment.WAIT
        ends = not {UNSAVED, OPEN} & {*refusal.facts} and self._ends(face, wish)
        instead = self._fallback.value if self._too_often(face, counts=ends) else ""
        told = pod_reports.refused(
            pod.uid, pod.namespace, pod.name, refusal, policy=policy, scope=scope, instead=instead, waits=waits
        )
        self._tell(face, told)
        about = Regarding("Pod", face.namespace, face.name, face.api_uid)
        topic = "waits" if waits and UNSAVED not in refusal.facts else ""  # other numbers are no other Event
        said = refusal.reason.value, refusal.message, refusal.details
        self._publisher.record(Notice(about, "Warning", *said, topic))
        self._problems(face, settings.problems)
        if ends and instead:
            self._softened(face, wish)
            return self._fallback
        if ends:
            self._act(face, wish)
        return None

    def released(self, uid: str) -> None:
        """Stop reporting a pod that has ended; it may stay in the API for long."""
        face = self._face(uid)
        if face is not None and face.full:
            self._publisher.forget(face.api_uid)
        elif face is not None:
            self._publisher.ended(face.api_uid)

    def written(self, results: tuple[Written, ...]) -> None:
        """Do nothing: writes are for metrics and logs."""

    def problem(self, what: str, text: str) -> None:
        """Record an Event about the Node."""
        self._publisher.record(Notice(self._node, "Warning", _reason(what), text))

    # ---- the inside

    def _face(self, uid: str) -> _Face | None:
        with self._lock:
            return self._faces.get(uid)

    def _tell(self, face: _Face, told: pod_reports.PodReport) -> None:
        """Publish a report under the API's own uid, unless the pod carries it already."""
        told = replace(told, uid=face.api_uid)
        if face.full:
            with self._lock:
                self._kept_back[face.api_uid] = told
            self._publisher.keep_back(told, FULL)
            return
        if not self._publisher.has_report(told.uid) and pod_reports.carried_but_pinned(face.body, told):
            pinned = told.pinned if pod_reports.carried(face.body, told) else pod_reports.ABSENT
            # later the body may be older than the last report
            self._publisher.carried_already(replace(told, pinned=pinned))
        self._publisher.publish(told)

    def _problems(self, face: _Face, problems: Sequence[Problem]) -> None:
        if problems:
            about = Regarding("Pod", face.namespace, face.name, face.api_uid)
            text = "; ".join(map(str, problems))
            self._publisher.record(Notice(about, "Warning", "BadAnnotation", text[: pod_reports.MAX_MESSAGE]))

    def _ends(self, face: _Face, wish: OnMisalignment) -> bool:
        """Whether a refused pod is to be ended."""
        if face.ran or not self._acting() or wish in {OnMisalignment.RUN, OnMisalignment.WAIT}:
            return False
        done = (face.body.get("spec") or {}).get("activeDeadlineSeconds") == 1 or _leaving(face.body)
        return not done  # a pod with that deadline, or that is being deleted, ends without us

    def _too_often(self, face: _Face, *, counts: bool) -> bool:
        """Whether its owner had too many refused; once so, it stays so for this pod (safety.md S12)."""
        with self._lock:
            return face.api_uid in self._mild or (counts and not self._refusals.another(owner_of(face.body)))

    def _softened(self, face: _Face, wish: OnMisalignment) -> None:
        with self._lock:
            new = face.api_uid not in self._mild
            self._mild.add(face.api_uid)
        if new:
            self._count("storm", self._fallback.value)
            text = f"refused too often within an hour; {self._fallback} instead of {wish}"
            about = Regarding("Pod", face.namespace, face.name, face.api_uid)
            self._publisher.record(Notice(about, "Warning", "TooManyRefusals", text))

    def _act(self, face: _Face, wish: OnMisalignment) -> None:
        def done() -> None:
            self._count("action", wish.value)

        if wish is OnMisalignment.FAIL:
            self._publisher.fail(face.api_uid, face.namespace, face.name, marked=not face.full, done=done)
        else:
            self._publisher.evict(face.api_uid, face.namespace, face.name, done=done)


def _leaving(body: Raw) -> bool:
    return "deletionTimestamp" in (body.get("metadata") or {})


def _reason(what: str) -> str:
    """An Event's reason from a problem's word: "checkpoint" -> "NumalignCheckpoint"."""
    return "Numalign" + "".join(part.capitalize() for part in what.replace("-", " ").split())
