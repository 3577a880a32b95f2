"""Faults that numalign once had, each brought back in memory, with the shortest walk that shows it.

The judge of the walk (`walk_judge`) calls each of these walks wrong with its fault, and right without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from agent.engine.effects import Effects
from agent.engine.engine import Engine
from agent.host.nri.decisions import EngineDecisions
from agent.kube.objects import pod_objects
from agent.model.cgroup import Observed
from agent.model.pod import Pod, Stage
from agent.node import deciding, second_look
from agent.node.adopt import Adopter
from tests.property.walk import MACHINES, Walk

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Known:
    """One fault: what it was, how it comes back, and a walk."""

    what: str
    back: Patch
    shown: Callable[[Walk], None]


def begun(
    walk: Walk, *pods: tuple[str, str, bool], policy: str = "best-effort", wish: str = "run", nri: bool = True
) -> None:
    """A node of two sockets with pods that run."""
    walk.begin(layout="v2", machine=MACHINES[0], policy=policy, wish=wish, pods=list(pods), nri=nri)
    walk.right()


def then(walk: Walk, event: Callable[..., None], **found: Any) -> None:  # noqa: ANN401 - of several types
    """The next step of a walk."""
    event(**found)
    walk.right()


# ---- how each comes back


def _late_decision(patch: pytest.MonkeyPatch) -> None:
    def decide(self: EngineDecisions, pod: Pod, within: float = 0.1) -> bool:
        engine: Any = self._engine
        self._queue.put(lambda: engine.pods_seen([pod]))
        return _soon(lambda: self.knows(pod.uid), within)

    from agent.host.nri.decisions import _soon  # noqa: PLC0415 - where it stands today

    patch.setattr(EngineDecisions, "decide", decide)


def _shrink_is_dropped(patch: pytest.MonkeyPatch) -> None:
    kept = deciding._kept

    def dropped(node: Any, ledger: Any, known: Any, **more: Any) -> Any:  # noqa: ANN401 - as it is
        if known.exempt or not known.settings.pin:
            return ledger
        return kept(node, ledger, known, **more)

    patch.setattr(deciding, "_kept", dropped)


def _named_node_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_objects, "_stage", lambda _body: Stage.ACCEPTED)


def _nothing_is_enforced(patch: pytest.MonkeyPatch) -> None:
    stopped = Effects._stopped
    patch.setattr(
        Effects,
        "_stopped",
        lambda self: stopped(self) or ("" if self._state.stands else "what holds is not saved"),
    )


def _other_size_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Adopter, "_stands_alone", lambda *_: False)


def _ended_holds(patch: pytest.MonkeyPatch) -> None:
    free = Engine._free_ended

    def freed(self: Engine) -> None:
        effects = self._effects

        class Full:
            """Every cgroup has a process."""

            def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the effects's
                return getattr(effects, name)

            def observe(self) -> Observed | None:
                found = effects.observe()
                return found and replace(
                    found, cgroups=tuple(replace(each, populated=True) for each in found.cgroups)
                )

        self._effects = Full()  # type: ignore[assignment] # for a moment
        try:
            free(self)
        finally:
            self._effects = effects

    patch.setattr(Engine, "_free_ended", freed)
    patch.setattr(second_look, "candidates", lambda _state, _at: [])


# ---- the walks


def _late(walk: Walk) -> None:
    begun(walk)
    then(walk, walk.runtime_is_quicker, cpu="3", how="gone", steps=3, delivered=True)


def _shrinks(walk: Walk) -> None:
    begun(walk, ("own", "4", False))
    then(walk, walk.resized, which=0, cpu="1", note={"numalign.io/pin": "false"})


def _names_its_node(walk: Walk) -> None:
    begun(walk, ("own", "3", False))
    then(walk, walk.pod_names_its_node, cpu="4", steps=0)


def _memory_differs(walk: Walk) -> None:
    begun(walk, ("own", "3", False))
    then(walk, walk.disk, state="full", steps=8, less=True)
    then(walk, walk.own_pod_comes, cpu="500m", steps=5)


def _ledger_lost(walk: Walk) -> None:
    begun(walk, ("own", "2", False), ("own", "3", False), policy="single-numa-node")
    then(walk, walk.resized, which=1, cpu="4", note={})
    then(walk, walk.agent_is_killed, lost=True, api=True, less=False, pin=True, steps=0)


def _next_of_a_job(walk: Walk) -> None:
    begun(walk, ("own", "5", False), nri=False)
    then(walk, walk.job_ends, which=0, folder=False, comes=True, fast=False)


KNOWN = {
    "F1": Known("a late decision brings back a pod that is gone", _late_decision, _late),
    "D1": Known("an annotation makes a shrink void", _shrink_is_dropped, _shrinks),
    "D2": Known("spec.nodeName alone is granted CPUs", _named_node_counts, _names_its_node),
    "D4": Known("a ledger that cannot be saved stops all writing", _nothing_is_enforced, _memory_differs),
    "D7": Known("a lost ledger costs a container its CPUs whose resize waits", _other_size_is_lost, _ledger_lost),
    "J": Known("a pod that has ended holds its CPUs while its folder is there", _ended_holds, _next_of_a_job),
}
