"""Passes pods from the watch to the engine: one queue, one thread, many pods at a time.

`agent.kube.watch.handlers` calls in from kopf's event loop; each call only queues. The thread takes all events that
have arrived, so that a burst of pods is decided together, saved once and enforced once: the shared pool shrinks once
for all new pods, and widens once for all that ended (safety.md S6). The thread never waits for more events, since the
runtime may ask for a pod at any moment (S9).

While a decision hangs (on the disk, for example), the queue keeps the last event of each pod and the last list. So
its memory depends on the number of pods on the node, not on how often a tenant changes one.

One pod never keeps other pods from being served. A pod that cannot be read, or whose decision fails, is set aside:
that is reported, the pod counts as existing (so that its CPUs are not freed, S13), and it is tried again when it
changes.
"""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from agent.errors import KubeError
from agent.kube.objects.mirrors import Mirrors
from agent.kube.objects.pod_objects import Raw, SeenPod, identity, marks, seen, uid_of
from agent.kube.pod_report import annotated_grant
from agent.model.pod import Pod
from agent.node.adopt import AnnotatedGrant
from agent.node.fault_isolation import Isolated, one_by_one, sentence
from agent.operation import operation

_log = logging.getLogger(__name__)
BATCH = 500
SELDOM = 600.0
"""Seconds between two lines of the log on the same pod or namespace."""
LEFT = 4096
"""Pods that came and went while a decision hung, and are still to be released."""
_LIST, _STOP = "a list", "the end"
"""Beside the API's uids of pods; no uid holds a space."""


_Event = tuple[str, object]
"""What happened ("changed", "deleted", "left", "listed", "stop"), and the object or the list."""


