"""agent.model.podspec: what a manifest means, and what is said about one that means nothing."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from agent.errors import BadPodError
from agent.model.pod import Container, ContainerKind, Pod, Qos
from agent.model.podspec import pod_from, qos_of

HASH = "0123456789abcdef0123456789abcdef"


def body(*containers: dict[str, Any], metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - manifests hold anything
    """A manifest with the containers given, one plain one by default."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", **(metadata or {})},
        "spec": {"containers": list(containers) or [{"name": "app"}], **spec},
    }


def sized(named: str = "app", more: dict[str, object] | None = None, **limits: object) -> dict[str, Any]:
    """A container with limits."""
    return {"name": named, "resources": {"limits": {**limits, **(more or {})}}}


def test_limits_become_requests_and_make_the_pod_guaranteed() -> None:
    """A manifest with limits alone means what the API server would store: equal requests, Guaranteed."""
    pod = pod_from(body(sized(cpu="2", memory="1Gi")))
    assert pod.containers[0].requests == {"cpu": 2000, "memory": 1000 << 30}
    assert pod.qos is Qos.GUARANTEED


def test_a_request_of_its_own_stays() -> None:
    """Defaulting fills gaps only: the request given wins and the pod is Burstable."""
    pod = pod_from(
        body({"name": "app", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": 1, "memory": "1Gi"}}})
    )
    assert pod.containers[0].requests == {"cpu": 500, "memory": 1000 << 30}
    assert pod.qos is Qos.BURSTABLE


def test_the_stored_class_wins_over_the_computed_one() -> None:
    """status.qosClass is what the kubelet built the cgroup by (kubelet rule 8.1)."""
    stored = {**body(sized(cpu=1, memory=1)), "status": {"qosClass": "Burstable"}}
    assert pod_from(stored).qos is Qos.BURSTABLE


def test_kinds_follow_place_and_restart_policy() -> None:
    """An init container that restarts always is a sidecar; spec order is kept."""
    inits = [{"name": "a"}, {"name": "b", "restartPolicy": "Always"}, {"name": "c", "restartPolicy": "OnFailure"}]
    pod = pod_from(body({"name": "z", "restartPolicy": "Always"}, {"name": "d"}, initContainers=inits))
    assert [(c.name, c.kind.value) for c in pod.containers] == [
        ("a", "init"), ("b", "sidecar"), ("c", "init"), ("z", "app"), ("d", "app"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("containers", "resources", "expected"),
    [
        ([{"name": "a"}], None, Qos.BEST_EFFORT),
        ([sized(cpu=0, memory=0)], None, Qos.BEST_EFFORT),
        ([sized("a", cpu=1, memory=1), sized("b", cpu="500m", memory=1)], None, Qos.GUARANTEED),
        ([sized("a", cpu=1, memory=1), {"name": "b"}], None, Qos.BURSTABLE),
        ([sized("a", cpu=1)], None, Qos.BURSTABLE),
        ([sized(more={"example.com/gpu": 1})], None, Qos.BEST_EFFORT),
        ([sized(cpu=1, memory=1)], {}, Qos.BEST_EFFORT),
        ([{"name": "a"}], {"limits": {"cpu": 1, "memory": 1}}, Qos.GUARANTEED),
        ([sized(cpu=1, memory=1)], {"limits": {"cpu": 2}}, Qos.BURSTABLE),
        ([sized(cpu=1, memory=1)], {"requests": {"cpu": 1, "memory": 1}}, Qos.BURSTABLE),
    ],
)
def test_quality_of_service(
    containers: list[dict[str, Any]], resources: dict[str, Any] | None, expected: Qos
) -> None:
    """The class by kubelet rule 8.1: sums of cpu and memory above zero, pod-level resources alone where present."""
    spec = {} if resources is None else {"resources": resources}
    assert pod_from(body(*containers, **spec)).qos is expected


def test_sums_decide_not_pairs() -> None:
    """Each container may request less than its limit as long as the sums are equal (kubelet rule 8.1)."""
    pair = (
        Container("a", ContainerKind.APP, {"cpu": 1000, "memory": 5}, {"cpu": 2000, "memory": 5}),
        Container("b", ContainerKind.APP, {"cpu": 3000, "memory": 5}, {"cpu": 2000, "memory": 5}),
    )
    assert qos_of(pair) is Qos.GUARANTEED


def test_pod_level_requests_default_from_containers_then_limits() -> None:
    """KEP-2837: a missing pod-level request becomes the containers' effective request, or else the pod's limit."""
    side = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}}}
    once = {"name": "once", "resources": {"requests": {"cpu": 3}}}
    pod = pod_from(
        body(
            {"name": "app", "resources": {"requests": {"cpu": 1}}},
            initContainers=[side, once],
            resources={"limits": {"cpu": 4, "memory": "1Gi", "hugepages-2Mi": "4Mi"}},
        )
    )
    assert pod.requests == {"cpu": 3250, "memory": 1000 << 30, "hugepages-2Mi": 4000 << 20}
    assert pod.pod_level


