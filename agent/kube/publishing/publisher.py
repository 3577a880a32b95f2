"""Sends reports, Events and actions to the API server: one queue, one thread, one request per change.

The newest report of a pod replaces an older one that waits, so an outage of any length ends in one request per pod.
Annotations and conditions travel in one patch of pods/status with the pod's uid as a precondition: a StatefulSet's
next pod of the same name is never touched. A failed request is retried with growing, jittered delays for as long as
the pod exists.

Namespaces take turns (`agent.kube.publishing.fair_queue`); Events come last (`agent.kube.publishing.notices`). A pod
gets at most one report a second. A report that the pod has its CPUs no more leaves at once, before other reports.

A refusal (409, 422) does not mean that the pod is gone: an admission policy may deny the patch, or the pod's
annotations may be full. So the pod is read once. If it exists, its conditions are written without the annotations,
and ours are removed, so that no annotation is out of date. The whole report is retried rarely, and the refusal is
recorded: by an Event, in the log, and as a metric.

A report that another writer overwrote is sent again (`agent.kube.publishing.overwritten`). Started by `agent.app`.
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
"""The attempt that a refused annotation starts from: its first retry is after half a minute, then they get rarer."""
LASTS = 5.0
"""Seconds that a grant must be out of force before it is worth an Event."""
TURNS = 10
"""Other requests after which a due Event has its turn."""
FAILS, FAILURES = 60.0, 3
"""Seconds and number of failures without a success after which the agent is not ready: no pod gets its report."""
TAKEN = frozenset({NOT_FOUND, CONFLICT, INVALID, 429})
"""Statuses that concern one object; the API server itself takes writes."""
UNTAKEN = frozenset({400, 403, NOT_FOUND, CONFLICT, INVALID})
"""Statuses after which an Event is dropped: its object or namespace is gone, or the agent may not write there."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Action:
    """A request that ends, evicts or deletes a pod.

    Attributes:
        send: sends it; raises KubeError.
        done: called once the API server took it.
        namespace: of the pod.
        name: of the pod; "" where a refusal ends the action without a look at the pod.
    """

    send: Callable[[], None]
    done: Callable[[], None] = lambda: None
    namespace: str = ""
    name: str = ""