class IntakeEngine(Protocol):
    """The part of the engine that the intake calls, on its own thread. A call may last: it saves and enforces.

    A batch of up to BATCH events calls each method once at most, in this order: gone or ended pods, names of
    containers, new and changed pods, containers, a list. A call that fails is repeated for one pod at a time.
    """

    def pods_seen(self, pods: list[Pod], *, ran: frozenset[str]) -> None:
        """Decide on pods; `ran` has the uids of those that ran before the agent saw them."""

    def pods_gone(self, uids: list[str]) -> None:
        """Release pods that ended or are gone from the API."""

    def pods_listed(self, uids: frozenset[str]) -> None:
        """Take the uids of all pods of this node: a complete list was read, and its pods were decided."""

    def containers_announced(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Take the names of containers, id -> (pod uid, name), before their pods are decided; never waits."""

    def containers_seen(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Enforce the grants of containers, id -> (pod uid, name)."""


class PodListener(Protocol):
    """Records pods as the API has them. Called on the intake's thread: hands over and returns."""

    def pod_seen(self, body: Raw, found: SeenPod) -> None:
        """Record a pod that was read; called before the pod is decided."""

    def pod_malformed(self, body: Raw, why: str) -> None:
        """Record a pod that was set aside, since it could not be read."""

    def pod_gone(self, uid: str) -> None:
        """Forget a pod that is gone from the API."""


class Intake:
    """A WatchListener of `agent.kube.watch.handlers.PodSource`.

    Args:
        engine: decides on the pods.
        listener: records what the API has of each pod.
        namespace: returns the annotations of a namespace; may send a GET (`agent.kube.watch.namespaces`).
        ran: returns True if a pod of this uid had containers when the agent started: it is adopted. So is a pod whose
            status says that it has run for longer than a start takes, by the clock of this node.
        node: takes this Node; called on kopf's loop, must hand over and return.
        failed: takes the reason why a batch could not be decided; the next batches are.
        heard: takes every pod as it comes, before it is decided; called on kopf's loop, as `node` is.
        waits: returns True if the ledger may lack pods that run: no pod is decided before the first complete list.
        adopt: takes the pods of that list, with the grants that they carry of an earlier agent.
        mirrors: which pod is the mirror of a static pod.
        now: seconds since the epoch; compared with the start of containers.
    """

    def __init__(
        self,
        engine: IntakeEngine,
        listener: PodListener,
        namespace: Callable[[str], Mapping[str, str]] = lambda _name: {},
        ran: Callable[[str], bool] = lambda _uid: False,
        node: Callable[[Raw], None] = lambda _body: None,
        failed: Callable[[str], None] = lambda _text: None,
        heard: Callable[[Raw], None] = lambda _body: None,
        waits: Callable[[], bool] = lambda: False,
        adopt: Callable[[list[SeenPod], Mapping[str, AnnotatedGrant]], None] = lambda _found, _grants: None,
        mirrors: Mirrors | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._listener = listener
        self._namespace = namespace
        self._ran = ran
        self._waits, self._adopt = waits, adopt
        self._begun = False
        self._early: dict[str, SeenPod] = {}
        self._grants: dict[str, AnnotatedGrant] = {}
        self._node = node
        self._failed = failed
        self._heard = heard
        self._mirrors, self._now = mirrors or Mirrors(), now
        self._wake = threading.Condition()
        self._pending: dict[str, _Event] = {}  # by the API's uid; the last event of each
        self._deciding: dict[str, _Event] = {}  # those that are being decided
        self._said: OrderedDict[str, float] = OrderedDict()
        self._uids: dict[str, str] = {}  # the API's uid -> ours, of those that were set aside, too
        self._left: set[str] = set()  # of the API's uids: deleted since the list that is awaited was read
        self._awaited: frozenset[str] | None = None
        self._missing: set[str] = set()  # of the API's uids: known when the list was read, and not in it
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)
        self.synced = threading.Event()
        """Set when the first complete list has been decided on."""

    # ---- called from kopf's loop

    def pod_changed(self, body: Raw) -> None:
        """Queue a pod that was listed, added or modified."""
        with Isolated(self._on_fault):
            self._heard(body)
        self._put(_key(body), ("changed", _packed(body) if self._deciding else body))

    def pod_deleted(self, body: Raw) -> None:
        """Queue a pod that is gone from the API; of its object the identity is kept."""
        self._put(_key(body), ("deleted", marks(body)))

    def pods_listed(self, uids: frozenset[str]) -> None:
        """Queue a list. It arrives before the events of its pods, and counts after them."""
        self._put(_LIST, ("listed", uids))

    def node_changed(self, body: Raw) -> None:
        """Pass this Node on at once, past the queue of pods, so that the kill switch never waits."""
        with Isolated(self._on_fault):
            self._node(body)

    def source_failed(self, why: str) -> None:
        """Do nothing: pods stay as they are when an attempt ends."""

    # ---- the thread

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within: float = 5.0) -> None:
        """Decide on the events so far, then end the thread; waits for `within` seconds at most."""
        self._put(_STOP, ("stop", None))
        self._thread.join(within)

    @property
    def waiting(self) -> int:
        """Number of events that are not decided yet, including those of the present batch."""
        with self._wake:
            return len(self._pending) + len(self._deciding)

    def _put(self, key: str, event: _Event) -> None:
        """Keep the last event of a pod at the place of its first; after a list that came between them."""
        with self._wake:
            before = self._pending.get(key, ("", None))[0]
            if key == _LIST or _LIST in self._pending:
                self._pending.pop(key, None)
            if event[0] == "deleted" and before in ("changed", "left"):
                event = ("left", event[1])  # its change was not looked at; the runtime may have brought it
            self._pending[key] = event
            if event[0] == "left":
                self._forget_some()
            self._wake.notify()

    def _forget_some(self) -> None:
        """Keep at most LEFT pods that came and went, besides those that a list names; needs the lock."""
        left = [key for key, (what, _) in self._pending.items() if what == "left" and key not in self._uids]
        if len(left) > LEFT:
            lists = [value for what, value in (*self._deciding.values(), *self._pending.values()) if what == "listed"]
            named = frozenset().union(*(each for each in (*lists, self._awaited) if isinstance(each, frozenset)))
            oldest = next((key for key in left if key not in named), None)
            if oldest is not None:
                del self._pending[oldest]

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._pending)
                self._deciding = dict(itertools.islice(self._pending.items(), BATCH))
                for key in self._deciding:
                    del self._pending[key]
                batch = list(self._deciding.values())
                self._deciding = {key: (what, value if what == "listed" else None)
                                  for key, (what, value) in self._deciding.items()}  # fmt: skip
            with Isolated(self._on_fault), operation("pods", level=logging.DEBUG, events=len(batch)):
                self._batch(batch)  # one bad batch must not make the agent blind
            with self._wake:
                over, self._deciding = _STOP in self._deciding, {}
            if over:
                return

    def _on_fault(self, error: Exception) -> None:
        if self._seldom(f"fault {sentence(error)}"):
            _log.error("an event was not carried out: %s", sentence(error), exc_info=error)
        self._failed(sentence(error))

    def _seldom(self, about: str) -> bool:
        """Return True if a line of the log about this subject is due."""
        now = time.monotonic()
        due = now >= self._said.get(about, now)
        if due:
            self._said[about] = now + SELDOM
            self._said.move_to_end(about)
            while len(self._said) > LEFT:
                self._said.popitem(last=False)
        return due

    def _batch(self, batch: list[_Event]) -> None:
        """Decide on a batch."""
        changed: dict[str, SeenPod] = {}
        gone: list[str] = []
        listed: frozenset[str] | None = None
        batch.reverse()
        while batch:  # an object is let go as soon as it was read
            what, value = batch.pop()
            if what == "changed" and isinstance(value, (Mapping, bytes)):
                self._changed(_unpacked(value), changed, gone)
            elif what in ("deleted", "left") and isinstance(value, Mapping):
                self._deleted(value, changed, gone, unread=what == "left")
            elif what == "listed" and isinstance(value, frozenset):
                listed, self._missing = value, self._uids.keys() - value
        self._decide(changed, gone)
        listed = listed if listed is not None else self._awaited
        if listed is not None:
            self._relisted(listed)
        else:
            self._left.clear()

    def _changed(self, body: Raw, changed: dict[str, SeenPod], gone: list[str]) -> None:
        api_uid = identity(body)[0]
        before, found = self._uids.get(api_uid, ""), self._read(body)
        if found is not None:
            changed[found.pod.uid] = found
        if before and before != self._uids[api_uid] and before not in self._uids.values():
            gone.append(before)  # it was taken for another pod than it is

    def _deleted(self, body: Raw, changed: dict[str, SeenPod], gone: list[str], *, unread: bool) -> None:
        api_uid = identity(body)[0]
        self._left.add(api_uid)
        uid = self._uids.pop(api_uid, "") or (uid_of(body, self._mirrors) if unread else "")
        if uid and uid not in self._uids.values():  # a static pod's mirror may have been made again: the pod stays
            changed.pop(uid, None)
            gone.append(uid)

    def _read(self, body: Raw) -> SeenPod | None:
        with Isolated(lambda error: self._set_aside(body, error)):
            namespace = str((body.get("metadata") or {}).get("namespace", ""))
            found = seen(body, self._defaults(namespace), self._mirrors)
            self._call(found.api_uid, found.pod.uid)
            self._listener.pod_seen(body, found)
            grant = annotated_grant(body) if self._waiting() else None
            if grant:
                self._grants[found.pod.uid] = grant
            return found
        return None

    def _call(self, api_uid: str, uid: str) -> None:
        """Record the uid of a pod; another object with the same uid is no longer the mirror of that static pod."""
        if uid != api_uid:
            for other in [each for each, its in self._uids.items() if its == uid and each != api_uid]:
                self._uids[other] = other
        self._uids[api_uid] = uid
        self._missing.discard(api_uid)

    def _set_aside(self, body: Raw, error: Exception) -> None:
        """Report a pod that cannot be read; it counts as existing, and keeps the uid that it had."""
        uid, key = identity(body)
        if self._seldom(f"pod {uid} {key}"):
            _log.warning("pod %s is set aside: %s", key, sentence(error))
        if uid:
            self._call(uid, self._uids.get(uid) or uid_of(body, self._mirrors))
        self._listener.pod_malformed(body, sentence(error))

    def _defaults(self, namespace: str) -> Mapping[str, str]:
        try:
            return self._namespace(namespace)
        except KubeError as error:
            if self._seldom(f"namespace {namespace}"):
                _log.warning("the annotations of namespace %s are not known: %s", namespace, error)
            return {}

    def _decide(self, changed: Mapping[str, SeenPod], gone: list[str]) -> None:
        """Release pods that are gone, then decide on the rest: a new pod may need the room, else it is refused."""
        gone = [uid for uid in gone if uid not in changed]  # a static pod stays when its mirror is made again
        if self._waiting():
            self._early = {uid: found for uid, found in self._early.items() if uid not in gone} | dict(changed)
            changed = {}
        ended = [found.pod.uid for found in changed.values() if found.ended]
        if ended or gone:
            self._each([*ended, *gone], self._engine.pods_gone)
        live = {found.pod.uid: found for found in changed.values() if not found.ended}
        now = self._now()
        ran = frozenset(uid for uid, found in live.items() if found.ran(now) or (found.started and self._ran(uid)))
        names = {each: (uid, name) for uid, found in live.items() for each, name in found.containers.items()}
        if names:
            self._engine.containers_announced(names)  # before pods_seen: its report of a running pod needs the names
        if live:
            self._each(list(live), lambda uids: self._engine.pods_seen([live[uid].pod for uid in uids], ran=ran))
        if names:
            self._each(list(names), lambda ids: self._engine.containers_seen({each: names[each] for each in ids}))
        for uid in gone:
            self._listener.pod_gone(uid)

    def _waiting(self) -> bool:
        return not self._begun and self._waits()

    def _begin(self) -> None:
        """Adopt the pods of the first complete list, before any is decided: a pod that runs keeps its CPUs."""
        early, grants = self._early, self._grants
        self._early, self._grants = {}, {}
        with Isolated(self._on_fault):
            self._adopt([found for found in early.values() if not found.ended], grants)
        self._begun = True
        self._decide(early, [])

    def _each(self, what: Sequence[str], work: Callable[[list[str]], None]) -> None:
        """Do the work for all at once, saved and enforced once; where that fails, for one at a time."""
        one_by_one(what, lambda some: work(list(some)), lambda _one, error: self._on_fault(error))

    def _relisted(self, listed: frozenset[str]) -> None:
        """Release the pods that were known before a complete list and are missing from it: their deletion was missed.

        A list is read before the events of its pods come, and counts when all of them have come. For a pod that is
        deleted before that, the deletion counts as its event. A pod that is not in the list, and whose event comes
        after it was read, is younger than the list and stays.
        """
        self._awaited = None if listed <= self._uids.keys() | self._left else listed
        if self._awaited is not None:
            return
        self._left.clear()
        for api_uid in sorted(self._missing & self._uids.keys()):
            uid = self._uids.pop(api_uid)
            if uid not in self._uids.values():
                self._listener.pod_gone(uid)
        self._missing.clear()
        if self._waiting():
            self._begin()
        self._engine.pods_listed(frozenset(self._uids.values()))
        self.synced.set()


def _key(body: Raw) -> str:
    """Return the key of a pod's events: metadata.uid; for an object without one its name."""
    uid, key = identity(body)
    return uid or f" {key}"


def _packed(body: Raw) -> bytes:
    """Compress an object that has to wait, to a tenth of its memory."""
    return zlib.compress(json.dumps(body).encode(), 1)


def _unpacked(body: Raw | bytes) -> Raw:
    if isinstance(body, bytes):
        found: Raw = json.loads(zlib.decompress(body))
        return found
    return body
