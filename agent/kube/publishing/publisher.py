"""Tells people: one queue, one thread, one request per change. Started by `agent.app`.

What a pod shall carry is kept by uid, the newest wins, so an outage of any length ends in one request per pod. The
annotations and the condition travel together in one patch of pods/status, with the pod's uid as a precondition: a
StatefulSet's next pod of the same name is never touched. Failures are tried again with growing, jittered delays, for
as long as the pod exists; a pod that is gone is forgotten.

Namespaces take turns (`agent.kube.publishing.fair_queue`); Events come last (`agent.kube.publishing.notices`). One
pod is told something new once a second at most; that it has its CPUs no more it is told at once, before what others
are told.

A refusal (409, 422) is not the pod's absence: an admission policy may deny the patch, or its annotations be full. The
pod is looked at once. If it is there, its condition is told without the annotations, and ours are taken off, so that
none tells what is over. What is refused is tried again rarely, and told: by an Event, in the log, and as a metric.

A pod whose words somebody wrote over is told again (`agent.kube.publishing.overwritten`).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from agent.errors import KubeError
from agent.kube.client import KubeClient
from agent.kube.pod_report import NOT_ENFORCED, PodReport, is_refusal
from agent.kube.publishing.fair_queue import FairQueue, Job, Key
from agent.kube.publishing.notices import Notice, Notices, Regarding
from agent.kube.publishing.overwritten import Overwritten
from agent.kube.publishing.pod_requests import CONFLICT, INVALID, NOT_FOUND, PodRequests
from agent.model.fields import plain, shortened
from agent.node.fault_isolation import MOST, sentence

FIRST_DELAY, LONGEST_DELAY, LONGEST_REFUSED = 0.5, 60.0, 600.0
BETWEEN = 1.0
"""Seconds between two reports of one pod."""
RARELY = 6
"""The attempt that a refused annotation counts as: tried again after half a minute, then more and more rarely."""
LASTS = 5.0
"""Seconds after which a grant that is not in force is worth an Event."""
TURNS = 10
"""After so many other requests an Event that is due has its turn."""
FAILS, FAILURES = 60.0, 3
"""Seconds of nothing but failures, and how many, after which the agent is not ready: it decides, and tells no pod."""
TAKEN = frozenset({NOT_FOUND, CONFLICT, INVALID, 429})
"""Answers on one object; the API server can be written to."""
UNTAKEN = frozenset({400, 403, NOT_FOUND, CONFLICT, INVALID})
"""Answers after which an Event is not tried again: its object or namespace is gone, or nobody may write there."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Action:
    """What is to be done to a pod; without a name nobody looks whether it is still there."""

    send: Callable[[], None]
    done: Callable[[], None] = lambda: None
    namespace: str = ""
    name: str = ""


