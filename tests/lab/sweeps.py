"""The kernel's sets while something happens: `tests/peers/sweep` runs in the guest, and is judged here.

`agreement` looks at moments at which all is quiet; this sees what lies between two of them. The judge is a pure
function of what was written, so that its own tests need no lab. It knows from the ledgers that were saved meanwhile
who has CPUs of his own. Nobody else may be on them:

- An overlap counts when two sweeps in a row have it, or one whose sets were in force at one moment while the ledger
  stayed the same. Any other is counted as seen once.
- A container counts from when it was first where the ledger has it: one that starts while no agent listens, or
  without NRI, starts on all CPUs (deploy/docs/nri.md). Before that its overlaps are those of newcomers. The pause
  process of a pod and what runc has not yet made a container's program are counted apart, too.
- Who had CPUs of his own keeps them for as long as he runs, whatever a later ledger says (safety.md S13).
- From Linux 7.0 on systemd empties the set of a cgroup that holds processes (deploy/docs/kernel.md), and its
  containers have all CPUs until numalign has written the set again. Such an overlap is counted apart while it is
  shorter than `EMPTIED_WITHIN`: the guest is emulated, and its agent shares a processor with all that starts.
- A thread that may run where its cgroup may not counts like an overlap where these are another one's CPUs. Elsewhere
  it counts when it lasts: while one write of a set lasts, the kernel changes one thread after the other.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from agent.model.idset import CpuSet
from agent.model.ledger import Ledger
from tests.lab.agreement import beside, ledger_of, own_of, pod_name
from tests.lab.needs import LabError

IN_A_ROW = 2
"""Sweeps that must have the same: one cgroup is read after the other, and a plan writes one after the other."""
LASTING = 20
"""Sweeps (of which more than ten are made in a second) after which a thread has been left behind by the kernel."""
EMPTIED_WITHIN = 5.0
"""Seconds."""
APP, PAUSE, INIT = "app", "pause", "init"
NEWCOMER, EMPTIED, ONCE = "of newcomers", "emptied by systemd", "seen once"
APART = {PAUSE: "with a pause process", INIT: "with runc init", **{name: name for name in (NEWCOMER, EMPTIED, ONCE)}}
"""Overlaps that are counted and are nobody's fault: what they are called in the report."""


@dataclass(frozen=True)
class Seen:
    """One container's or sandbox's cgroup, with a process in it.

    Attributes:
        pod: uid.
        cpus: in force.
        kind: APP, PAUSE or INIT.
        strays: thread -> CPUs that it may use, of those that may use others than their cgroup.
    """

    pod: str
    cpus: CpuSet
    kind: str = APP
    strays: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Span:
    """Sweeps in a row that saw the same.

    Attributes:
        first, end: number of its first sweep, and of the one after its last.
        moment: what it saw was in force at one moment, while the ledger stayed the same.
        sets: container id -> what was seen.
        ledger: as saved last; None before the first.
        seconds: how long it lasted, until the next one was seen.
    """

    first: int
    end: int
    moment: bool
    sets: Mapping[str, Seen]
    ledger: Ledger | None
    seconds: float = 0.0


@dataclass(frozen=True)
class Sweeps:
    """What was seen: all sweeps, their number, the seconds they took, the longest time between two of them."""

    spans: tuple[Span, ...] = ()
    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0


def parsed(text: str) -> Sweeps:
    """What the sampler wrote; a last line that is not whole is left out. Raises LabError where there is nothing."""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if not lines:
        raise LabError("the sampler in the guest wrote nothing")
    sets, ledger, spans = dict[str, Seen](), None, list[Span]()
    count = lines[-1]["sweep"] + 1
    fresh = [line for line in lines if line["changed"] or "ledger" in line or line is lines[0]]
    ends = [(line["sweep"], line["at"]) for line in fresh[1:]] + [(count, lines[-1]["at"])]
    for line, (end, until) in zip(fresh, ends, strict=True):
        for name, each in line["changed"].items():
            sets.pop(name, None)
            if each:
                sets[name] = Seen(each["pod"], CpuSet.parse(each["cpus"]), each["kind"], each.get("strays", {}))
        ledger = ledger_of(base64.b64decode(line.get("ledger") or ""))[0] or ledger
        spans.append(
            Span(line["sweep"], end, line["whole"] and line["still"], dict(sets), ledger, until - line["at"])
        )
    longest = max(line["longest"] for line in lines)
    return Sweeps(tuple(spans), count, lines[-1]["at"] - lines[0]["at"], longest)


