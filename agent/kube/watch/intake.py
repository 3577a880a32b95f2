"""From the watch to the engine: one queue, one thread, many pods at a time.

`agent.kube.watch.handlers` calls in from kopf's event loop; this hands over at once. The thread takes all that has
come by then, so that a burst of pods is decided together, saved once and enforced once: the shared pool shrinks once
for all that came, and widens once for all that went (safety.md S6). Their containers follow together. Nothing waits
for more to come, since the runtime may ask for a pod at any moment (S9).

While a decision hangs (the disk may), what comes is kept until it can be decided: of each pod the last event, of the
lists the last. So the memory depends on the pods of the node, and not on how often a tenant changes one.

One pod never keeps the others from being served, whatever it holds: one that cannot be read, or with which deciding
goes wrong, is set aside. It is told, it counts as being there (so what it holds is not freed, S13), and it is tried
again when it changes.
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
"""Pods that are remembered though they came and went while a decision hung."""
_LIST, _STOP = "a list", "the end"
"""Beside the API's uids of pods; no uid holds a space."""


_Event = tuple[str, object]
"""What happened ("changed", "deleted", "left", "listed", "stop"), and the object or the list."""


class IntakeEngine(Protocol):
    """What of the engine is used here."""

    def pods_seen(self, pods: list[Pod], *, ran: frozenset[str]) -> None:
        """Decide on pods."""

    def pods_gone(self, uids: list[str]) -> None:
        """Pods left."""

    def pods_listed(self, uids: frozenset[str]) -> None:
        """Everything that is there."""

    def containers_announced(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Names of containers, before their pods are decided; never waits."""

    def containers_seen(self, names: Mapping[str, tuple[str, str]]) -> None:
        """Containers appeared: id -> (pod uid, name)."""


class PodListener(Protocol):
    """Who hears of pods as the API knows them."""

    def pod_seen(self, body: Raw, found: SeenPod) -> None:
        """A pod was read."""

    def pod_malformed(self, body: Raw, why: str) -> None:
        """A pod was set aside: it could not be read, or not be decided on."""

    def pod_gone(self, uid: str) -> None:
        """A pod left the API."""


class Intake:
    """A Listener of `agent.kube.watch.handlers.PodSource`.

    Args:
        engine: who decides.
        event_log: who keeps what the API knows of each pod.
        namespace: annotations of a namespace; may ask the API (once per namespace and while).
        ran: whether a pod of this uid had containers when the agent began: if so, it is adopted. So is a pod whose
            status says that it has run for longer than a start takes, by the clock of this node.
        node: told of this Node; called from kopf's loop, must hand over and return.
        failed: told why a batch could not be decided on; the next ones are.
        heard: told of every pod as it comes, before it is decided on; called from kopf's loop, as `node` is.
        waits: the ledger may lack pods that run, so that no pod is decided on before the first complete list;
        adopt: then told of its pods, with what they carry of an earlier agent.
        mirrors: which pod is the mirror of a static pod.
        now: seconds since the epoch; a container's start is held against it.
    """

    def __init__(
        self,
        engine: IntakeEngine,
        event_log: PodListener,
        namespace: Callable[[str], Mapping[str, str]] = lambda _name: {},
        ran: Callable[[str], bool] = lambda _uid: False,
        node: Callable[[Raw], None] = lambda _body: None,
        failed: Callable[[str], None] = lambda _text: None,
        heard: Callable[[Raw], None] = lambda _body: None,
        waits: Callable[[], bool] = lambda: False,
        adopt: Callable[[list[SeenPod], Mapping[str, AnnotatedGrant]], None] = lambda _found, _words: None,
        mirrors: Mirrors | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._telling = event_log
        self._namespace = namespace
        self._ran = ran
        self._waits, self._adopt = waits, adopt
        self._begun = False
        self._early: dict[str, SeenPod] = {}
        self._words: dict[str, AnnotatedGrant] = {}
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
        """A pod was listed, added or modified."""
        with Isolated(self._stumbled):
            self._heard(body)
        self._put(_key(body), ("changed", _packed(body) if self._deciding else body))

    def pod_deleted(self, body: Raw) -> None:
        """A pod left the API. Of its object is kept what its uid is made of."""
        self._put(_key(body), ("deleted", marks(body)))

    def pods_listed(self, uids: frozenset[str]) -> None:
        """A list was read. It comes before its pods' own events do: it is looked at after them."""
        self._put(_LIST, ("listed", uids))

    def node_changed(self, body: Raw) -> None:
        """This Node was listed or modified; looked at apart from pods, so that the kill switch waits for nobody."""
        with Isolated(self._stumbled):
            self._node(body)

    def source_failed(self, why: str) -> None:
        """An attempt ended; pods stay as they are."""

    # ---- the thread

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within: float = 5.0) -> None:
        """Decide on what has come so far, then end."""
        self._put(_STOP, ("stop", None))
        self._thread.join(within)

    @property
    def waiting(self) -> int:
        """Events that are not decided yet, those that are being decided among them."""
        with self._wake:
            return len(self._pending) + len(self._deciding)

    def _put(self, key: str, event: _Event) -> None:
        """Keep the last event of a pod, where its first one stood; behind a list that came between them."""
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
        """Needs the lock. Of pods that came and went no more than LEFT are kept, besides those that a list names."""
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
            with Isolated(self._stumbled), operation("pods", level=logging.DEBUG, events=len(batch)):
                self._batch(batch)  # one bad batch must not make the agent blind
            with self._wake:
                over, self._deciding = _STOP in self._deciding, {}
            if over:
                return

    def _stumbled(self, error: Exception) -> None:
        if self._seldom(f"fault {sentence(error)}"):
            _log.error("an event was not carried out: %s", sentence(error), exc_info=error)
        self._failed(sentence(error))

    def _seldom(self, about: str) -> bool:
        """Whether a line of the log about this is due."""
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
            self._telling.pod_seen(body, found)
            word = annotated_grant(body) if self._waiting() else None
            if word:
                self._words[found.pod.uid] = word
            return found
        return None

    def _call(self, api_uid: str, uid: str) -> None:
        """Note the uid of a pod. An object that had it before is the mirror of a static pod no more."""
        if uid != api_uid:
            for other in [each for each, its in self._uids.items() if its == uid and each != api_uid]:
                self._uids[other] = other
        self._uids[api_uid] = uid
        self._missing.discard(api_uid)

    def _set_aside(self, body: Raw, error: Exception) -> None:
        """A pod that cannot be read: what it was before, it stays, and it is there."""
        uid, key = identity(body)
        if self._seldom(f"pod {uid} {key}"):
            _log.warning("pod %s is set aside: %s", key, sentence(error))
        if uid:
            self._call(uid, self._uids.get(uid) or uid_of(body, self._mirrors))
        self._telling.pod_malformed(body, sentence(error))

    def _defaults(self, namespace: str) -> Mapping[str, str]:
        try:
            return self._namespace(namespace)
        except KubeError as error:
            if self._seldom(f"namespace {namespace}"):
                _log.warning("the annotations of namespace %s are not known: %s", namespace, error)
            return {}

    def _decide(self, changed: Mapping[str, SeenPod], gone: list[str]) -> None:
        """Who left first: a pod that came in the same batch may need the room, and be refused for good without it."""
        gone = [uid for uid in gone if uid not in changed]  # a static pod's mirror, made anew: the pod itself stayed
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
            self._engine.containers_announced(names)  # or a pod that runs would be told what is written only then
        if live:
            self._each(list(live), lambda uids: self._engine.pods_seen([live[uid].pod for uid in uids], ran=ran))
        if names:
            self._each(list(names), lambda ids: self._engine.containers_seen({each: names[each] for each in ids}))
        for uid in gone:
            self._telling.pod_gone(uid)

    def _waiting(self) -> bool:
        return not self._begun and self._waits()

    def _begin(self) -> None:
        """The first complete list is here, and no pod was decided on: who runs keeps what it runs on."""
        early, words = self._early, self._words
        self._early, self._words = {}, {}
        with Isolated(self._stumbled):
            self._adopt([found for found in early.values() if not found.ended], words)
        self._begun = True
        self._decide(early, [])

    def _each(self, what: Sequence[str], work: Callable[[list[str]], None]) -> None:
        """All at once, saved and enforced once; where that goes wrong, one by one."""
        one_by_one(what, lambda some: work(list(some)), lambda _one, error: self._stumbled(error))

    def _relisted(self, listed: frozenset[str]) -> None:
        """Whoever was known before a complete list and is not in it left while nobody looked.

        A list is read before the events of its pods come; it counts when the last of them has. One of them may be
        deleted before that: then its deletion is its last event. A pod whose event comes meanwhile and that is not in
        the list is younger than the list: it stays.
        """
        self._awaited = None if listed <= self._uids.keys() | self._left else listed
        if self._awaited is not None:
            return
        self._left.clear()
        for api_uid in sorted(self._missing & self._uids.keys()):
            uid = self._uids.pop(api_uid)
            if uid not in self._uids.values():
                self._telling.pod_gone(uid)
        self._missing.clear()
        if self._waiting():
            self._begin()
        self._engine.pods_listed(frozenset(self._uids.values()))
        self.synced.set()


def _key(body: Raw) -> str:
    """What the events of one pod have in common: the API's uid; for an object without one its name."""
    uid, key = identity(body)
    return uid or f" {key}"


def _packed(body: Raw) -> bytes:
    """An object that has to wait: a tenth of the memory."""
    return zlib.compress(json.dumps(body).encode(), 1)


def _unpacked(body: Raw | bytes) -> Raw:
    if isinstance(body, bytes):
        found: Raw = json.loads(zlib.decompress(body))
        return found
    return body
