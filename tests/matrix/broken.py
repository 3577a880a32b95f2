"""Agents that are broken on purpose, to see whether the judge notices: each break is put into one agent's process.

    Node(folder, agents, broken="grants are freed early")

Nothing of `agent` is changed on disk. What is replaced is public and named here once; a name that is gone raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.core.accounting import invariants
from agent.core.cgroups.desired import DesiredSets
from agent.core.cpus.pools import Pools, granted
from agent.engine.engine import Engine
from agent.host.cgroups import Cgroups
from agent.host.checkpoint import Checkpoint, Saved
from agent.host.nri.decisions import EngineDecisions
from agent.kube.client import KubeClient
from agent.kube.pod_report import ASSIGNMENT
from agent.model.cgroup import Cgroup, Observed, Write, Written
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import CpuBooks

CPUS, MEMS, QUOTA = "cpuset.cpus", "cpuset.mems", "cpu.max"
LIE = "15"
"""A CPU that no container of a pair holds."""


def _put(owner: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:  # noqa: ANN401 - class or module
    """Replace a function; what was there."""
    was: Callable[..., Any] = getattr(owner, name)
    setattr(owner, name, function)
    return was


def _freed_early() -> None:
    """A pod that left the API counts as one whose cgroups are gone."""
    gone = set[str]()

    def pods_gone(self: Engine, uids: Iterable[str]) -> None:
        those = list(uids)
        gone.update(those)
        pods(self, those)

    def observed(self: Cgroups) -> Observed:
        found: Observed = observe(self)
        return replace(found, cgroups=tuple(each for each in found.cgroups if each.pod_uid not in gone))

    pods, observe = _put(Engine, "pods_gone", pods_gone), _put(Cgroups, "observe", observed)


def _only_said() -> None:
    """No cgroup is ever written, and every write counts as done."""
    _believed(lambda _cgroups, writes, *_: writes)


def _not_read_back() -> None:
    """Cgroups are written, and whatever the kernel answers counts as done."""
    apply = Cgroups.apply
    _believed(lambda cgroups, writes, *more: [each.write for each in apply(cgroups, writes, *more)])


def _believed(write: Callable[..., Iterable[Write]]) -> None:
    """What the agent wrote, it takes for what is there: it reads nothing back, at no later look either."""
    said: dict[tuple[str, str], str] = {}

    def applied(self: Cgroups, writes: tuple[Write, ...], *more: Any) -> tuple[Written, ...]:  # noqa: ANN401 - passed on as it came
        done = tuple(write(self, writes, *more))
        said.update({(each.path, each.file): each.value for each in done})
        return tuple(Written(each, each.value, each.value) for each in done)

    def observed(self: Cgroups) -> Observed:
        found: Observed = observe(self)
        return replace(found, cgroups=tuple(as_said(each) for each in found.cgroups))

    def as_said(cgroup: Cgroup) -> Cgroup:
        cpus, mems, quota = (said.get((cgroup.path, file)) for file in (CPUS, MEMS, QUOTA))
        if cpus is not None:
            cgroup = replace(cgroup, cpus=CpuSet.parse(cpus), effective_cpus=CpuSet.parse(cpus))
        if mems is not None:
            cgroup = replace(cgroup, mems=NodeSet.parse(mems), effective_mems=NodeSet.parse(mems))
        return cgroup if quota is None else replace(cgroup, quota=quota)

    observe = _put(Cgroups, "observe", observed)
    _put(Cgroups, "apply", applied)


def _ledger_ignored() -> None:
    """A start that has a ledger does not read it, does not look at what runs, and adopts nobody."""
    ignored = list[Path]()

    def loaded(self: Checkpoint, machine: str | None = None) -> Saved | None:
        if self.path.exists():
            ignored.append(self.path)
            return None
        return load(self, machine)  # type: ignore[no-any-return]  # as annotated there

    def observed(self: Cgroups) -> Observed:
        found: Observed = observe(self)
        looks.append(found)
        return found if len(looks) > 1 else replace(found, cgroups=())

    def adopted(self: Engine, *given: Any) -> None:  # noqa: ANN401 - as `adopt` takes them
        if not ignored:
            adopt(self, *given)

    looks = list[Observed]()
    load, observe = _put(Checkpoint, "load", loaded), _put(Cgroups, "observe", observed)
    adopt = _put(Engine, "adopt", adopted)


def _lies() -> None:
    """Every container with CPUs of its own is told that it has another one."""

    def called(self: KubeClient, method: str, path: str, body: Any = None, **named: Any) -> Any:  # noqa: ANN401 - passed on as it came
        if method == "PATCH" and path.endswith("/status"):
            body = _lying(body)
        return call(self, method, path, body, **named)

    call = _put(KubeClient, "call", called)


def _lying(body: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = body.get("metadata") or {}
    notes = metadata.get("annotations") or {}
    if not notes.get(ASSIGNMENT):
        return body
    told = json.loads(notes[ASSIGNMENT])
    for each in told.get("containers", {}).values():
        each["cpus"] = each["cpus"] if each["cpus"] == "shared" else LIE
    return {**body, "metadata": {**metadata, "annotations": {**notes, ASSIGNMENT: json.dumps(told)}}}


def _given_twice() -> None:
    """CPUs that a pod holds are free for the next one, and no rule of the books is checked."""

    def everything(self: Pools, books: CpuBooks) -> CpuSet:
        found: CpuSet = free(self, books) | (granted(books) - self.reserved)
        return found

    free = _put(Pools, "free", everything)
    _put(invariants, "check", lambda *_, **_named: None)


def _all_or_nothing() -> None:
    """While the ledger is not as saved, nothing is written; an agent that starts so answers the runtime nothing."""
    engine, began = list[Engine](), list[bool]()

    def kept(self: Engine) -> None:
        keep(self)
        engine.append(self)
        began.append(self.snapshot.stands)

    def applied(self: Cgroups, writes: tuple[Write, ...], *more: Any) -> tuple[Written, ...]:  # noqa: ANN401 - passed on as it came
        stands = not engine or engine[0].snapshot.stands
        return apply(self, writes, *more) if stands else ()

    def desired(self: EngineDecisions, uid: str, container: str) -> DesiredSets:
        if all(began) or engine[0].snapshot.stands:
            return desire(self, uid, container)  # type: ignore[no-any-return]  # as annotated there
        return DesiredSets()

    keep, apply = _put(Engine, "keep", kept), _put(Cgroups, "apply", applied)
    desire = _put(EngineDecisions, "desired", desired)


BREAKS: Mapping[str, Callable[[], None]] = {
    "grants freed early": _freed_early,
    "writes only said": _only_said,
    "refusals not read back": _not_read_back,
    "ledger ignored": _ledger_ignored,
    "annotations that lie": _lies,
    "CPUs given twice": _given_twice,
    "all or nothing": _all_or_nothing,
}