class Publisher:
    """The queue. All methods but `turn` are thread-safe and return at once.

    Args:
        client: for the requests.
        node: this Node's name.
        clock: seconds, monotonic.
        now: the present time, for Events and conditions.
        dropped: called for each Event that is dropped, with the reason (`agent.kube.publishing.notices`).
        refused: called with the kind of request ("status", "fail", ...) that the API server refuses though the pod
            exists; once per pod and kind.
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
        self._reported: dict[str, PodReport] = {}
        self._unsure: set[str] = set()  # uids of pods with a report that was sent and not answered
        self._bare: set[str] = set()  # uids of pods that carry the conditions alone: the annotations were refused
        self._over: set[str] = set()  # uids of pods that have ended, with a report still to be sent
        self._overwritten = Overwritten()
        self._actions: dict[Key, _Action] = {}
        self._notices = Notices(clock, dropped)
        self._jobs = FairQueue()
        self._sent_at: dict[str, float] = {}  # uid -> when its last report was sent
        self._denied: set[Key] = set()
        self._since_notice = 0
        self._fails: tuple[float, int, str] | None = None  # first failure since the last success, number, last error
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within: float = 5.0) -> None:
        """Send what is due now, then end the thread; waits for `within` seconds at most."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(within)

    @property
    def waiting(self) -> int:
        """Number of reports, Events and actions that wait."""
        with self._wake:
            return len(self._reports) + len(self._notices) + len(self._actions)

    @property
    def untold(self) -> int:
        """Number of reports and actions that wait."""
        with self._wake:
            return len(self._reports) + len(self._actions)

    def failing(self) -> str:
        """Return why writes fail; "" while nothing waits, or before FAILS seconds and FAILURES failures."""
        with self._wake:
            since, count, why = self._fails or (self._clock(), 0, "")
            lasts = self._clock() - since
            there = self._reports or self._actions or len(self._notices)
        if not there or lasts < FAILS or count < FAILURES:
            return ""
        return f"nothing could be told to the API server for {lasts:.0f} s: {why}"

    def _note(self, error: Exception | None) -> None:
        """Record the outcome of one request: None where it was taken, else its error."""
        status = error.status if isinstance(error, KubeError) else None
        with self._wake:
            if error is None or status in TAKEN:
                self._fails = None
            elif status is not None:
                since, count, _ = self._fails or (self._clock(), 0, "")
                self._fails = since, count + 1, sentence(error)

    def publish(self, report: PodReport) -> None:
        """Queue a report for its pod; a report that is the same as the last one is not sent."""
        with self._wake:
            if report.reason != NOT_ENFORCED:
                self._notices.withdraw(report.uid)
            key, same = ("status", report.uid), self._reported.get(report.uid) == report
            if same and report.uid not in self._unsure | self._bare:
                if report.uid not in self._overwritten.lost:
                    self._reports.pop(report.uid, None)
                return
            self._reports[report.uid] = report
            if not same:
                if report.uid in self._bare | self._overwritten.lost:
                    self._jobs.drop(key)  # the retry of the report before may be minutes away
                self._overwritten.sent(report.uid, changed=True)
            at_once = self._claims(report.uid) and report.status != "True"
            if at_once and not same:
                self._jobs.hasten(key, self._clock())
                self._wake.notify()
            self._schedule(key, report.namespace, 0.0 if at_once else self._rest(report.uid))

    def keep_back(self, report: PodReport, why: str) -> None:
        """Send no report to a pod that must not be written to; the reason is recorded once."""
        with self._wake:
            self._reports.pop(report.uid, None)
            self._reported.pop(report.uid, None)
        self._deny(("status", report.uid), report.namespace, report.name, why)

    def carried_already(self, report: PodReport) -> None:
        """Record a report that the pod carries already: after a restart it is not written again."""
        with self._wake:
            self._reported[report.uid] = report
            self._overwritten.seen_with(report.uid)

    def seen(self, uid: str, carries: Callable[[PodReport], bool]) -> None:
        """Compare a pod that the watch brought with its report; a report that it lost is sent again.

        Args:
            uid: the pod's metadata.uid.
            carries: returns True if the pod carries the given report now.
        """
        with self._wake:
            report, next_ = self._reported.get(uid), self._reports.get(uid)
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
        """Return True if a report of this pod was sent, or waits."""
        with self._wake:
            return uid in self._reported or uid in self._reports

    def ended(self, uid: str) -> None:
        """Drop the actions on a pod that has ended, and its report of a grant.

        The pod may stay in the API for long. So a report of its refusal is still sent, and so is one that removes our
        annotations and conditions.
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
        """Forget a pod that is gone from the API."""
        with self._wake:
            for table in (self._reports, self._reported, self._sent_at):
                table.pop(uid, None)
            for those in (self._unsure, self._bare, self._over):
                those.discard(uid)
            self._overwritten.forget(uid)
            self._notices.withdraw(uid)
            self._actions = {key: action for key, action in self._actions.items() if key[1] != uid}
            self._jobs.forget(uid)
            self._denied = {key for key in self._denied if key[1] != uid}

    def record(self, notice: Notice) -> None:
        """Queue an Event, within the limits of `Notices`.

        A grant that is not in force is often in force as soon as its container is known. So the condition reports it
        at once, and an Event only after LASTS seconds.
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
        """Have the kubelet end a pod, as `PodRequests.fail`; `done` is called once the API server took it."""
        self._act(
            "fail", uid, _Action(partial(self._pods.fail, uid, namespace, name, marked=marked), done, namespace, name)
        )

    def evict(self, uid: str, namespace: str, name: str, *, done: Callable[[], None] = lambda: None) -> None:
        """Evict a pod, with retries while a disruption budget forbids it; `done` is called once it is taken."""
        self._act("evict", uid, _Action(partial(self._pods.evict, uid, namespace, name), done, namespace, name))

    def delete(self, uid: str, request: Callable[[], None]) -> None:
        """Queue the request that deletes a pod. A refusal ends it: `cleanup` queues it again."""
        self._act("delete", uid, _Action(request))

    def _act(self, what: str, uid: str, action: _Action) -> None:
        with self._wake:
            self._actions[what, uid] = action
            self._schedule((what, uid), action.namespace, 0.0)

    def _schedule(self, key: Key, space: str, delay: float, attempt: int = 0) -> None:
        """Add a job; needs the lock. There is one job per key: a newer report does not shorten a back-off."""
        corrects = key[0] == "status" and self._claims(key[1])
        if self._jobs.add(key, space, self._clock() + delay, attempt, corrects=corrects):
            self._wake.notify()

    def _claims(self, uid: str) -> bool:
        """Return True if the pod may carry that its grant is in force; needs the lock."""
        report = self._reported.get(uid)
        return uid in self._unsure or (report is not None and report.status == "True")

    def _rest(self, uid: str) -> float:
        """Return the seconds until a pod may get another report."""
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
        """Send one request if one is due; return the seconds until the next, None for never. Replaces the thread."""
        with self._wake:
            job = self._due()
        if job is not None:
            self._carry_out(job)
        with self._wake:
            return self._until()

    def _due(self) -> Job | tuple[Notice, int] | None:
        """Return the next job: a due Event when no job is ready, or after TURNS jobs; needs the lock."""
        now = self._clock()
        ready = self._jobs.until(now) == 0.0
        notice = self._notices.due() if not ready or self._since_notice >= TURNS else None
        if notice is not None or not ready:
            self._since_notice = 0
            return notice
        self._since_notice += 1
        return self._jobs.take(now)

    def _until(self) -> float | None:
        """Return the seconds until something is due, None for never; needs the lock."""
        waits = (self._jobs.until(self._clock()), self._notices.until())
        return min((each for each in waits if each is not None), default=None)

    def _carry_out(self, job: Job | tuple[Notice, int]) -> None:
        if isinstance(job, tuple):
            self._notify(*job)
            return
        try:
            self._do(job)
        except Exception as error:  # noqa: BLE001 - of any kind: it concerns one pod alone
            self._note(error)
            self._failed(job, error)

    def _do(self, job: Job) -> None:
        key, (what, uid) = job.key, job.key
        with self._wake:
            report, last, action = self._reports.get(uid), self._reported.get(uid), self._actions.get(key)
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
        """Write a report; return True if the pod carries all of it, annotations included."""
        refused = self._pods.write(report, last)
        if refused is not None:
            self._deny(("status", report.uid), report.namespace, report.name, str(refused))
        with self._wake:
            self._reported[report.uid], self._sent_at[report.uid] = report, self._clock()
            self._unsure.discard(report.uid)
            self._overwritten.sent(report.uid, changed=False)
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
        longest = LONGEST_REFUSED if uid in self._over else LONGEST_DELAY  # ended pods may be many, and stay for long
        status = error.status if isinstance(error, KubeError) else None
        if status in {NOT_FOUND, CONFLICT, INVALID}:
            with self._wake:
                about = self._reports.get(uid) if what == "status" else self._actions.get(job.key)
            if about is None or not about.name:  # it was withdrawn, or `cleanup` queues it again
                with self._wake:
                    self._actions.pop(job.key, None)
                return
            try:
                there = status != NOT_FOUND and self._pods.there(uid, about.namespace, about.name)
            except Exception:  # noqa: BLE001 - no answer, for whatever reason
                there = True  # the next try looks again
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
        """Record that the API server refuses a request about an existing pod: once per pod and kind of request."""
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
        except Exception as error:  # noqa: BLE001 - of any kind: it concerns one Event alone
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
