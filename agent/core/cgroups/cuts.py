"""What cgroups that an application made below its container had before this agent cut them (cgroup v1). Pure.

On v1 a cgroup cannot shrink below its children (EBUSY), so theirs are cut with it, and they are given back as much of
what they had as the container has again. One that asks for anything else than was written there last has been written
by the application since: that is its own choice. On v2 the kernel does all of this.

Used by `agent.core.cgroups.desired` and `release`; kept by `agent.engine.enforcer`, and saved with the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.errors import MalformedError
from agent.model.cgroup import Cgroup, Level, Observed, Written
from agent.model.fields import mapping_of
from agent.model.idset import CpuSet, IdSet

CPUS, MEMS = "cpuset.cpus", "cpuset.mems"
MOST = 1000
"""So many are remembered, as a container may make a hundred thousand cgroups. Those beyond stay cut."""
SAVED = "cuts"
"""Key of what is saved of them with a ledger: path -> file -> [set before, set as it was written last]."""
_LONGEST = 4096
"""Characters of a path."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A set before it was cut, and as it was written last."""

    had: IdSet
    wrote: IdSet


Cuts = Mapping[tuple[str, str], Cut]
"""(path, file) -> what was cut there."""
NONE: Cuts = {}


def had(cuts: Cuts, cgroup: Cgroup, file: str) -> IdSet:
    """What a cgroup had before it was cut, else what it asks for."""
    found = cuts.get((cgroup.path, file))
    return found.had if found else _asked(cgroup, file)


def standing(cuts: Cuts, observed: Observed, online: CpuSet | None = None) -> Cuts:
    """The cuts that are still as they were written, less the CPUs that went offline: the kernel takes those away."""
    found: dict[tuple[str, str], Cut] = {}
    for cgroup in observed.cgroups if cuts else ():
        for file in (CPUS, MEMS):
            cut, asked = cuts.get((cgroup.path, file)), _asked(cgroup, file).bits
            if cut and asked == cut.wrote.bits:
                found[cgroup.path, file] = cut
            elif cut and file == CPUS and online is not None and asked == cut.wrote.bits & online.bits:
                found[cgroup.path, file] = Cut(cut.had, IdSet(asked))
    return found


def after(cuts: Cuts, observed: Observed, results: Iterable[Written]) -> Cuts:
    """The cuts after writes; what has again all that it had is cut no more."""
    if observed.version != 1:
        return NONE
    inner = {each.path: each for each in observed.cgroups if each.level is Level.INNER}
    found = dict(cuts)
    for result in results:
        key = result.write.path, result.write.file
        if key[0] not in inner or key[1] not in (CPUS, MEMS) or result.error:
            continue
        before, wrote = had(found, inner[key[0]], key[1]), _parsed(result.read_back)
        if wrote is None or wrote.bits == before.bits:
            found.pop(key, None)
        elif key in found or len(found) < MOST:
            found[key] = Cut(before, wrote)
    return found


def as_saved(cuts: Cuts) -> dict[str, dict[str, list[str]]]:
    """In JSON's types."""
    found: dict[str, dict[str, list[str]]] = {}
    for (path, file), cut in sorted(cuts.items()):
        found.setdefault(path, {})[file] = [str(cut.had), str(cut.wrote)]
    return found


def saved_in(extra: Mapping[str, object]) -> Cuts:
    """What was saved with a ledger; nothing of it is trusted, and what cannot be read is left out."""
    found: dict[tuple[str, str], Cut] = {}
    for path, files in list(mapping_of(extra.get(SAVED)).items())[:MOST]:
        for file in (CPUS, MEMS):
            sets = mapping_of(files).get(file)
            texts = sets if isinstance(sets, list) and len(sets) == len(("had", "wrote")) else ()
            before, wrote = (_parsed(each) for each in texts) if texts else (None, None)
            if before and wrote and len(path) < _LONGEST:
                found[path, file] = Cut(before, wrote)
    return found


def _asked(cgroup: Cgroup, file: str) -> IdSet:
    return cgroup.cpus if file == CPUS else cgroup.mems


def _parsed(text: object) -> IdSet | None:
    try:
        return IdSet.parse(text) if isinstance(text, str) else None
    except MalformedError:
        return None
