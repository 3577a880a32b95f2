"""What a start made of checkpoint, cgroups and pods: logged, and saved beside the ledger for `numalign state`.

Written by `agent.app.service.begin` after every recovery (`agent.node.recover` has the rules). It is a report and
no source: nothing depends on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.app.statedir import state_file
from agent.node.recover import Recovered
from agent.observe.logs import LOG

Since = Callable[[str], float | None]
"""About when a cgroup was made, by its path."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """One start.

    Attributes:
        at: when, seconds since the epoch.
        kept: uids of pods that the saved ledger had.
        adopted: uids of pods whose grants were read from their cgroups.
        left: uids of pods that ran, and were left to admission (safety.md S4).
        unknown: uids of unknown pods that had cgroups: untouched before the first list of pods.
        dropped: what could not be carried over to this machine and these settings, one sentence each.
        quarantined: why the checkpoint was put aside, "" when it was not.
        saved: there was a checkpoint that could be read.
        standing: containers that started while no agent ran, on exclusive CPUs of pods that are not Guaranteed; one
            sentence each.
    """

    at: float
    kept: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    quarantined: str = ""
    saved: bool = True
    standing: tuple[str, ...] = ()


def tell(
    state: Path, found: Recovered, quarantined: str = "", *, since: Since = lambda _path: None,
    saved: float | None = None,
) -> RecoveryReport:  # fmt: skip
    """Log what a recovery did, and keep it in the state folder; returns it.

    Args:
        state: the folder.
        found: what it did.
        quarantined: why the checkpoint was put aside, "" when it was not.
        since: about when a cgroup was made, by its path.
        saved: when the checkpoint was saved, seconds since the epoch: until then an agent ran.
    """
    facts = {"kept": len(found.kept), "adopted": len(found.adopted), "unknown": len(found.unknown)}
    LOG.info("recovered", extra={"facts": {**facts, "as_saved": found.as_saved}})
    for loss in found.losses:
        LOG.warning("not carried over: %s", loss.what, extra={"facts": {"uid": loss.uid}})
    made = [(each, since(each.path)) for each in found.standing]
    # a container older than the last save ran beside the agent, which ended before it could write what it saved
    away = [(each, at) for each, at in made if at is None or saved is None or at >= saved]
    stood = [(each.sandbox, each.sentence(found.ledger, _shown(at))) for each, at in away]
    for text in (text for sandbox, text in stood if sandbox):  # no program of the pod: for the record
        LOG.info("%s", text)
    report = RecoveryReport(
        at=time.time(), kept=found.kept, adopted=found.adopted, left=found.running, unknown=found.unknown,
        dropped=tuple(f"pod {loss.uid}: {loss.what}" if loss.uid else loss.what for loss in found.losses),
        quarantined=quarantined, saved=found.saved, standing=tuple(text for sandbox, text in stood if not sandbox),
    )  # fmt: skip
    try:
        state_file.keep(state, start=report)
    except OSError as error:
        LOG.warning("the report of this start is not kept: %s", error)
    return report


def _shown(since: float | None) -> str:
    return "" if since is None else time.strftime(" since about %Y-%m-%d %H:%M:%SZ", time.gmtime(since))


def load(state: Path) -> RecoveryReport | None:
    """The report of the last start; None where there is none, or none that this version reads."""
    return state_file.part(state, "start", RecoveryReport)


def sentences(report: RecoveryReport) -> Iterator[str]:
    """Return the report as sentences, faults last."""
    at = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(report.at))
    pods = f"kept {len(report.kept)}, adopted {len(report.adopted)} from their cgroups"
    yield f"last start {at}: {pods}, dropped {len(report.dropped)}, quarantined {1 if report.quarantined else 0}"
    if report.adopted:
        yield f"adopted as they ran: pods {', '.join(report.adopted)}"
    if report.left:
        yield f"ran before and were admitted as such: pods {', '.join(report.left)}"
    if report.unknown:
        yield f"had cgroups and were unknown at that time: pods {', '.join(report.unknown)}"
    yield from (f"dropped: {each}" for each in report.dropped)
    yield from report.standing
    if report.quarantined:
        yield f"quarantined: {report.quarantined}"
    elif not report.saved and not (report.adopted or report.left or report.unknown):
        yield "there was no checkpoint, and no pod ran: a first start"
    elif not report.saved:
        yield "there was no checkpoint: the ledger was rebuilt from cgroups and pods"
