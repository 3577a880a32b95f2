"""Hypothesis: documents that may hold anything, from any JSON to what is almost a pod."""

from __future__ import annotations

from hypothesis import strategies as st

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
