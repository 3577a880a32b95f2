"""What the watch brings late, or as another pod than it is: running pods keep what they run on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from agent.app.cluster.start import find_pod, read_start
from agent.core.request.exempt import Exemptions
from agent.host.standin import container_id
from agent.model.podspec import pod_from
from tests.flow.told import telling
from tests.flow.world import container, manifest

HASH = "0123456789abcdef0123456789abcdef"
SETTINGS = {"topologyManagerPolicy": "single-numa-node", "onMisalignment": "fail"}


def running(name: str, cpu: str, seconds: float) -> dict[str, Any]:
    """A pod whose container was started so many seconds ago."""
    body = manifest(name, container(cpu=cpu))
    body["spec"]["nodeName"] = "n1"
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds))
    body["status"] = {"phase": "Running", "containerStatuses": [
        {"name": "app", "containerID": f"containerd://{container_id(name, 'app')}",
         "state": {"running": {"startedAt": started}}},
    ]}  # fmt: skip
    return body


@pytest.mark.parametrize(("seconds", "ended"), [(3600, False), (0, True)])
def test_s4_a_pod_that_ran_while_the_watch_was_away_is_not_ended(
    tmp_path: Path, seconds: float, *, ended: bool
) -> None:
    """No room for it is left, and the node ends pods that are refused: not one that has run for an hour."""
    with telling(tmp_path, settings=SETTINGS) as told:
        told.list(manifest("a"), manifest("b"))
        late = running("late", "4", seconds)
        told.world.tree.add_pod("late", pod_from(late).qos)
        told.world.tree.add_container("late", container_id("late", "app"))
        told.see(late)
        told.settled()
        assert bool(told.api.deadlines("late")) is ended
        assert ("late" in told.world.engine.ledger.pods) is not ended
        told.world.check()


def static(name: str, uid: str, cpu: str, *, space: str, created: int) -> dict[str, Any]:
    """A pod with the marks of the mirror of one static pod."""
    body = manifest(name, container(cpu=cpu), namespace=space, created=created)
    body["metadata"] |= {
        "uid": uid, "annotations": {f"kubernetes.io/config.{part}": HASH for part in ("hash", "mirror")},
        "ownerReferences": [{"kind": "Node", "name": "n1", "uid": "node", "controller": True}],
    }  # fmt: skip
    body["spec"]["nodeName"] = "n1"
    if space == "edge":
        body["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}  # the kubelet
    return body


def test_a_pod_with_a_static_pods_hash_takes_nothing_from_it(tmp_path: Path) -> None:
    """The static pod keeps its CPUs and its words while a tenant's pod that poses as it comes, changes and ends."""
    exempt = Exemptions(included=("*/*",)).why
    with telling(tmp_path, exempt=exempt) as told:
        world, real = told.world, static("rt-n1", "real", "3", space="edge", created=0)
        told.list(real)
        world.pods = {HASH: pod_from(real)}
        world.start(HASH)
        held = world.holds(HASH)
        told.settled()
        for cpu in ("1", "2"):
            told.see(static("fake-n1", "fake", cpu, space="evil", created=9))
            told.settled()
            assert (world.holds(HASH), world.effective(HASH)) == (held, held)
            assert world.engine.pods[HASH].pod.key == "edge/rt-n1"
        told.see(real)
        told.intake.pod_deleted(static("fake-n1", "fake", "2", space="evil", created=9))
        told.settled()
        assert not world.engine.pods[HASH].ended
        assert (world.holds(HASH), world.holds("fake")) == (held, "")
        assert {body["metadata"]["uid"] for _, path, body in told.api.requests if path.endswith("/rt-n1/status")} == {
            "real"
        }


class Lists:
    """An API server, as far as a start and a look for one pod ask it."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = pods

    def get(self, path: str) -> dict[str, Any]:
        """The Node."""
        return {"metadata": {"name": path.rpartition("/")[2]}}

    def call(self, *_: object, **__: object) -> dict[str, Any]:
        """The list."""
        return {"items": list(self.pods)}

    def pod(self, _space: str, name: str) -> dict[str, Any]:
        """One pod."""
        return next(each for each in self.pods if each["metadata"]["name"] == name)


@pytest.mark.parametrize("order", [1, -1])
def test_a_start_knows_the_static_pod_by_its_own_mirror(order: int) -> None:
    """Of two pods with one hash the list may have either first: names and CPUs are those of the node's own mirror."""
    real, fake = (
        static(name, uid, cpu, space=space, created=created)
        for name, uid, cpu, space, created in (("rt-n1", "real", "3", "edge", 0), ("fake-n1", "fake", "1", "evil", 9))
    )
    for each, number in ((real, "r"), (fake, "f")):
        each["status"] = {"containerStatuses": [{"name": "app", "containerID": f"containerd://{number}"}]}
    start = read_start(Lists(*[real, fake][::order]), "n1", lambda _name: {})  # type: ignore[arg-type] # what of it is used
    assert {(each.uid, each.key) for each in start.pods if each.uid == HASH} == {(HASH, "edge/rt-n1")}
    assert {number: uid for number, (uid, _) in start.names.items() if uid == HASH} == {"r": HASH}


@pytest.mark.parametrize(("seconds", "found"), [(0, True), (3600, False)])
def test_s4_a_pod_that_has_run_for_long_is_left_to_the_watch(seconds: float, *, found: bool) -> None:
    """The runtime names it as it restarts a container: no short cut decides on it as on one that starts."""
    client = Lists(running("late", "2", seconds))
    pod = find_pod(client, lambda _name: {}, "default", "late", "late")  # type: ignore[arg-type] # as above
    assert (pod is not None) is found
