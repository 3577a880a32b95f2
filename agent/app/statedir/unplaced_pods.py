"""What the ledger does not say of pods: kept beside it, for `numalign explain` and `numalign state`.

The ledger holds who is in. Why somebody is not (refused, waiting, left alone), and for whom the kernel does not have
what he holds, is known to the engine only, and gone with it; so it is written to a small file of the state folder
whenever it changes. It is a report and no source: nothing depends on it, and where it is lost or unreadable, a pod is
explained from its manifest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from agent.app.statedir import json_file as small_files
from agent.core.explain.standing import PodStanding
from agent.core.request.annotations import PodSettings
from agent.errors import MalformedError
from agent.model.fields import Field
from agent.model.outcome import refusal_from_json
from agent.model.pod import Pod
from agent.model.podjson import pod_from_json, pod_to_json
from agent.node.state import State
from agent.node.tracked_pod import TrackedPod
from agent.observe.logs import LOG

FILE = "outside.json"
VERSION = 1
MOST = 10_000
"""Pods that are written."""
MOST_GONE = 100
"""Of those that were refused and are gone, so many stay known, the last ones."""
_LARGEST = 64 * 1024 * 1024
_LONGEST = 1 << 16


@dataclass(frozen=True, slots=True)
class UnplacedPod:
    """A pod, and what is known of it beside the ledger; `gone`: it ended, or left the API."""

    pod: Pod
    standing: PodStanding
    gone: bool = False


class UnplacedPods:
    """Writes the file when something changed.

    A pod that was refused stays known for a while after it is gone: the kubelet ends one that shall fail within
    seconds, and then people ask.

    Args:
        state: the state folder; what an earlier agent kept there is read.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / FILE
        self._pods, self._lacking = dict(load(state)), dict(unenforced(state))
        self._told = False
        self._seen: State | None = None

    def follow(self, snapshot: State) -> None:
        """Keep what a snapshot says. A file that cannot be written is told once, and stops nothing."""
        if snapshot is self._seen:  # asked several times a second
            return
        pods = self._with(snapshot)
        lacking = {uid: dict(each) for uid, each in islice(sorted(snapshot.unenforced.items()), MOST)}
        if (pods, lacking) != (self._pods, self._lacking):
            body = {
                "version": VERSION, "unenforced": lacking,
                "pods": {uid: _written(each) for uid, each in pods.items()},
            }  # fmt: skip
            try:
                small_files.keep(self._path, body)
            except OSError as error:
                if not self._told:
                    LOG.warning("who was refused is not kept for numalign explain: %s", error)
                self._told = True
                return
            self._pods = pods
            self._lacking = lacking
            self._told = False
        self._seen = snapshot

    def _with(self, snapshot: State) -> dict[str, UnplacedPod]:
        """Those who are outside now, by uid; before them the last ones that were refused and are gone."""
        now = {
            uid: UnplacedPod(known.pod, PodStanding(known.refusal, known.exempt))
            for uid, known in sorted(snapshot.pods.items())
            if not known.ended and (known.refusal is not None or known.exempt)
        }
        gone = {
            uid: replace(each, gone=True)
            for uid, each in self._pods.items()
            if each.standing.refusal is not None and uid not in now and not _inside(snapshot, uid)
        }
        return dict([*list(gone.items())[-MOST_GONE:], *list(now.items())[:MOST]])


def _inside(snapshot: State, uid: str) -> bool:
    """Whether a pod that was outside is in, or not outside any more."""
    known = snapshot.pods.get(uid)
    return known is not None and not known.ended


def _written(each: UnplacedPod) -> dict[str, object]:
    return {
        "pod": pod_to_json(each.pod),
        "exempt": each.standing.exempt,
        "gone": each.gone,
        "refusal": each.standing.refusal.to_json() if each.standing.refusal else None,
    }  # fmt: skip


def load(state: Path) -> Mapping[str, UnplacedPod]:
    """Who was outside when it was written last, by uid; nobody where nothing readable is."""
    with contextlib.suppress(OSError, ValueError, MalformedError, RecursionError):  # it is written anew
        root = Field(small_files.read(state / FILE, _LARGEST))
        if root.get("version").value == VERSION:
            pods = root.get("pods")
            return {uid: _outsider(pods.get(uid), uid) for uid in pods.mapping()} if pods else {}
    return {}


def unenforced(state: Path) -> dict[str, dict[str, str]]:
    """For whom the kernel did not have what he holds when that was written last: uid -> container -> why."""
    with contextlib.suppress(OSError, ValueError, MalformedError, RecursionError):  # as above
        root = Field(small_files.read(state / FILE, _LARGEST))
        if root.get("version").value == VERSION:
            return {
                uid: {name: why.text(_LONGEST) for name, why in found.members(MOST)}
                for uid, found in root.get("unenforced").members(MOST)
            }
    return {}


def tracked(state: Path) -> dict[str, TrackedPod]:
    """Those who are outside and not gone, as the engine knew them; their wishes are not kept."""
    return {
        uid: TrackedPod(each.pod, PodSettings(), refusal=each.standing.refusal, exempt=each.standing.exempt)
        for uid, each in load(state).items()
        if not each.gone
    }


def _outsider(field: Field, uid: str) -> UnplacedPod:
    refusal = refusal_from_json(field.get("refusal")) if field.get("refusal") else None
    standing = PodStanding(refusal, field.get("exempt").text())
    return UnplacedPod(pod_from_json(field.get("pod"), uid), standing, gone=field.get("gone").flag())
