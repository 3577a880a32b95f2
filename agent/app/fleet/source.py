"""Where the objects of a fleet come from: the API server with the caller's rights, or files. Never a watch."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from agent.app.fleet.objects import NAMESPACE, NODE, POD, TOPOLOGY, kind_of
from agent.errors import KubeError, MalformedError, SettingsError
from agent.host import bounded
from agent.kube.caller import Caller
from agent.kube.objects.listing import CHUNK, LARGEST, Items, ListItem
from agent.kube.objects.pod_stream import read
from agent.kube.topology_crd import PATH as TOPOLOGIES

Body = dict[str, Any]
Take = Mapping[str, Callable[[Body], None]]
"""Kind -> the function that takes each object of it."""
Progress = Callable[[str, int, int | None], None]
"""Called as objects come: their kind, how many there are so far, of how many (None: unknown)."""

PATHS = {TOPOLOGY: TOPOLOGIES, NODE: "/api/v1/nodes", NAMESPACE: "/api/v1/namespaces", POD: "/api/v1/pods"}
"""In the order in which they are asked for."""
WORDS = {TOPOLOGY: "summaries", NODE: "nodes", NAMESPACE: "namespaces", POD: "pods"}
PENDING = "status.phase=Pending"
FEW = 100
"""Nodes whose pods are listed node by node."""
READER = "-fleet-reader"
"""How the chart's ClusterRole with the rights to these lists ends; it begins with the release's name."""
REFUSED, NOT_FOUND = frozenset({401, 403}), 404
_LOST = {
    NODE: "labels, taints and allocatable are not known, nor which nodes are gone",
    NAMESPACE: "pods are taken without the defaults of their namespaces",
    POD: "pods that wait, are refused or are misaligned are not named",
}


def silent(_what: str, _done: int, _total: int | None) -> None:
    """Show no progress."""


class Source(Protocol):
    """Gives objects by kind."""

    def load(self, take: Take, progress: Progress = silent) -> tuple[str, ...]:
        """Pass on each object of the wanted kinds; return what could not be read, one sentence each.

        Raises:
            NumalignError: there is nothing to decide by.
        """

    def pods_of(self, nodes: Iterable[str], take: Callable[[Body], None], progress: Progress = silent) -> None:
        """Pass on the pods of some nodes that `load` left out; raises NumalignError."""


class ApiSource:
    """The API server.

    Args:
        caller: the client with the rights of the command's user.
        pods: field selector of the pods that are read; "" for all. Those that did not start yet are few.
    """

    def __init__(self, caller: Caller, pods: str = PENDING) -> None:
        self._caller, self._pods = caller, pods

    def load(self, take: Take, progress: Progress = silent) -> tuple[str, ...]:
        """See Source. The right to list topologies is needed; other kinds are left out without theirs, and named."""
        notes = []
        for kind in (each for each in PATHS if each in take):
            selector = {"fieldSelector": self._pods} if kind == POD and self._pods else {}
            try:
                self._list(kind, take[kind], progress, **selector)
            except KubeError as error:
                if kind == TOPOLOGY or error.status not in REFUSED:
                    raise
                notes.append(f"{error}; {_LOST[kind]}")
        return tuple(notes)

    def pods_of(self, nodes: Iterable[str], take: Callable[[Body], None], progress: Progress = silent) -> None:
        """See Source: a list of each node's pods, or one of all where the nodes are many."""
        names = list(nodes)
        if len(names) <= FEW:
            for name in names:
                self._list(POD, take, progress, fieldSelector=f"spec.nodeName={name}")
            return
        wanted = frozenset(names)

        def theirs(body: Body) -> None:
            spec = body.get("spec")
            if isinstance(spec, dict) and spec.get("nodeName") in wanted:
                take(body)

        self._list(POD, theirs, progress)

    def _list(self, kind: str, take: Callable[[Body], None], progress: Progress, **query: str) -> None:
        done = 0

        def told(item: ListItem) -> bool:
            body = _parsed(item)
            if body is not None:
                take(body)
            return True

        try:
            for found, left in self._caller.pages(PATHS[kind], told, **query):
                done += len(found)
                progress(WORDS[kind], done, None if left is None else done + left)
        except KubeError as error:
            raise KubeError(error.status, f"{error.why}{_remedy(kind, error.status)}") from error


class FileSource:
    """Files with the JSON that kubectl prints: lists, or single objects, of all kinds in any order.

    Args:
        paths: their names; "-" is standard input.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def load(self, take: Take, progress: Progress = silent) -> tuple[str, ...]:
        """See Source."""
        counts = dict.fromkeys(PATHS, 0)
        for path in self._paths:
            for body in _bodies(path):
                kind = kind_of(body)
                if kind in take:
                    take[kind](body)
                    counts[kind] += 1
                    if counts[kind] % 100 == 0:
                        progress(WORDS[kind], counts[kind], None)
        if not counts[TOPOLOGY]:
            raise MalformedError(
                f"{', '.join(self._paths)}: holds no NodeResourceTopology; "
                "`kubectl get noderesourcetopologies,nodes,namespaces,pods -A -o json` prints all that is read"
            )
        return tuple(f"the input holds no {WORDS[kind]}; {_LOST[kind]}" for kind in _LOST if not counts[kind])

    def pods_of(self, nodes: Iterable[str], take: Callable[[Body], None], progress: Progress = silent) -> None:
        """See Source: `load` passed all on."""


def _bodies(path: str) -> Iterator[Body]:
    items, head = Items(), b""
    try:
        for data in iter(lambda: sys.stdin.buffer.read(CHUNK), b"") if path == "-" else bounded.chunks(path):
            if len(head) <= LARGEST:
                head += data
            for each in items.feed(data):
                body = _parsed(each)
                if body is not None:
                    yield body
        envelope = items.close()
    except OSError as error:
        raise SettingsError(
            "--from", f"{path} cannot be read: {error.strerror}; name a file that kubectl wrote"
        ) from None
    except MalformedError as error:
        alone = _alone(head)
        if alone is None:
            raise MalformedError(f"{path}: {error}; it must be what `kubectl get -o json` prints") from None
        yield alone
    else:
        if "items" not in envelope:
            yield envelope


def _alone(head: bytes) -> Body | None:
    """One object that is no list."""
    if len(head) > LARGEST:
        return None
    try:
        found = json.loads(head)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "items" not in found else None


def _parsed(item: ListItem) -> Body | None:
    """Return an object; None for one that is too large, or no JSON."""
    if not item.whole:
        return None
    try:
        found = read(item.raw)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _remedy(kind: str, status: int) -> str:
    if status in REFUSED:
        what = PATHS[kind].rpartition("/")[2]
        return f"; the right to list {what} is missing: the ClusterRole whose name ends in {READER} has it"
    if status == NOT_FOUND and kind == TOPOLOGY:
        return "; the CRD noderesourcetopologies.topology.node.k8s.io is not installed: no node publishes anything"
    return ""