def test_absent_pod_level_resources_are_none() -> None:
    """None and empty differ: an empty spec.resources makes a computed class BestEffort."""
    assert pod_from(body()).requests is None
    assert pod_from(body(resources={})).requests == {}
    assert not pod_from(body(resources={})).pod_level


def test_only_our_annotations_are_kept() -> None:
    """Other people's annotations are none of our business, whatever they hold."""
    notes = {"numalign.io/policy": "restricted", "secret": "x", "example.com/odd": 7}
    assert pod_from(body(metadata={"annotations": notes})).annotations == {"numalign.io/policy": "restricted"}


def test_a_mirror_pod_goes_by_its_hash() -> None:
    """A static pod's cgroup carries the kubelet's hash, in the API the mirror's annotation (kubelet rule 7.1)."""
    notes = {"kubernetes.io/config.hash": HASH, "kubernetes.io/config.mirror": HASH}
    pod = pod_from(body(metadata={"annotations": notes}))
    assert (pod.uid, pod.static) == (HASH, True)


@pytest.mark.parametrize(
    "notes",
    [
        {"kubernetes.io/config.hash": HASH},
        {"kubernetes.io/config.hash": HASH, "kubernetes.io/config.source": "file"},
        {"kubernetes.io/config.hash": "another-pods-uid", "kubernetes.io/config.mirror": "another-pods-uid"},
    ],
)
def test_nobody_takes_another_pods_uid_by_annotation(notes: dict[str, str]) -> None:
    """Annotations are the user's to write: only a mirror pod's 32 hex digits replace the API's uid."""
    assert pod_from(body(metadata={"annotations": notes})).uid == "u-1"


@pytest.mark.parametrize(
    "notes",
    [
        {"kubernetes.io/config.source": "file"},
        {"kubernetes.io/config.source": "http", "kubernetes.io/config.hash": HASH},
        {"kubernetes.io/config.mirror": HASH, "kubernetes.io/config.hash": "f" * 32},
    ],
)
def test_one_mark_alone_makes_no_static_pod_of_an_object_of_the_api(notes: dict[str, str]) -> None:
    """What a kubelet's mirror carries is its hash twice; a manifest of a folder may say that it is from a file."""
    assert not pod_from(body(metadata={"annotations": notes})).static
    assert pod_from(
        body(metadata={"annotations": {**notes, "kubernetes.io/config.source": "file"}, "uid": None})
    ).static


def test_a_manifest_without_uid_gets_a_stable_one() -> None:
    """The same namespace and name give the same uid in every run; another name gives another."""
    first = body(metadata={"uid": None})
    assert pod_from(first).uid == "e7cafac7-7a18-5418-915e-e14db0c8d510"
    assert pod_from(first).uid != pod_from(body(metadata={"uid": None, "name": "other"})).uid


def test_of_several_faults_the_same_is_told_in_whatever_order_they_are_written() -> None:
    """An Event for each order in which a controller writes a pod's resources would be one too many."""
    faults = {"memory": "much", "cpu": "two", "example.com/gpu": "some"}
    told = set()
    for names in (list(faults), list(faults)[::-1]):
        with pytest.raises(BadPodError) as caught:
            pod_from(body({"name": "app", "resources": {"limits": {name: faults[name] for name in names}}}))
        told.add(str(caught.value))
    assert len(told) == 1


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("1970-01-02T00:00:00Z", 86400.0),
        ("1970-01-02T02:00:00.5+02:00", 86400.5),
        (dt.datetime(1970, 1, 2, tzinfo=dt.UTC), 86400.0),
        (None, 0.0),
    ],
)
def test_creation_time(stamp: object, seconds: float) -> None:
    """RFC 3339 text, and the datetime that YAML makes of it, both give seconds since the epoch."""
    assert pod_from(body(metadata={"creationTimestamp": stamp})).created == seconds


def test_priority_is_read_or_known_by_class() -> None:
    """A manifest from a folder has only the class; the two system classes have fixed values."""
    assert pod_from(body(priority=7)).priority == 7
    assert pod_from(body(priorityClassName="system-node-critical")).priority == 2_000_001_000
    assert pod_from(body(priorityClassName="mine")).priority == 0


