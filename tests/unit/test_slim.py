"""What is kept of a pod's object: little, and all that is asked of it again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.core.cgroups.writers import pod_writes
from agent.kube.objects.kept_fields import slim
from agent.kube.pod_report import carried, nothing
from agent.kube.publishing.cleanup import ended, remaining
from agent.kube.publishing.refusal_limiter import owner_of
from tests.unit.cleanup_cases import RULE, ours


def fat() -> dict[str, Any]:
    """One that we ended, with all that its author may add."""
    body = ours()
    body["metadata"]["annotations"] |= {f"x.example/{number}": "v" * 1000 for number in range(200)}
    body["metadata"]["labels"] = {f"l{number}": "v" * 60 for number in range(500)}
    body["metadata"]["ownerReferences"] = [{"uid": "other"}, {"uid": "set", "controller": True, "name": "n" * 200}]
    body["spec"]["containers"][0]["env"] = [{"name": f"E{number}", "value": "v" * 5000} for number in range(50)]
    return body


def test_the_same_answers_follow_from_what_is_kept() -> None:
    """When it ended, whether it is ours to delete, whose it is, what it carries: as from the whole object."""
    body = fat()
    kept = slim(body)
    now = (ended(body) or 0) + 10_000_000
    assert len(json.dumps(kept)) < 5000
    assert (ended(kept), remaining(kept, now, RULE)) == (ended(body), remaining(body, now, RULE))
    assert remaining(kept, now, RULE) == 0
    assert owner_of(kept) == owner_of(body) == "set"
    report = nothing("uid", "n", "p")
    assert carried(kept, report) == carried(body, report)


def test_what_is_kept_is_its_own_answer() -> None:
    """Kept once more, nothing changes."""
    kept = slim(fat())
    assert slim(kept) == kept


@pytest.mark.parametrize("nonsense", [{}, {"metadata": 1, "spec": [], "status": "x"}, {"status": {"conditions": {}}}])
def test_any_shape_is_kept_as_nothing(nonsense: dict[str, Any]) -> None:
    """Nothing in an object is trusted."""
    assert slim(nonsense)["spec"]["containers"]


def test_s10_a_pod_that_writes_cpusets_is_still_known_as_one() -> None:
    """Another plugin of the runtime is told by its volumes and its image: such a pod is kept whole."""
    body = {
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {
            "volumes": [{"name": "nri", "hostPath": {"path": "/var/run/nri"}}],
            "containers": [
                {"name": "c", "image": "x/nri-resource-policy-balloons:v1", "volumeMounts": [{"name": "nri"}]}
            ],
        },
        "status": {"phase": "Running"},
    }  # fmt: skip
    assert pod_writes(body)
    assert pod_writes(slim(body)) == pod_writes(body)


@pytest.mark.parametrize("mark", ["source", "hash", "mirror"])
def test_a_static_pod_is_still_known_as_one(mark: str) -> None:
    """Its cgroup carries the kubelet's hash and nobody may refuse it: the kubelet's marks outlast what is cut."""
    value = "file" if mark == "source" else "5d41402abc4b2a76b9719d911017c592"
    kept = slim({"metadata": {"name": "p", "annotations": {f"kubernetes.io/config.{mark}": value}}})
    assert kept["metadata"]["annotations"] == {f"kubernetes.io/config.{mark}": value}
