"""Whatever an object holds, `workload_from` gives its pods, or a BadPodError: never another exception."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import BadPodError
from agent.forecast.owners import counted_once
from agent.forecast.workload import namespace_defaults
from agent.forecast.workload_kinds import Workload, workload_from
from agent.host.workloads import read_workloads
from agent.model.manifest_hints import hints
from tests.examples import examples
from tests.world.documents import anything, metadata, names, scalars, spec

KINDS = (
    "Pod",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "CronJob",
    "Namespace",
    "Service",
    "Odd",
)
template = st.fixed_dictionaries({"spec": spec | scalars}, optional={"metadata": metadata | anything})
workload = st.fixed_dictionaries(
    {"template": template | anything},
    optional={
        "replicas": st.integers(-1, 4) | scalars, "parallelism": scalars, "completions": st.just(2) | scalars,
        "suspend": scalars, "tasks": st.lists(st.fixed_dictionaries({"podTemplate": template, "replicas": scalars}),
                                              max_size=2) | anything,
    },
)  # fmt: skip
uids = st.sampled_from(["", "a", "b", "c"])
owners = (
    st.lists(st.dictionaries(st.sampled_from(["kind", "name", "uid"]), names | uids) | scalars, max_size=2) | scalars
)
bodies = st.fixed_dictionaries(
    {"kind": st.sampled_from(KINDS) | scalars},
    optional={
        "metadata": st.builds(
            lambda known, more, uid: {**known, "ownerReferences": more, "uid": uid}, metadata, owners, uids
        )
        | anything,
        "spec": workload | st.builds(lambda known, node: {**known, "nodeName": node}, spec, names) | anything,
        "status": anything,
        "items": anything,
    },
)


@settings(max_examples=examples(300), deadline=None)
@given(bodies)
def test_any_object_is_items_or_a_bad_pod(body: dict[str, Any]) -> None:
    """No input ends in a traceback, nor do the hints on it; what passes has uids of its own."""
    found = _read(workload_from, body)
    for each in (found, _read(namespace_defaults, body)):
        if isinstance(each, BadPodError):
            assert each.field
            assert str(each).isprintable()
    for kind in ("Pod", "Deployment", "CronJob"):
        assert all(each.isprintable() for each in hints(body, kind))
    if isinstance(found, Workload):
        assert len({item.pod.uid for item in found.items}) == len(found.items)
        assert bool(found.items) or found.why_none


def _read(read: Callable[[dict[str, Any]], object], body: dict[str, Any]) -> object:
    try:
        return read(body)
    except BadPodError as error:
        return error


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(bodies, max_size=6))
def test_owners_of_any_shape_count_every_pod_once(objects: list[dict[str, Any]]) -> None:
    """Circles of owners, equal uids, owners that are not there: each live pod is counted, none is counted twice."""
    found = [each for each in (_read(workload_from, body) for body in objects) if isinstance(each, Workload)]
    counted = counted_once(found)
    for one, items in zip(found, counted.items, strict=True):
        assert items == one.items if one.is_pod else set(items) <= set(one.items)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(bodies | anything, max_size=4), st.binary(max_size=30), st.sampled_from([".json", ".yaml"]))
def test_any_file_is_read_or_told(objects: list[Any], junk: bytes, suffix: str) -> None:
    """Lists of whatever there is, and bytes after them: every mistake is one line with the file in it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"a{suffix}"
        text = json.dumps({"kind": "List", "items": objects}, default=str) if _small(objects) else "{}"
        file.write_bytes(text.encode("utf-8", "surrogatepass") + junk)
        for wrong in read_workloads([file]).wrong:
            assert str(wrong).startswith(str(file))
            assert "\n" not in str(wrong)


def _small(objects: list[Any]) -> bool:
    """Whether Python itself can write the numbers down: more than 4300 digits it cannot."""
    try:
        json.dumps(objects)
    except ValueError:
        return False
    return True
