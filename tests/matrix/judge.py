"""What must be true of a node, at every moment and once it is quiet. Pure: journal, objects and ledger in, words out.

`faults` goes through a journal, change by change:

    moved     the agent's own write takes a CPU from a container that runs on its exclusive set, or gives it another.
              Who took it otherwise (the kernel: offline, a reboot; systemd: a reset) is no matter of this rule, and
              what they broke counts as broken until the agent has put it right
    taken     the agent's own write lets a container onto CPUs that another pod's container holds
    twice     a saved ledger grants CPUs that a container of another pod holds, or grants them to two pods
    freed     a saved ledger lacks what a container that lives holds (safety.md S13), unless the ledger was lost and
              has not had it again since
    replaced  a saved ledger grants a container that lives other CPUs: less is right after a CPU went offline, less or
              more after a resize
    untrue    a pod is told that it has CPUs which the kernel has not given it for more than LAG looks of the agent.
              A word may be on its way while systemd takes what it says; the look after that must see it

`untrue` and `disagreement` look at one moment: what pods claim against the kernel; ledger, cgroups and annotations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.kube.pod_report import ALIGNED, ASSIGNMENT, CONDITION
from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from agent.model.pod import Container, Qos
from agent.model.podspec import pod_from
from tests.matrix.api_objects import Object
from tests.matrix.journal import Line
from tests.matrix.kubelet import Running

LAG = 3
"""Looks of the agent at the tree between a change and a word that does not know of it yet."""
MOST = 20
"""Sentences in a report."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a pod carries of ours.

    Attributes:
        status, reason: of the condition numalign.io/Aligned, "" where it has none.
        cpus: container -> its exclusive CPUs in the annotation; containers of the shared pool are absent.
        whole: the same with the shared CPUs that a mixed one has beside them.
        refused: the annotation says that the pod was refused.
    """

    status: str
    reason: str
    cpus: Mapping[str, str]
    whole: Mapping[str, str]
    refused: bool

    @property
    def aligned(self) -> bool:
        return self.status == "True" and self.reason == ALIGNED


Kernel = Callable[[str, str], str]


def told_of(body: Object) -> Told:
    """What an object carries now."""
    found = [each for each in body.get("status", {}).get("conditions", []) if each["type"] == CONDITION]
    condition = found[0] if found else {}
    notes = body.get("metadata", {}).get("annotations", {})
    assignment = json.loads(notes.get(ASSIGNMENT, "{}"))
    own = {name: each for name, each in assignment.get("containers", {}).items() if each["cpus"] != "shared"}
    cpus = {name: each["cpus"] for name, each in own.items()}
    whole = {
        name: str(CpuSet.parse(each["cpus"]) | CpuSet.parse(each.get("sharedCpus", ""))) for name, each in own.items()
    }
    return Told(condition.get("status", ""), condition.get("reason", ""), cpus, whole, "refused" in assignment)


def entitled(body: Mapping[str, Any]) -> dict[str, int]:
    """Container -> how many exclusive CPUs it is entitled to: whole ones of Guaranteed pods, and of who asks."""
    pod = pod_from(body)
    if pod.annotations.get("numalign.io/exclusive") == "auto":
        fixed = [each for each in pod.containers if each.requests.get("cpu") == each.limits.get("cpu")]
        return {each.name: 0 for each in pod.containers} | _whole(fixed)
    if pod.qos is not Qos.GUARANTEED:
        return {each.name: 0 for each in pod.containers}
    return _whole(pod.containers)


def _whole(containers: Iterable[Container]) -> dict[str, int]:
    amounts = {each.name: each.requests.get("cpu", 0) for each in containers}
    return {name: 0 if milli % 1000 else milli // 1000 for name, milli in amounts.items()}


# ---- one moment


def untrue(pods: Mapping[str, Running], stored: Mapping[str, Object], kernel: Kernel) -> str:
    """A pod that is told to have CPUs which the kernel does not give it, "" for none."""
    for key, pod in pods.items():
        words = told_of(stored.get(key, {}))
        for name, cpus in words.whole.items() if words.aligned else ():
            found = kernel(key, name)
            if name in pod.numbers and found != cpus:
                return f"{key}/{name} is told that it has CPUs {cpus}, and runs on {found}"
    return ""


def disagreement(
    pods: Mapping[str, Running], stored: Mapping[str, Object], saved: Callable[[], Ledger | None], kernel: Kernel,
    apart: Callable[[CpuSet], bool],
) -> str:  # fmt: skip
    """What of ledger, cgroups and annotations does not fit together, "" when all does.

    Args:
        pods: those that run, by "namespace/name".
        stored: those of the API.
        saved: reads the saved ledger; asked last, because that costs most.
        kernel: (key, container) -> CPUs in force.
        apart: whether CPUs lie on several NUMA nodes.
    """
    silent = next((key for key, body in stored.items() if not told_of(body).status), "")
    if silent:
        return f"{silent} was told nothing"
    ledger = saved()
    if ledger is None:
        return "there is no saved ledger"
    return next(_disagreements(pods, stored, ledger, kernel, apart), "")


def _disagreements(
    pods: Mapping[str, Running], stored: Mapping[str, Object], ledger: Ledger, kernel: Kernel,
    apart: Callable[[CpuSet], bool],
) -> Iterator[str]:  # fmt: skip
    uids = {pod.uid for pod in pods.values()} | {str(each["metadata"]["uid"]) for each in stored.values()}
    strangers = set(ledger.pods) - uids
    if strangers:
        yield f"the ledger holds pods that are gone: {sorted(strangers)}"
    seen = CpuSet()
    for key, pod in pods.items():
        words = told_of(stored[key]) if key in stored else None
        for name, count in entitled(pod.body).items():
            own, runs = ledger.grant(pod.uid, name).cpus or CpuSet(), CpuSet.parse(kernel(key, name))
            if count:
                cpus = words.cpus.get(name, "") if words else ""
                runs -= ledger.cpus.mixed.get(pod.uid, {}).get(name, CpuSet())
                yield from _own(f"{key}/{name}", count, own, runs, words, cpus, apart=apart(own))
            elif not runs or not runs.issubset(ledger.cpus.shared):
                yield f"{key}/{name} runs on {runs}, the shared pool is {ledger.cpus.shared}"
            if not own.isdisjoint(seen):
                yield f"{key}/{name} holds {own}, which another holds too"
            seen |= own


def _own(
    here: str, count: int, own: CpuSet, runs: CpuSet, words: Told | None, told: str, *, apart: bool
) -> Iterator[str]:
    """A container that is entitled to `count` CPUs, and its pod's words, None where the API has the pod no more.

    One that was resized while the CPUs beside its own were offline has some on another NUMA node, and says so.
    """
    less = len(own) < count and words is not None and words.status == "False"  # it lost some, and says so
    if not own or (len(own) != count and not less):
        yield f"{here} is entitled to {count} CPUs, and holds {own or 'none'} in the ledger"
    if runs != own:
        yield f"{here} holds {own} in the ledger, and runs on {runs}"
    if words is not None and CpuSet.parse(told) != own:
        yield f"{here} holds {own}, and is told {told or 'nothing'}"
    misaligned = apart and words is not None and words.reason == "NotAligned"
    if words is not None and not words.aligned and not less and not misaligned:
        yield f"{here} holds {own}, and its condition is {words.status} for {words.reason}"


# ---- every moment


@dataclass
class _Container:
    """One container that lives.

    Attributes:
        home: what the saved ledger grants it; None where it grants nothing.
        beside: the shared CPUs that it has with them (numalign.io/mixed).
        least, most: between these its set must be; they differ while a resize is on its way.
        runs: it has a process; before that the runtime may write what it was answered over a set of the agent's.
        settled: it has run on its own set.
        changed: the agent's looks when its set changed last.
        forgiven: the ledger was lost, and has not had it again since.
    """

    uid: str
    name: str
    home: CpuSet | None = None
    beside: CpuSet = field(default_factory=CpuSet)
    least: CpuSet = field(default_factory=CpuSet)
    most: CpuSet = field(default_factory=CpuSet)
    runs: bool = False
    settled: bool = False
    changed: int = 0
    forgiven: bool = False

    def in_order(self, cpus: CpuSet, offline: CpuSet) -> bool:
        return (self.least - offline).issubset(cpus) and cpus.issubset(self.most)


class _Judge:
    """Goes through a journal."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.cpus: dict[str, CpuSet] = {}
        self.containers: dict[str, _Container] = {}
        self.born: dict[str, _Container] = {}
        self.possible, self.online, self.ever_offline = CpuSet(), CpuSet(), CpuSet()
        self.resized: set[tuple[str, str]] = set()
        self.grants: dict[tuple[str, str], CpuSet] = {}
        self.parts: dict[tuple[str, str], CpuSet] = {}
        self.looks = self.number = 0
        self.by = ""

    def line(self, line: Line) -> None:
        self.number, self.by, do = self.number + 1, line["by"], line["do"]
        if "now" in line:
            self._changed(line)
        elif do == "looked":
            self.looks += 1
        elif do == "saved":
            self._saved(line["assigned"], line.get("mixed", {}))
        elif do == "told":
            self._told(line)
        elif do in ("container", "runs"):
            self._alive(line)
        elif do == "lost":
            for each in self.containers.values():
                each.forgiven = True
        elif do == "resized":
            self.resized.add((line["uid"], line["container"]))

    def _alive(self, line: Line) -> None:
        """A container is made, or has a process; the cgroup may be gone by then, or could not be made."""
        path = line["path"]
        if line["do"] == "container":
            self.born[path] = _Container(line["uid"], line["name"])
        elif path in self.containers:
            self.containers[path].runs = True
            self._settle(path, self.containers[path])

    def _say(self, rule: str, text: str) -> None:
        self.found.append(f"{rule} (line {self.number}, by {self.by}): {text}")

    def _offline(self) -> CpuSet:
        return self.possible - self.online

    def _changed(self, line: Line) -> None:
        now = {path: CpuSet.parse(text) for path, text in line["now"].items()}
        if line["do"] == "rmdir" and "error" not in line:
            self.cpus.pop(line["path"], None)
            self.containers.pop(line["path"], None)
            return
        if "" in now:
            self.online = now[""]
            self.possible |= self.online
            self.ever_offline |= self._offline()
        if line["do"] == "mkdir" and line["path"] in self.born:
            self.containers[line["path"]] = each = self.born.pop(line["path"])
            each.changed, each.home = self.looks, self.grants.get((each.uid, each.name))
            each.beside = self.parts.get((each.uid, each.name), CpuSet())
        before, self.cpus = self.cpus, {**self.cpus, **now}
        if self.by in ("agent", "runtime"):
            self._own_write(line, before, now)
        for path in now.keys() & self.containers.keys():
            each = self.containers[path]
            if before.get(path) != now[path]:
                each.changed = self.looks
            self._settle(path, each)

    def _settle(self, path: str, each: _Container) -> None:
        """A container that runs on what it was granted: from now on nobody may take it away."""
        if each.runs and each.home is not None and self.cpus.get(path) == (each.home | each.beside) - self._offline():
            each.settled, each.least, each.most = True, each.home, each.home | each.beside

    def _own_write(self, line: Line, before: Mapping[str, CpuSet], now: Mapping[str, CpuSet]) -> None:
        offline = self._offline()
        what = f"{line.get('path', '').rpartition('/')[2]} {line.get('file', '')} = {line.get('value', '')}"
        for path in now:
            each, was, is_now = self.containers.get(path), before.get(path, CpuSet()), now[path]
            if each is None or was == is_now:
                continue
            if each.settled and each.in_order(was, offline) and not each.in_order(is_now, offline):
                self._say(
                    "moved", f"{each.uid}/{each.name} ran on {was} (its own: {each.home}), now {is_now}; {what}"
                )
            for other in self.containers.values():
                gained = (is_now - was) & other.least if other.uid != each.uid and other.settled else CpuSet()
                if gained:
                    self._say(
                        "taken", f"{each.uid}/{each.name} gets CPUs {gained} of {other.uid}/{other.name}; {what}"
                    )

    def _saved(
        self, assigned: Mapping[str, Mapping[str, str]], mixed: Mapping[str, Mapping[str, Sequence[str]]]
    ) -> None:
        grants = {(uid, name): CpuSet.parse(text) for uid, each in assigned.items() for name, text in each.items()}
        self.grants = grants
        self.parts = {
            (uid, name): CpuSet.parse(texts[0]) for uid, each in mixed.items() for name, texts in each.items()
        }
        self._disjoint(grants)
        for path, each in self.containers.items():
            each.beside = self.parts.get((each.uid, each.name), each.beside)
            for (uid, name), cpus in grants.items():
                if each.settled and uid != each.uid and not cpus.isdisjoint(each.least - self._offline()):
                    self._say("twice", f"{uid}/{name} is granted {cpus}; {each.uid}/{each.name} runs on {each.least}")
            new = grants.get((each.uid, each.name))
            each.forgiven &= new is None
            if each.home is None:
                each.home = new
            elif new is None:
                if each.settled and not each.forgiven:
                    self._say(
                        "freed", f"{each.uid}/{each.name} lives, and its CPUs {each.home} are in no saved ledger"
                    )
            elif new != each.home:
                less = new.issubset(each.home) and (each.home - new).issubset(self.ever_offline)
                sized = (each.uid, each.name) in self.resized and (new.issubset(each.home) or each.home.issubset(new))
                if each.settled and not less and not sized:
                    self._say("replaced", f"{each.uid}/{each.name} holds {each.home}, and is granted {new}")
                each.home, each.least, each.most = new, each.least & new, each.most | new
            self._settle(path, each)

    def _disjoint(self, grants: Mapping[tuple[str, str], CpuSet]) -> None:
        seen: dict[str, CpuSet] = {}
        for (uid, name), cpus in grants.items():
            for other, held in seen.items():
                if other != uid and not cpus.isdisjoint(held):
                    self._say("twice", f"{uid}/{name} is granted {cpus}, and {other} holds {held}")
            seen[uid] = seen.get(uid, CpuSet()) | cpus

    def _told(self, line: Line) -> None:
        if not line["aligned"] or line.get("late"):
            return
        for path, each in self.containers.items():
            cpus = line["cpus"].get(each.name) if each.uid == line["uid"] else None
            if cpus is None or CpuSet.parse(cpus) - self._offline() == self.cpus.get(path):
                continue
            if self.looks - each.changed > LAG:
                runs = f"it has run on {self.cpus.get(path)} for {self.looks - each.changed} looks"
                self._say("untrue", f"{line['name']}/{each.name} is told {cpus}, and {runs}")


def faults(lines: Iterable[Line]) -> list[str]:
    """Everything that must never happen and did, the first MOST of it, each in a sentence."""
    judge = _Judge()
    for line in lines:
        judge.line(line)
    more = len(judge.found) - MOST
    return [*judge.found[:MOST], *([f"and {more} more"] if more > 0 else [])]
