"""Whatever a manifest holds, `pod_from` gives a pod or a BadPodError: never another exception."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import BadPodError
from agent.model.pod import Pod, Qos
from agent.model.podspec import pod_from

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.just(10**4000)
quantities = st.sampled_from(["1", "500m", "2Gi", "0", "-1", "1e3", "", "1.5Ki"]) | scalars
names = st.sampled_from(["a", "b", "app", "A", "x y"]) | scalars
resources = st.dictionaries(
    st.sampled_from(["cpu", "memory", "hugepages-2Mi", "hugepages-x", "example.com/gpu", "", "a/b/c"])
    | st.text(max_size=5),
    quantities,
    max_size=4,
)
requirements = st.fixed_dictionaries({}, optional={"requests": resources | scalars, "limits": resources | scalars})
container = st.fixed_dictionaries(
    {"name": names}, optional={"resources": requirements | scalars, "restartPolicy": names | st.just("Always")}
)
containers = st.lists(container | scalars, max_size=4) | scalars
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
notes = st.dictionaries(
    st.sampled_from(["numalign.io/policy", "kubernetes.io/config.hash", "kubernetes.io/config.mirror"]),
    names | anything,
)
metadata = st.fixed_dictionaries(
    {"name": st.just("web") | names},
    optional={"namespace": names, "uid": names, "creationTimestamp": anything, "annotations": notes | scalars},
)
spec = st.fixed_dictionaries(
    {"containers": containers},
    optional={
        "initContainers": containers,
        "resources": requirements | scalars,
        "overhead": resources | scalars,
        "priority": scalars,
    },
)
bodies = st.fixed_dictionaries(
    {"metadata": metadata, "spec": spec},
    optional={"kind": st.just("Pod") | scalars, "status": anything},
) | st.dictionaries(st.text(max_size=8) | st.sampled_from(["metadata", "spec"]), anything)


def _read(body: dict[str, Any]) -> Pod | BadPodError:
    try:
        return pod_from(body)
    except BadPodError as error:
        return error


@settings(max_examples=200, deadline=None)
@given(bodies)
def test_any_body_is_a_pod_or_a_bad_pod(body: dict[str, Any]) -> None:
    """No input ends in a traceback, and what passes is normal: unique names, nothing negative, one app container."""
    pod = _read(body)
    if isinstance(pod, BadPodError):
        assert pod.field
        assert len(str(pod)) < 400
        assert str(pod).isprintable()
        return
    assert len({c.name for c in pod.containers}) == len(pod.containers) > 0
    assert all(milli >= 0 for c in pod.containers for part in (c.requests, c.limits) for milli in part.values())
    assert pod.qos in Qos
    assert all(name.startswith("numalign.io/") for name in pod.annotations)
