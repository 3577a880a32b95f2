"""A pod that the runtime starts: asked for once, unless the watch has brought it or told its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.app.cluster.find_pod import PodFinder
from agent.kube.objects.pod_objects import SeenPod
from agent.kube.watch.namespaces import Namespaces
from agent.model.pod import Stage
from agent.model.podspec import pod_from
from tests.flow.told import Api
from tests.flow.world import World, manifest

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
        self.find = PodFinder(self.api, spaces, self.world.engine, known, lambda _text: None)  # type: ignore[arg-type] # what of the client is used


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
