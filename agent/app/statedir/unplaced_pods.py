"""What the ledger does not say of pods: kept beside it, for `numalign explain` and `numalign state`.

The ledger holds who is in. Why somebody is not (refused, waiting, left alone), and for whom the kernel does not have
what he holds, is known to the engine only, and gone with it; so it is written to the state file whenever it changes.
It is a report and no source: nothing depends on it, and where it is lost or unreadable, a pod is explained from its
manifest.
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
"""Pods that are written: more than a kubelet runs, and what of them is kept (`agent.model.notes`) fits the file."""
MOST_GONE = 100
"""Of those that were refused and are gone, so many stay known, the last ones."""


@dataclass(frozen=True, slots=True)
class UnplacedPod:
    """A pod, and what is known of it beside the ledger; `gone`: it ended, or left the API."""

    pod: Pod
    refusal: Refusal | None = None
    exempt: str = ""
    gone: bool = False

    @property
    def standing(self) -> PodStanding:
        """The same as explanations take it."""
        return PodStanding(self.refusal, self.exempt)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """What is written.

    Attributes:
        pods: by uid.
        unenforced: for whom the kernel does not have what he holds: uid -> container -> why.
    """

    pods: Mapping[str, UnplacedPod] = field(default_factory=dict)
    unenforced: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class UnplacedPods:
    """Writes them when something changed.

    A pod that was refused stays known for a while after it is gone: the kubelet ends one that shall fail within
    seconds, and then people ask.

    Args:
        state: the state folder; what an earlier agent kept there is read.
    """

    def __init__(self, state: Path) -> None:
        self._state, self._kept = state, load(state)
        self._told = False
        self._seen: State | None = None

    def follow(self, snapshot: State) -> None:
        """Keep what a snapshot says. A file that cannot be written is told once, and stops nothing."""
        if snapshot is self._seen:  # asked several times a second
            return
        lacking = {uid: dict(each) for uid, each in islice(sorted(snapshot.unenforced.items()), MOST)}
        now = Unplaced(self._with(snapshot), lacking)
        if now != self._kept:
            try:
                state_file.keep(self._state, unplaced=now)
            except OSError as error:
                if not self._told:
                    LOG.warning("who was refused is not kept for numalign explain: %s", error)
                self._told = True
                return
            self._kept = now
            self._told = False
        self._seen = snapshot

    def _with(self, snapshot: State) -> dict[str, UnplacedPod]:
        """Those who are outside now, by uid; before them the last ones that were refused and are gone."""
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
    """Whether a pod that was outside is in, or not outside any more."""
    known = snapshot.pods.get(uid)
    return known is not None and not known.ended


def load(state: Path) -> Unplaced:
    """What was written last; nothing where nothing readable is."""
    return state_file.part(state, "unplaced", Unplaced) or Unplaced()


def tracked(found: Unplaced) -> dict[str, TrackedPod]:
    """Those who are outside and not gone, as the engine knew them; their wishes are not kept."""
    return {
        uid: TrackedPod(each.pod, PodSettings(), refusal=each.refusal, exempt=each.exempt)
        for uid, each in found.pods.items()
        if not each.gone
    }
