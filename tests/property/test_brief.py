"""Whatever a pod holds, what is kept of it gives every reader the answer that the whole object gives."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.cgroups.writers import pod_writes
from agent.errors import MalformedError
from agent.kube.objects.pod_objects import identity, seen, uid_of
from agent.kube.objects.pod_stream import Lines, pod
from agent.kube.objects.read_fields import brief
from agent.kube.pod_report import ASSIGNMENT, CONDITION, FAILED, annotated_grant, softened
from agent.kube.publishing.cleanup import ended
from agent.kube.publishing.refusal_limiter import owner_of
from agent.node.fault_isolation import sentence
from tests.examples import examples
from tests.unit.test_podspec import BAD
from tests.world.documents import anything, bodies

HASH = "0123456789abcdef0123456789abcdef"
WORD = json.dumps({"policy": "restricted", "scope": "pod", "containers": {"app": {"devices": {"x/y": ["a"]}}}})
texts = st.sampled_from(["restricted", "x" * 600, "\u0001" * 9, "\u00e9", ""])
notes = st.dictionaries(
    st.sampled_from([f"numalign.io/{each}" for each in ("policy", "devices", "cpu-options", *"abcdefg")]),
    texts,
).flatmap(lambda found: st.fixed_dictionaries({key: st.just(text) for key, text in found.items()}, optional={
    ASSIGNMENT: st.sampled_from([WORD, '{"instead":"run"}', WORD[:50]]), FAILED: st.just("uid"), "x/y": texts,
    **{f"kubernetes.io/config.{part}": st.sampled_from([HASH, "file"]) for part in ("hash", "mirror", "source")},
}))  # fmt: skip
amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "hugepages-2Mi", "example.com/gpu"]),
    st.sampled_from(["1", " 2 ", "500m", "2Gi", "0", "nonsense", "1" * 70, 3, 1.5, None]),
)
good = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", " 2 ", "3", "2Gi", 2]))
resized = st.fixed_dictionaries({}, optional={"limits": amounts, "requests": amounts})
container = st.fixed_dictionaries(
    {"image": st.sampled_from(["x/nri-resource-policy-balloons:v1", "r/y@sha256:0", "z"])},
    optional={
        "resources": st.fixed_dictionaries({}, optional={"limits": good, "requests": good}),
        "volumeMounts": st.lists(st.sampled_from([{"name": "nri"}, {"name": "data"}])),
        "env": st.just([{"name": "A", "value": "b"}]),
    },
)
times = st.sampled_from(["2026-01-31T12:00:00Z", "2026-02-01T12:00:00Z", "never"])
told = st.fixed_dictionaries(
    {"name": st.sampled_from(["c0", "c1", "init", "other"])},
    optional={
        "containerID": st.sampled_from(["containerd://abc", "x" * 300]), "resources": resized,
        "allocatedResources": amounts, "state": times.map(lambda each: {"terminated": {"finishedAt": each}}),
    },
)  # fmt: skip
condition = st.fixed_dictionaries(
    {"type": st.sampled_from([CONDITION, "Ready"]), "status": st.sampled_from(["True", "False"])},
    optional={"reason": st.just("NotAligned"), "message": texts, "lastTransitionTime": times},
)
NAMED: dict[str, st.SearchStrategy[Any]] = {
    "name": st.just("web"),
    "namespace": st.just("shop"),
    "uid": st.just("uid"),
    "annotations": notes,
}
pods = st.fixed_dictionaries({
    "metadata": st.fixed_dictionaries(
        NAMED,
        optional={
            "creationTimestamp": times.filter(lambda each: each != "never"), "deletionTimestamp": times,
            "labels": st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["dracpu", "web"])),
            "ownerReferences": st.lists(st.sampled_from([{"uid": "a"}, {"uid": "b", "controller": True}])),
            "managedFields": st.lists(times.map(lambda each: {"time": each, "subresource": "status"})),
        },
    ),
    "spec": st.fixed_dictionaries(
        {"containers": st.lists(container, min_size=1, max_size=3).map(
            lambda found: [{"name": f"c{number}", **each} for number, each in enumerate(found)])},
        optional={
            "initContainers": container.map(lambda each: [{"name": "init", "restartPolicy": "Always", **each}]),
            "volumes": st.just([{"name": "nri", "hostPath": {"path": "/var/run/nri"}}, {"name": "data"}]),
            "nodeName": st.just("n1"), "priority": st.just(7), "overhead": good,
            "priorityClassName": st.just("system-node-critical"),
            "resources": st.fixed_dictionaries({"limits": good}),
            "activeDeadlineSeconds": st.just(1),
        },
    ),
    "status": st.fixed_dictionaries(
        {"phase": st.sampled_from(["Running", "Failed", "Pending"])},
        optional={
            "qosClass": st.sampled_from(["Burstable", "Nonsense"]), "conditions": st.lists(condition, max_size=3),
            "allocatedResources": amounts, "containerStatuses": st.lists(told, max_size=3),
            "initContainerStatuses": st.lists(told, max_size=2),
            "ephemeralContainerStatuses": st.lists(told, max_size=2),
        },
    ),
})  # fmt: skip


def answers(body: Any) -> tuple[object, ...]:  # noqa: ANN401 - JSON
    """What the readers of an object make of it; a sentence counts what is kept."""
    try:
        found: object = seen(body)
    except MalformedError as error:
        return re.sub(r"\d+", "N", sentence(error)), uid_of(body) if identity(body)[0] else None
    return found, annotated_grant(body), softened(body), owner_of(body), pod_writes(body), ended(body), uid_of(body)


def same(body: Any) -> None:  # noqa: ANN401 - JSON
    """From a list, from a watch, and kept once more: the answers are those of the whole object."""
    try:
        raw = json.dumps(body).encode()
        body = json.loads(raw)
    except (TypeError, ValueError):  # a number of 5,000 digits, a date of YAML: no API server writes that
        return
    kept = pod(raw)
    assert answers(kept) == answers(body)
    assert answers(brief(kept)) == answers(body)
    line = Lines().feed(b'{"type":"ADDED","object":' + raw + b" " * 5000 + b"}\n")
    assert json.loads(line) == {"type": "ADDED", "object": kept}


@given(pods)
@settings(max_examples=examples(300), deadline=None)
def test_every_reader_sees_the_same_in_what_is_kept_of_a_pod(body: dict[str, Any]) -> None:
    """Of pods as there are, with all that their readers look for."""
    same(body)


@given(bodies, anything)
@settings(max_examples=examples(200), deadline=None)
def test_every_reader_sees_the_same_in_what_is_kept_of_anything(body: dict[str, Any], more: object) -> None:
    """Of objects that no API server would take, too: the same pod, or the same sentence."""
    if isinstance(body.get("metadata"), dict):
        body["metadata"]["labels"] = more
    same(body)


@pytest.mark.parametrize("bad", [case[0] for case in BAD], ids=[f"{n}-{case[1]}" for n, case in enumerate(BAD)])
def test_a_bad_pod_is_told_by_the_same_sentence(bad: dict[str, Any]) -> None:
    """The field and the remedy, as of the whole object."""
    same(bad)


@pytest.mark.parametrize("odd", ["", "\u00e9", '"env":[', "\\", "\u0001", '\\"args": [{'])
def test_lists_that_are_read_nowhere_cost_a_large_pod_nothing(odd: str) -> None:
    """env, args and command go before the text is parsed; whatever stands in them, and whatever is called so else."""
    noise = {"name": f"A{odd}", "value": odd * 50, "valueFrom": {"fieldRef": {"fieldPath": f"x[{odd}]"}}}
    each = {
        "name": "app", "env": [noise] * 900, "args": [odd, "]", "[", *["x" * 10_000] * 30], "command": [f"{odd}]"],
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}},
    }  # fmt: skip
    body = {
        "metadata": {"uid": "u", "name": "n", "annotations": {"numalign.io/policy": f'"env":[{odd}'}},
        "spec": {"containers": [each], "env": odd, "args": {"a": [odd]}}, "status": {"command": None},
    }  # fmt: skip
    raw = json.dumps(body).encode()
    assert pod(raw) == brief(body)
    assert json.loads(Lines().feed(b'{"type":"ADDED","object":' + raw + b"}\n"))["object"] == brief(body)
