"""A pod that the runtime starts: asked for once, unless the watch has brought it or told its end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent.app.cluster.find_pod import PodFinder
from agent.kube.objects.pod_objects import SeenPod
from agent.kube.watch.namespaces import Namespaces
from agent.model.pod import Stage
from agent.model.podspec import pod_from
from tests.flow.cluster_node import ClusterNode, StandInApi, edges_of
from tests.flow.told import Api
from tests.flow.world import World, manifest
from tests.patience import PATIENCE, until

JOB = manifest("job")


class Asked:
    """A finder on a world, the requests that it made, and the pods of which it told."""

    def __init__(self, folder: Path, during: str = "") -> None:
        self.world, self.api, self.heard = World(folder), Api(), list[str]()
        self.world.engine.pods_listed(set())

        def answer(_method: str, _path: str, _body: object) -> Mapping[str, Any]:
            if during:
                self.world.engine.pods_gone([during])
            return JOB

        def known(_body: Mapping[str, Any], found: SeenPod) -> None:
            self.heard.append(found.pod.uid)

        self.api.answer = answer
        spaces = Namespaces(lambda _path: {})
        self.find = PodFinder(self.api, spaces, self.world.engine, known, lambda _text: None)


def test_a_pod_that_is_not_known_is_asked_for(tmp_path: Path) -> None:
    """One GET, and it is heard of as of one that the watch brings."""
    asked = Asked(tmp_path)
    found = asked.find("default", "job", "job")
    assert found is not None
    assert (found.uid, len(asked.api.requests), asked.heard) == ("job", 1, ["job"])
    asked.find.close()


def test_s9_a_pod_that_the_watch_has_brought_costs_no_request(tmp_path: Path) -> None:
    """It waits for the kubelet to accept it, which the runtime says now: no answer is waited for."""
    asked = Asked(tmp_path)
    asked.world.engine.pods_seen([replace(pod_from(JOB), stage=Stage.NAMED)])
    found = asked.find("default", "job", "job")
    assert found is not None
    assert (found.uid, asked.api.requests) == ("job", [])
    asked.find.close()


@pytest.mark.parametrize("during", ["job", ""])
def test_s13_a_pod_whose_end_is_told_meanwhile_is_not_heard_of(tmp_path: Path, during: str) -> None:
    """The answer was read before its end: nothing is kept of it."""
    asked = Asked(tmp_path, during)
    asked.find("default", "job", "job")
    assert asked.heard == ([] if during else ["job"])
    asked.find.close()


@dataclass
class OneHeldUp(StandInApi):
    """Its answer about the pod "first" comes when the test wants it."""

    reached: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def answer(self, path: str) -> tuple[int, dict[str, Any] | bytes]:
        """See StandInApi."""
        if path.endswith("/pods/first"):
            self.reached.set()
            self.over.wait(PATIENCE)
        return super().answer(path)

    def heard_of(self, name: str) -> bool:
        """Whether a pod was asked for."""
        return any(path.endswith(f"/pods/{name}") for path, _ in self.asked)


def test_a_question_about_a_pod_ends_with_the_runtimes_own(tmp_path: Path) -> None:
    """One GET hangs, and nobody waits for the one behind it any more: the next pod is not kept waiting for both.

    Finding 30.
    """
    node = ClusterNode(tmp_path)
    node.keep()
    with OneHeldUp() as api, node.serving(api.url) as agent:
        try:
            until(lambda: edges_of(agent).find("default", "first", "first") is None and api.reached.is_set())
            assert edges_of(agent).find("default", "second", "second") is None
        finally:
            api.over.set()
        until(lambda: edges_of(agent).find("default", "third", "third") is None and api.heard_of("third"))
        assert not api.heard_of("second")
