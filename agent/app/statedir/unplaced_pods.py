"""Pods without a grant (refused, waiting, exempt), saved for `numalign explain` and `numalign state`.

The ledger holds the grants. Why a pod has none, and which grants are not in force in the kernel, is known to the
engine alone and is lost when it ends; so it is written to the state file whenever it changes. It is a report:
nothing depends on it. Where it is lost or unreadable, a pod is explained from its manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from agent.app.statedir import state_file
from agent.core.explain.standing import PodStanding
from agent.core.request.annotations import PodSettings
from agent.model.outcome import Refusal
from agent.model.pod import Pod
from agent.node.state import State
from agent.node.tracked_pod import TrackedPod
from agent.observe.logs import LOG

MOST = 2_000
"""The most pods that are written: more than a kubelet runs; they fit the file, as `agent.model.notes` bounds each."""
MOST_GONE = 100
"""The most refused pods that stay known after they are gone; the last ones count."""


@dataclass(frozen=True, slots=True)
class UnplacedPod:
    """A pod without a grant, and why; `gone`: it ended, or is gone from the API."""

    pod: Pod
    refusal: Refusal | None = None
    exempt: str = ""
    gone: bool = False

    @property
    def standing(self) -> PodStanding:
        """The same in the form that explanations take."""
        return PodStanding(self.refusal, self.exempt)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """What is written.

    Attributes:
        pods: by uid.
        unenforced: grants that are not in force in the kernel: uid -> container -> why.
    """

    pods: Mapping[str, UnplacedPod] = field(default_factory=dict)
    unenforced: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class UnplacedPods:
    """Writes them when something changed.

    A refused pod stays known for a while after it is gone: with `fail` the kubelet ends it within seconds, and
    users ask afterwards.

    Args:
        state: the state folder; what an earlier agent kept there is read.
    """

    def __init__(self, state: Path) -> None:
        self._state, self._kept = state, load(state)
        self._told = False
        self._seen: State | None = None

    def follow(self, snapshot: State) -> None:
        """Save what changed in a snapshot. A file that cannot be written is logged once, and stops nothing."""
        if snapshot is self._seen:  # asked several times a second
            return
        lacking = {uid: dict(each) for uid, each in islice(sorted(snapshot.unenforced.items()), MOST)}
        now = Unplaced(self._with(snapshot), lacking)
        if now != self._kept:
            try:
                state_file.keep(self._state, unplaced=now)
            except OSError as error:
                if not self._told:
                    LOG.warning("refused pods are not kept for numalign explain: %s", error)
                self._told = True
                return
            self._kept = now
            self._told = False
        self._seen = snapshot

    def _with(self, snapshot: State) -> dict[str, UnplacedPod]:
        """Return the pods without a grant by uid; before them the last refused pods that are gone."""
        now = {
            uid: UnplacedPod(known.pod, known.refusal, known.exempt)
            for uid, known in sorted(snapshot.pods.items())
            if not known.ended and (known.refusal is not None or known.exempt)
        }
        gone = {
            uid: replace(each, gone=True)
            for uid, each in self._kept.pods.items()
            if each.refusal is not None and uid not in now and not _inside(snapshot, uid)
        }
        return dict([*list(gone.items())[-MOST_GONE:], *list(now.items())[:MOST]])


def _inside(snapshot: State, uid: str) -> bool:
    """Return True if a pod is known and has not ended: if it has no grant now, it is listed as such."""
    known = snapshot.pods.get(uid)
    return known is not None and not known.ended


def load(state: Path) -> Unplaced:
    """Read what was written last; empty where nothing can be read."""
    return state_file.part(state, "unplaced", Unplaced) or Unplaced()


def tracked(found: Unplaced) -> dict[str, TrackedPod]:
    """Return the pods without a grant that are not gone, as the engine knew them; their settings are not kept."""
    return {
        uid: TrackedPod(each.pod, PodSettings(), refusal=each.refusal, exempt=each.exempt)
        for uid, each in found.pods.items()
        if not each.gone
    }
