"""The saved ledger at start, or why it is not used: damaged, of a newer version, of another machine (decision 13).

Used by the `build` of cluster and standalone. What is not used is put aside with its name kept, and the
grants are rebuilt from the cgroups (`agent.node.recover`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.core.admission.node import Node
from agent.core.cgroups.cuts import Cuts, saved_in
from agent.errors import (
    CheckpointCorruptError,
    CheckpointForeignError,
    CheckpointTooNewError,
    CheckpointUnwritableError,
)
from agent.host.checkpoint import Checkpoint
from agent.model.cgroup import Observed
from agent.model.ledger import Ledger
from agent.model.pod import Pod
from agent.node.recover import ANSWERS, LISTED, names_in, of_another_machine
from agent.observe.logs import LOG

_WORD = 40


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a start has of the one before.

    Attributes:
        ledger: None where there is none to be used.
        complete: it was saved after a complete list of pods.
        names: container id -> (pod uid, container name), of those that held something.
        cut: what applications' own cgroups had before they were cut.
        answers: the answers that were given when it was saved (`Rules.answers`); "" where an older version saved it.
        aside: why the checkpoint was put aside, "" when it was not.
    """

    ledger: Ledger | None = None
    complete: bool = True
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    cut: Cuts = field(default_factory=dict)
    aside: str = ""
    answers: str = ""


def load(store: Checkpoint, node: Node, observed: Observed, pods: Sequence[Pod]) -> Loaded:
    """Read the checkpoint; put it aside where it is not used.

    Args:
        store: where it is.
        node: the managers on this machine.
        observed: the cgroups now.
        pods: those that are known now; may be empty.

    Raises:
        CheckpointError: it is there but cannot be read.
    """
    try:
        return _used(store, node, observed, pods)
    except (CheckpointCorruptError, CheckpointTooNewError, CheckpointForeignError) as error:
        try:
            what = f"it was put aside as {store.quarantine().name}"
        except CheckpointUnwritableError as refused:  # a disk that is full or read-only stops no start
            what = f"{refused}, and nothing is saved over it before"
        return Loaded(aside=f"{error}; {what}, the grants are rebuilt from the cgroups")


def _used(store: Checkpoint, node: Node, observed: Observed, pods: Sequence[Pod]) -> Loaded:
    saved = store.load()
    if saved is None:
        return Loaded()
    if of_another_machine(saved.ledger, node, observed, pods):
        what = (
            f"is of machine {saved.ledger.machine}, this one is {node.machine.digest}, and none of its pods is here"
        )
        raise CheckpointForeignError(str(store.path), what)
    answers = str(saved.extra.get(ANSWERS, ""))[:_WORD]
    listed = saved.extra.get(LISTED) is not False
    return Loaded(saved.ledger, listed, names_in(saved.extra), saved_in(saved.extra), answers=answers)


def tell_answers(before: str, now: str) -> None:
    """Warn that new pods get other answers than the pods that are here got; no grant moves by that.

    Args:
        before: the answers that were given (`Rules.answers`); "" where that is not known.
        now: the answers that are given now.
    """
    if before and before != now:
        LOG.warning("answers were those of %s and are those of %s now, for new pods: nothing moves", before, now)