class Publisher:
    """The queue. All methods but `turn` are thread-safe and return at once.

    Args:
        client: for the requests.
        node: this Node's name.
        dropped: told why an Event is not recorded (`agent.kube.publishing.notices`).
        refused: told what ("story", "fail", ...) the API server refuses though the pod is there; once per pod.
    """

    def __init__(
        self,
        client: KubeClient,
        node: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        dropped: Callable[[str], None] = lambda _why: None,
        refused: Callable[[str], None] = lambda _what: None,
    ) -> None:
        self._pods = PodRequests(client, node, now)
        self._clock = clock
        self._refused = refused
        self._wake = threading.Condition()
        self._reports: dict[str, PodReport] = {}
        self._told: dict[str, PodReport] = {}
        self._unsure: set[str] = set()  # uids of pods to which something was sent whose answer has not come
        self._bare: set[str] = set()  # uids of pods that carry their condition, and not their annotations: refused
        self._over: set[str] = set()  # uids of pods that have ended, and are to carry why they were refused
        self._overwritten = Overwritten()
        self._actions: dict[Key, _Action] = {}
        self._notices = Notices(clock, dropped)
        self._jobs = FairQueue()
        self._sent_at: dict[str, float] = {}  # uid -> when its last report was sent
        self._denied: set[Key] = set()
        self._since_notice = 0
        self._fails: tuple[float, int, str] | None = None  # since when every request failed, how many, why the last
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within: float = 5.0) -> None:
        """Send what is due now, then end."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(within)

    @property
    def waiting(self) -> int:
        """How many things are not told yet."""
        with self._wake:
            return len(self._reports) + len(self._notices) + len(self._actions)

    @property
    def untold(self) -> int:
        """How many pods do not carry yet what they shall, or are not done to what shall be."""
        with self._wake:
            return len(self._reports) + len(self._actions)

    def failing(self) -> str:
        """That nothing can be written, and why; "" while there is nothing to write, or it has not lasted for long."""
        with self._wake:
            since, count, why = self._fails or (self._clock(), 0, "")
            lasts = self._clock() - since
            there = self._reports or self._actions or len(self._notices)
        if not there or lasts < FAILS or count < FAILURES:
            return ""
        return f"nothing could be told to the API server for {lasts:.0f} s: {why}"

    def _note(self, error: Exception | None) -> None:
        """Whether requests fail: the answer to one, or its failure."""
        status = error.status if isinstance(error, KubeError) else None
        with self._wake:
            if error is None or status in TAKEN:
                self._fails = None
            elif status is not None:
                since, count, _ = self._fails or (self._clock(), 0, "")
                self._fails = since, count + 1, sentence(error)

    def publish(self, report: PodReport) -> None:
        """Make a pod carry a report; nothing is sent when it was the last one told."""
        with self._wake:
            if report.reason != NOT_ENFORCED:
                self._notices.withdraw(report.uid)
            key, same = ("status", report.uid), self._told.get(report.uid) == report
            if same and report.uid not in self._unsure | self._bare:
                if report.uid not in self._overwritten.lost:
                    self._reports.pop(report.uid, None)
                return
            self._reports[report.uid] = report
            if not same:
                if report.uid in self._bare | self._overwritten.lost:
                    self._jobs.drop(key)  # the next try of older words may be minutes away
                self._overwritten.sent(report.uid, anew=True)
            at_once = self._claims(report.uid) and report.status != "True"
            if at_once and not same:
                self._jobs.hasten(key, self._clock())
                self._wake.notify()
            self._schedule(key, report.namespace, 0.0 if at_once else self._rest(report.uid))

    def keep_back(self, report: PodReport, why: str) -> None:
        """A pod is not to be written to: nothing is sent, and that is told once."""
        with self._wake:
            self._reports.pop(report.uid, None)
            self._told.pop(report.uid, None)
        self._deny(("status", report.uid), report.namespace, report.name, why)

    def carried_already(self, report: PodReport) -> None:
        """The pod was seen carrying this already: after a restart nothing is written again."""
        with self._wake:
            self._told[report.uid] = report
            self._overwritten.seen_with(report.uid)

    def seen(self, uid: str, carries: Callable[[PodReport], bool]) -> None:
        """The API shows a pod; one that carried what it was told, and does so no more, is told again.

        Args:
            uid: the API's.
            carries: whether it carries a report now.
        """
        with self._wake:
            report, next_ = self._told.get(uid), self._reports.get(uid)
            if report is None or (next_ is not None and next_ != report):
                return
            if carries(report):
                if uid in self._overwritten.lost:
                    self._reports.pop(uid, None)
                    self._jobs.drop(("status", uid))
                self._overwritten.seen_with(uid)
            elif (rest := self._overwritten.seen_without(uid)) is not None:
                self._reports[uid] = report
                self._schedule(("status", uid), report.namespace, _jitter(rest))

    def has_report(self, uid: str) -> bool:
        """Whether something was told, or is to be told, of a pod."""
        with self._wake:
            return uid in self._told or uid in self._reports

    def ended(self, uid: str) -> None:
        """The pod has ended: nothing is done to it, and what it had is over.

        It may stay in the API for long: that it was refused is told still, and words that are taken back are.
        """
        with self._wake:
            report = self._reports.get(uid)
            if report is None or (report.status and not is_refusal(report)):
                self.forget(uid)
                return
            self._over.add(uid)
            for key in [each for each in self._actions if each[1] == uid]:
                del self._actions[key]
                self._jobs.drop(key)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        with self._wake:
            for table in (self._reports, self._told, self._sent_at):
                table.pop(uid, None)
            for those in (self._unsure, self._bare, self._over):
                those.discard(uid)
            self._overwritten.forget(uid)
            self._notices.withdraw(uid)
            self._actions = {key: action for key, action in self._actions.items() if key[1] != uid}
            self._jobs.forget(uid)
            self._denied = {key for key in self._denied if key[1] != uid}

    def record(self, notice: Notice) -> None:
        """Record an Event, unless the same was recorded a moment ago or there were too many.

        That a grant is not in force is often over as soon as a container has its name: of that the condition tells
        at once, and an Event only if it lasts.
        """
        with self._wake:
            if notice.reason == NOT_ENFORCED:
                self._notices.hold(notice, LASTS)
            else:
                self._notices.add(notice)
            self._wake.notify()

    def fail(
        self, uid: str, namespace: str, name: str, *, marked: bool = True, done: Callable[[], None] = lambda: None
    ) -> None:
        """Have the kubelet end a pod, as `PodRequests.fail`; `done` is told once the API server took it."""
        self._act(
            "fail", uid, _Action(partial(self._pods.fail, uid, namespace, name, marked=marked), done, namespace, name)
        )

    def evict(self, uid: str, namespace: str, name: str, *, done: Callable[[], None] = lambda: None) -> None:
        """Evict a pod; disruption budgets are respected by trying again. `done` is told once it is taken."""
        self._act("evict", uid, _Action(partial(self._pods.evict, uid, namespace, name), done, namespace, name))

    def delete(self, uid: str, request: Callable[[], None]) -> None:
        """Send the request that deletes a pod (`cleanup`), who asks again where it is refused."""
        self._act("delete", uid, _Action(request))

    def _act(self, what: str, uid: str, action: _Action) -> None:
        with self._wake:
            self._actions[what, uid] = action
            self._schedule((what, uid), action.namespace, 0.0)

    def _schedule(self, key: Key, space: str, delay: float, attempt: int = 0) -> None:
        """Needs the lock. One job per key at a time: a newer wish does not shorten a back-off."""
        corrects = key[0] == "status" and self._claims(key[1])
        if self._jobs.add(key, space, self._clock() + delay, attempt, corrects=corrects):
            self._wake.notify()

    def _claims(self, uid: str) -> bool:
        """Needs the lock. Whether a pod may carry that it has what it was granted."""
        told = self._told.get(uid)
        return uid in self._unsure or (told is not None and told.status == "True")

    def _rest(self, uid: str) -> float:
        """Seconds until a pod may be told something new."""
        last = self._sent_at.get(uid)
        return 0.0 if last is None else max(0.0, last + BETWEEN - self._clock())

    # ---- the thread

    def _run(self) -> None:
        while True:
            with self._wake:
                while (job := self._due()) is None:
                    if self._stopping:
                        return
                    self._wake.wait(self._until())
            self._carry_out(job)

    def turn(self) -> float | None:
        """One request, if one is due; seconds until the next, None for never. For whoever starts no thread."""
        with self._wake:
            job = self._due()
        if job is not None:
            self._carry_out(job)
        with self._wake:
            return self._until()

    def _due(self) -> Job | tuple[Notice, int] | None:
        """Needs the lock. Pods first; an Event that is due goes last, or after so many other requests."""
        now = self._clock()
        ready = self._jobs.until(now) == 0.0
        notice = self._notices.due() if not ready or self._since_notice >= TURNS else None
        if notice is not None or not ready:
            self._since_notice = 0
            return notice
        self._since_notice += 1
        return self._jobs.take(now)

    def _until(self) -> float | None:
        """Needs the lock. Seconds until something is due, None for never."""
        waits = (self._jobs.until(self._clock()), self._notices.until())
        return min((each for each in waits if each is not None), default=None)

    def _carry_out(self, job: Job | tuple[Notice, int]) -> None:
        if isinstance(job, tuple):
            self._notify(*job)
            return
        try:
            self._do(job)
        except Exception as error:  # noqa: BLE001 - of whatever kind: it is one pod's (engine.alone)
            self._note(error)
            self._failed(job, error)

    def _do(self, job: Job) -> None:
        key, (what, uid) = job.key, job.key
        with self._wake:
            report, last, action = self._reports.get(uid), self._told.get(uid), self._actions.get(key)
            if what == "status" and report is not None:
                self._unsure.add(uid)
        if what == "status":
            if report is None:
                return
            whole = self._send(report, last)
            self._note(None)
            if not whole:
                attempt = max(job.attempt, RARELY)
                with self._wake:
                    self._schedule(key, job.space, _jitter(_delay(attempt, LONGEST_REFUSED)), attempt + 1)
        elif action is not None:
            action.send()
            self._note(None)
            action.done()
            with self._wake:
                if self._actions.get(key) is action:
                    del self._actions[key]

    def _send(self, report: PodReport, last: PodReport | None) -> bool:
        """Whether the pod carries all of the report now, its annotations, too."""
        refused = self._pods.write(report, last)
        if refused is not None:
            self._deny(("status", report.uid), report.namespace, report.name, str(refused))
        with self._wake:
            self._told[report.uid], self._sent_at[report.uid] = report, self._clock()
            self._unsure.discard(report.uid)
            self._overwritten.sent(report.uid, anew=False)
            if refused is not None:
                self._bare.add(report.uid)
                return False
            self._bare.discard(report.uid)
            if self._reports.get(report.uid) == report:
                del self._reports[report.uid]
        return True

    # ---- what went wrong

    def _failed(self, job: Job, error: Exception) -> None:
        what, uid = job.key
        longest = LONGEST_REFUSED if uid in self._over else LONGEST_DELAY  # the ended may be many, and stay for long
        status = error.status if isinstance(error, KubeError) else None
        if status in {NOT_FOUND, CONFLICT, INVALID}:
            with self._wake:
                about = self._reports.get(uid) if what == "status" else self._actions.get(job.key)
            if about is None or not about.name:  # nobody wants it any more, or its owner asks for it again
                with self._wake:
                    self._actions.pop(job.key, None)
                return
            try:
                there = status != NOT_FOUND and self._pods.there(uid, about.namespace, about.name)
            except Exception:  # noqa: BLE001 - nobody could say, for whatever reason
                there = True  # looked at again with the next try
            if not there:
                _log.info("not told, the pod is gone: %s", error)
                self.forget(uid)
                return
            self._deny(job.key, about.namespace, about.name, str(error))
            longest = LONGEST_REFUSED
        delay = _delay(job.attempt, longest)
        _log.log(
            logging.WARNING if job.attempt < TURNS else logging.DEBUG,
            "publishing will be tried again in about %.1f s: %s", delay, sentence(error),
            exc_info=None if status is not None else error,
        )  # fmt: skip
        with self._wake:
            self._schedule(job.key, job.space, _jitter(delay), job.attempt + 1)

    def _deny(self, key: Key, namespace: str, name: str, why: str) -> None:
        """What a pod that is there shall carry, or have done to it, cannot be: said once per pod."""
        with self._wake:
            if key in self._denied:
                return
            self._denied.add(key)
        self._refused(key[0])
        _log.warning(
            "the API server does not take %s of pod %s/%s: %s", key[0], namespace, name, plain(shortened(why, MOST))
        )
        text = f"the API server does not take what numalign tells of this pod, or does to it ({key[0]}): {why}"
        about = Regarding("Pod", namespace, name, key[1])
        self.record(Notice(about, "Warning", "NotTold", text))

    def _notify(self, notice: Notice, attempt: int) -> None:
        try:
            self._pods.record(notice)
        except Exception as error:  # noqa: BLE001 - of whatever kind: it is one Event's (engine.alone)
            untaken = isinstance(error, KubeError) and error.status in UNTAKEN
            self._note(None if untaken else error)
            with self._wake:
                if untaken:
                    self._notices.refused(notice)
                    return
                _log.warning("an Event will be recorded later: %s", sentence(error))
                self._notices.later(notice, _jitter(_delay(attempt, LONGEST_DELAY)), attempt + 1)
            return
        self._note(None)
        with self._wake:
            self._notices.recorded(notice)


def _delay(attempt: int, longest: float) -> float:
    return min(longest, FIRST_DELAY * 2.0 ** min(attempt, 16))


def _jitter(delay: float) -> float:
    return random.uniform(delay / 2, delay)  # noqa: S311 - jitter, no secret


__all__ = ["Notice", "Publisher", "Regarding"]
