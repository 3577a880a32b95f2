"""What a release left behind: each cgroup that still has a set of its own, with the reason. Pure.

Asked by `numalign release` (`agent.app.offline.releasing`) and by an agent that is asked to leave its node
(`agent.app.cluster.decommission`). A clean uninstall is one where nothing remains, or only what the kernel keeps and
what means the same.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agent.core.cgroups.desired import RUNTIME_INNER
from agent.model.cgroup import HANGS, VANISHED, Cgroup, Level, Observed, Written

KEPT_BY_KERNEL = "set to all CPUs and NUMA nodes: the kernel does not let it be empty while processes run"
"""Of cgroup v2 up to Linux 6.19."""
HANGING = "the write has not returned: pages are being moved; it completes by itself"


@dataclass(frozen=True, slots=True)
class Remains:
    """A cgroup that still has a set of its own.

    Attributes:
        path, file: which.
        value: what it asks for.
        why: one sentence.
        confines: it still has less than kubepods.
    """

    path: str
    file: str
    value: str
    why: str
    confines: bool


@dataclass(frozen=True, slots=True)
class Released:
    """What a release did.

    Attributes:
        written: every write and its outcome.
        remains: what is not as it was before numalign, in tree order.
    """

    written: tuple[Written, ...]
    remains: tuple[Remains, ...]

    @property
    def clean(self) -> bool:
        """No container is confined any more."""
        return not any(each.confines for each in self.remains)


def remaining(written: tuple[Written, ...], after: Observed) -> tuple[Remains, ...]:
    """What is not as it was before numalign.

    Args:
        written: the writes of the release.
        after: the tree as read afterwards.
    """
    errors = {(each.write.path, each.write.file): each.error for each in written if each.error}
    return (*_sets(after, errors), *_quotas(written))


def _sets(observed: Observed, errors: dict[tuple[str, str], str]) -> Iterator[Remains]:
    top = next((cgroup for cgroup in observed.cgroups if cgroup.level is Level.KUBEPODS), None)
    for cgroup in observed.cgroups if top else ():
        if top is None or cgroup.level is Level.KUBEPODS or not _ours(cgroup):
            continue
        for file, asked, effective, all_of in (
            ("cpuset.cpus", cgroup.cpus, cgroup.effective_cpus, top.effective_cpus),
            ("cpuset.mems", cgroup.mems, cgroup.effective_mems, top.effective_mems),
        ):
            confines = effective != all_of
            named = bool(asked) and observed.version != 1  # on v1 every cgroup names a set, with numalign or without
            if confines or named:
                why = _why(errors.get((cgroup.path, file), ""), confines=confines)
                yield Remains(cgroup.path, file, str(asked), why, confines)


def _ours(cgroup: Cgroup) -> bool:
    """Levels that an application made below its container are its own."""
    return cgroup.level is not Level.INNER or cgroup.path.endswith(f"/{RUNTIME_INNER}")


def _why(error: str, *, confines: bool) -> str:
    if error == errno.errorcode[errno.ENOSPC] and not confines:
        return KEPT_BY_KERNEL
    if error == HANGS:
        return HANGING
    return f"the kernel refused: {error}" if error else "it was written by another program meanwhile"


def _quotas(written: Iterable[Written]) -> Iterator[Remains]:
    for each in written:
        if each.write.file.startswith("cpu.") and each.error not in ("", VANISHED):
            why = f"the quota could not be put back: {each.error}"
            yield Remains(each.write.path, each.write.file, each.write.old, why, confines=False)