def test_overhead_is_kept_apart() -> None:
    """spec.overhead is known, and part of no container."""
    pod = pod_from(body(overhead={"cpu": "250m"}))
    assert pod.overhead == {"cpu": 250}
    assert pod.containers[0].requests == {}


HUGE = 10**5000
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"kind": "Deployment"}, "kind", "pod template"),
    ({}, "metadata", "must be a mapping"),
    ({"metadata": {"name": "x"}}, "spec", "must be a mapping"),
    ({"metadata": {}, "spec": {}}, "metadata.name", "is missing"),
    (body(metadata={"name": "Up_Case"}), "metadata.name", "DNS subdomain"),
    (body(metadata={"namespace": "a.b"}), "metadata.namespace", "DNS label"),
    (body(metadata={"uid": "../../etc"}), "metadata.uid", "uid"),
    (body(metadata={"creationTimestamp": "yesterday"}), "metadata.creationTimestamp", "not a time"),
    (body(metadata={"creationTimestamp": "2026-02-30T00:00:00Z"}), "metadata.creationTimestamp", "exists"),
    (body(metadata={"annotations": {"numalign.io/policy": 3}}), "metadata.annotations.numalign.io/policy", "quotes"),
    (body(metadata={"annotations": []}), "metadata.annotations", "must be a mapping"),
    (body(containers=[]), "spec.containers", "at least one"),
    (body(containers={"name": "x"}), "spec.containers", "must be a list"),
    (body(containers=[None]), "spec.containers[0].name", "is missing"),
    (body(containers=["x"]), "spec.containers[0]", "must be a mapping"),
    (body({"name": "a"}, {"name": "a"}), "spec.containers[1].name", "taken"),
    (body(containers=[{"name": f"c{n}"} for n in range(600)]), "spec.containers", "more than 512"),
    (body({"name": "a"}, sized("b", cpu="two")), "spec.containers[1].resources.limits.cpu", "not a quantity"),
    (body(sized(cpu=-1)), "spec.containers[0].resources.limits.cpu", "negative"),
    (body(sized(cpu=None)), "spec.containers[0].resources.limits.cpu", "no value"),
    (body(sized(cpu=HUGE)), "spec.containers[0].resources.limits.cpu", "not a quantity"),
    (body(sized(cpu=True)), "spec.containers[0].resources.limits.cpu", "not a quantity"),
    (body(sized(cpu=float("nan"))), "spec.containers[0].resources.limits.cpu", "not a quantity"),
    (body(sized(more={"hugepages-zz": 1})), "spec.containers[0].resources.limits.hugepages-zz", "not a quantity"),
    (body(sized(more={"hugepages-0": 1})), "spec.containers[0].resources.limits.hugepages-0", "page size"),
    (body(sized(more={"a b": 1})), "spec.containers[0].resources.limits", "not a resource name"),
    (body(sized(more={"example.com/gpu": "500m"})), "spec.containers[0].resources.limits.example.com/gpu", "whole"),
    (
        body({"name": "a", "resources": {"requests": {"cpu": 3}, "limits": {"cpu": 2}}}),
        "spec.containers[0].resources.requests.cpu", "above its limit",
    ),
    (
        body({"name": "a", "resources": {"requests": {"example.com/gpu": 1}}}),
        "spec.containers[0].resources.requests.example.com/gpu", "must equal the limit",
    ),
    (
        body({"name": "a", "resources": {"requests": {"hugepages-2Mi": "2Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}}),
        "spec.containers[0].resources.requests.hugepages-2Mi", "must equal the limit",
    ),
    (body(resources={"limits": {"example.com/gpu": 1}}), "spec.resources.limits.example.com/gpu", "pod-level"),
    (body(resources={"requests": {"cpu": 2}, "limits": {"cpu": 1}}), "spec.resources.requests.cpu", "above"),
    (body(priority="high"), "spec.priority", "whole number"),
    (body(priority=HUGE), "spec.priority", "between"),
    ({**body(), "status": {"qosClass": "Gold"}}, "status.qosClass", "Guaranteed"),
    ({**body(), "metadata": {1: 2}}, "metadata", "keys are texts"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "field", "why"), BAD, ids=[f"{n}-{case[1]}" for n, case in enumerate(BAD)])
def test_bad_pods_name_the_field(bad: dict[str, Any], field: str, why: str) -> None:
    """Each thing that cannot be read is one error with the field's path and what to do."""
    with pytest.raises(BadPodError) as caught:
        pod_from(bad)
    assert caught.value.field == field
    assert why in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_pod_is_no_static_one_unless_somebody_says_so() -> None:
    """Nobody may refuse or end a static pod: what is not known to be one is none."""
    assert not Pod("u", "p", "n", (Container("c"),), Qos.BURSTABLE).static