# ---- the judge


@dataclass
class Verdict:
    """What is to be said of sweeps.

    Attributes:
        wrong: a sentence for each overlap and each thread that counts.
        apart: kind of APART -> overlaps.
        stood: seconds of each time in a row in which a container that had its place, or a thread of one, might run
            on CPUs that another one had for himself; whether that counts as wrong or was seen once.
    """

    wrong: list[str] = field(default_factory=list)
    stood: list[float] = field(default_factory=list, compare=False)
    apart: Counter[str] = field(default_factory=Counter)


def judged(seen: Sweeps, *, emptied: bool = False) -> Verdict:
    """Who was on CPUs that another one has for himself, and threads that were outside their cgroup.

    Args:
        seen: the sweeps.
        emptied: the kernel is one on which systemd empties the sets of cgroups that hold processes.
    """
    judge = _Judge(seen, emptied=emptied)
    for span in seen.spans:
        judge.look(span)
    judge.end()
    return judge.verdict


class _Judge:
    """Goes through the spans in order, and knows of each container what it was."""

    def __init__(self, seen: Sweeps, *, emptied: bool) -> None:
        self.verdict = Verdict()
        self._seen, self._emptied = seen, emptied
        self._since: dict[tuple[str, str], float] = {}
        self._pinned: dict[str, CpuSet] = {}
        self._whole: dict[str, CpuSet] = {}
        """Of those, all that they have: a mixed set holds shared CPUs, too."""
        self._placed: set[str] = set()
        self._open: dict[tuple[str, str], tuple[int, bool]] = {}
        self._told: set[tuple[str, ...]] = set()
        self._strays: dict[tuple[str, str], tuple[int, CpuSet]] = {}
        self._standing = False

    def look(self, span: Span) -> None:
        self._placed &= span.sets.keys()
        for name in self._pinned.keys() - span.sets.keys():
            del self._pinned[name]
        for name, each in span.sets.items():
            self._know(name, each, span.ledger)
        found = {pair: (common, kind) for pair, common, kind in self._overlaps(span)}
        for pair in self._open.keys() - found.keys():
            self._close(pair)
        for pair, (_, kind) in found.items():
            if kind:
                self._apart(kind, *pair)
        self._since = {
            pair: self._since.get(pair, 0.0) + span.seconds for pair, (_, kind) in found.items() if kind == EMPTIED
        }
        for pair, (common, kind) in found.items():
            if kind and self._since.get(pair, 0.0) <= EMPTIED_WITHIN:
                continue
            first, counted = self._open.get(pair, (span.first, False))
            if not counted and (span.moment or span.end - first >= IN_A_ROW):
                counted = True
                self._wrong(span, *pair, common, span.end - first)
            self._open[pair] = (first, counted)
        self._threads(span)
        self._stand(span, overlaps=any(not kind for _, kind in found.values()))

    def end(self) -> None:
        for pair in tuple(self._open):
            self._close(pair)

    def _stand(self, span: Span, *, overlaps: bool) -> None:
        """How long somebody might run on what is another one's."""
        standing = overlaps or any(
            CpuSet.parse(cpus) & CpuSet.union(mine for other, mine in self._pinned.items() if other != name)
            for name, each in span.sets.items()
            for cpus in (each.strays.values() if each.kind == APP and name in self._placed else ())
        )
        if standing and self._standing:
            self.verdict.stood[-1] += span.seconds
        elif standing:
            self.verdict.stood.append(span.seconds)
        self._standing = standing

    def _know(self, name: str, each: Seen, ledger: Ledger | None) -> None:
        """Where it belongs by the ledger, or belonged when it was put there."""
        if ledger is None or not each.cpus:
            return
        own = own_of(ledger, each.pod)
        fits = bool(own & each.cpus) and each.cpus.issubset(own | beside(ledger, each.pod))
        if fits or each.cpus.issubset(ledger.cpus.shared):
            self._placed.add(name)
        if fits:
            self._pinned[name], self._whole[name] = each.cpus & own, each.cpus
        elif self._whole.get(name) != each.cpus or (each.pod in ledger.pods and not own):
            self._pinned.pop(name, None)

    def _overlaps(self, span: Span) -> Iterator[tuple[tuple[str, str], CpuSet, str]]:
        """Pairs, whose CPUs they are first; what they have in common; why it does not count, "" where it does."""
        for one, other in combinations(sorted(span.sets), 2):
            owner, guest = (one, other) if one in self._pinned else (other, one)
            mine, his = span.sets[owner], span.sets[guest]
            common = self._pinned.get(owner, CpuSet()) & his.cpus
            if not common or (mine.pod == his.pod and not self._within(span, mine, his, common)):
                continue
            kinds = {mine.kind, his.kind} & {PAUSE, INIT}
            emptied = EMPTIED if self._emptied and self._all(span, his) else ""
            why = emptied if guest in self._placed else NEWCOMER
            yield (owner, guest), common, min(kinds, default=why)

    @staticmethod
    def _all(span: Span, each: Seen) -> bool:
        """Whether it has the CPUs of all, as one whose own set and those above it are empty."""
        return all(other.cpus.issubset(each.cpus) for other in span.sets.values())

    @staticmethod
    def _within(span: Span, mine: Seen, his: Seen, common: CpuSet) -> bool:
        """Whether two of one pod disturb each other: a pod's pool is common to it, a container's CPUs are not."""
        held = span.ledger.cpus.assigned.get(mine.pod, {}) if span.ledger else {}
        return mine.cpus != his.cpus and bool(common & CpuSet.union(held.values()))

    def _wrong(self, span: Span, owner: str, guest: str, common: CpuSet, sweeps: int) -> None:
        ledger = span.ledger
        self.verdict.wrong.append(
            f"{_who(ledger, span.sets[guest], guest)} with CPUs {span.sets[guest].cpus} was on CPUs {common} of "
            f"{_who(ledger, span.sets[owner], owner)} at sweep {span.first} of {self._seen.count}"
            + (f", {sweeps} sweeps long" if sweeps >= IN_A_ROW else "")
        )

    def _close(self, pair: tuple[str, str]) -> None:
        _, counted = self._open.pop(pair)
        if not counted:
            self.verdict.apart[ONCE] += 1

    def _apart(self, kind: str, owner: str, guest: str) -> None:
        """Once for each two and each kind."""
        if (kind, owner, guest) not in self._told:
            self._told.add((kind, owner, guest))
            self.verdict.apart[kind] += 1

    def _threads(self, span: Span) -> None:
        """Those outside their cgroup since one sweep, while the cgroup's own set stayed the same."""
        now = dict[tuple[str, str], tuple[int, CpuSet]]()
        for name, each in span.sets.items():
            foreign = CpuSet.union(cpus for other, cpus in self._pinned.items() if other != name)
            for thread, cpus in each.strays.items() if each.kind == APP else ():
                first, before = self._strays.get((name, thread), (span.first, each.cpus))
                now[name, thread] = (first if before == each.cpus else span.first, each.cpus)
                lasts = span.end - now[name, thread][0]
                most = IN_A_ROW if CpuSet.parse(cpus) & foreign else LASTING
                if lasts >= most and (name, thread) not in self._told:
                    self._told.add((name, thread))
                    self.verdict.wrong.append(
                        f"thread {thread} of {_who(span.ledger, each, name)} might run on CPUs {cpus}, its cgroup on "
                        f"{each.cpus}, at sweep {span.first} of {self._seen.count}, {lasts} sweeps long"
                    )
        self._strays = now


def _who(ledger: Ledger | None, each: Seen, name: str) -> str:
    return f"container {name[:12]} of {pod_name(ledger, each.pod)}"


def strayed(seen: Sweeps, pinned: Mapping[str, CpuSet], *, lost: CpuSet = CpuSet()) -> Iterator[str]:
    """Containers with CPUs of their own that were seen anywhere else; a sentence each.

    Args:
        seen: the sweeps.
        pinned: container id -> its CPUs, of those that ran when the sweeps began.
        lost: CPUs that the kernel took meanwhile.
    """
    for name, cpus in sorted(pinned.items()):
        where = ((span, span.sets[name].cpus) for span in seen.spans if name in span.sets)
        for span, now in where:
            if now not in (cpus, cpus - lost or cpus):
                yield f"container {name[:12]} with CPUs {cpus} was on {now} at sweep {span.first} of {seen.count}"
                break


def summary(verdicts: Iterable[Counter[str]]) -> str:
    """Overlaps that do not count, in words for the report."""
    total = sum(verdicts, Counter[str]())
    return ", ".join(f"{total[kind]} {words}" for kind, words in APART.items())
