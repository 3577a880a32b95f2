"""Reduces a pod to the fields that the agent reads: a tenant may write 1.5 MiB into one, and a node has 110 of them.

`agent.kube.objects.pod_objects`, `pod_report`, `cleanup`, `refusal_limiter` and `agent.core.cgroups.writers` read a
body; they find the fields of `_POD` and no others. A new reader of a field adds it there.

A text that is too long is kept as its beginning, long enough to be refused as the whole would be. A value of another
shape than it should have passes unchanged: its reader refuses it, and names the field.

Called for each pod before kopf or the agent keeps it (`agent.kube.watch.handlers`, `agent.kube.client`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.core.cgroups.writers import APP_LABELS
from agent.kube.pod_report import CONDITIONS, LONGEST_WORD
from agent.model import notes
from agent.model.claims import MOST_CLAIMS, MOST_DEVICES
from agent.model.fields import mapping_of, mappings_in
from agent.model.podspec import MAX_CONTAINERS, MAX_RESOURCES

LONGEST = 1000
"""Characters of a text: more than any valid text has."""
MOST = 192 * 1024
"""The largest specification that passes, by `_weight`; `podspec.noted` refuses such a pod in any case."""
_EACH = 100
"""The weight of each part of an object, besides its text."""
_MIRROR = "kubernetes.io/config."

Part = Callable[[Any], Any]


def brief(body: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the body with the fields that are read; a second call changes nothing more."""
    found = _POD(body)
    spec = found.get("spec") if isinstance(found, dict) else None
    if isinstance(spec, dict) and (weight := _weight(spec)) > MOST:
        found["spec"] = {"containers": f"{weight} bytes of containers and resources"}
    return found


def _leaf(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return value if len(value) <= LONGEST else value[:LONGEST]
    return type(value)() if isinstance(value, (dict, list)) else value


def _object(**parts: Part) -> Part:
    def read(value: Any) -> Any:  # noqa: ANN401 - JSON
        if not isinstance(value, Mapping):
            return _leaf(value)
        return {name: part(value[name]) for name, part in parts.items() if name in value}

    return read


def _list(part: Part, most: int) -> Part:
    def read(value: Any) -> Any:  # noqa: ANN401 - JSON
        return [part(each) for each in value[:most]] if isinstance(value, list) else _leaf(value)

    return read


def _amounts(value: Any) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(value, Mapping):
        return _leaf(value)
    return {name[:LONGEST]: _leaf(value[name]) for name in list(value)[: MAX_RESOURCES + 1]}


def _annotations(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Keep our annotations, as `agent.model.notes` does, and those that mark a static pod."""
    if not isinstance(value, Mapping):
        return _leaf(value)
    slips = dict.fromkeys(notes.misspelt(value), "")
    ours = {**slips, **{name: each for name, each in value.items() if name.startswith(notes.PREFIX)}}
    reported = {name: each[: LONGEST_WORD + 1] for name, each in ours.items()
            if name in notes.OURS and isinstance(each, str)}  # fmt: skip
    odd = {name[: notes.LONGEST_NAME]: _leaf(each) for name, each in list(ours.items()) if not isinstance(each, str)}
    wishes = notes.bounded_texts(ours)
    marks = {name[:LONGEST]: _leaf(each) for name, each in value.items() if name.startswith(_MIRROR)}
    return {**wishes, **reported, **dict(list(odd.items())[:1]), **dict(list(marks.items())[:LONGEST])}


def _labels(value: Any) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(value, Mapping):
        return _leaf(value)
    return {key: _leaf(value[key]) for key in APP_LABELS if key in value}


def _owners(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Keep the controller alone."""
    if not isinstance(value, list):
        return _leaf(value)
    found = (each for each in value if isinstance(each, Mapping) and each.get("controller") is True)
    part = _object(uid=_leaf, controller=_leaf, kind=_leaf, name=_leaf)
    return [part(each) for _, each in zip(range(1), found, strict=False)]


def _written(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Keep the times at which the status was written."""
    if not isinstance(value, list):
        return _leaf(value)
    found = [each for each in value if isinstance(each, Mapping) and each.get("subresource") == "status"]
    return [_object(subresource=_leaf, time=_leaf)(each) for each in found[:MAX_CONTAINERS]]


def _condition(value: Any) -> Any:  # noqa: ANN401 - JSON
    ours = isinstance(value, Mapping) and value.get("type") in CONDITIONS
    return (_OUR_CONDITION if ours else _CONDITION)(value)


def _spec(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Keep also the host folders and the containers that mount them: they show other writers of cpusets."""
    found = _SPEC(value)
    folders = [each for each in mappings_in(mapping_of(value).get("volumes")) if "hostPath" in each]
    if not folders:
        return found
    found["volumes"] = [_VOLUME(each) for each in folders[:MAX_CONTAINERS]]
    names = {each["name"] for each in found["volumes"] if isinstance(each.get("name"), str)}
    for section in ("initContainers", "containers"):
        given, kept = value.get(section), found.get(section)
        if isinstance(given, list) and isinstance(kept, list):
            for container, short in zip(given, kept, strict=False):
                mounted = sorted(names & _mounts(container))
                if mounted:
                    short |= {
                        "image": _leaf(container.get("image")),
                        "volumeMounts": [{"name": name} for name in mounted],
                    }
    return found


def _mounts(container: Any) -> set[str]:  # noqa: ANN401 - JSON
    mounts = mappings_in(mapping_of(container).get("volumeMounts"))
    return {name for each in mounts if isinstance(name := each.get("name"), str)}


def _weight(value: Any) -> int:  # noqa: ANN401 - JSON
    """Estimate the bytes that an object takes in memory."""
    if isinstance(value, str):
        return _EACH + len(value)
    if isinstance(value, dict):
        return _EACH + sum(_EACH + len(name) + _weight(each) for name, each in value.items())
    return _EACH + sum(map(_weight, value)) if isinstance(value, list) else 0


_RESOURCES = _object(requests=_amounts, limits=_amounts)
_CLAIMS = _list(_object(name=_leaf, request=_leaf), MOST_CLAIMS)
_CONTAINER = _object(
    name=_leaf, restartPolicy=_leaf, resources=_object(requests=_amounts, limits=_amounts, claims=_CLAIMS)
)  # fmt: skip
_VOLUME = _object(name=_leaf, hostPath=_object(path=_leaf))
_SPEC = _object(
    nodeName=_leaf, activeDeadlineSeconds=_leaf, priority=_leaf, priorityClassName=_leaf, overhead=_amounts,
    resources=_RESOURCES, initContainers=_list(_CONTAINER, MAX_CONTAINERS + 1),
    containers=_list(_CONTAINER, MAX_CONTAINERS + 1),
    resourceClaims=_list(_object(name=_leaf, resourceClaimName=_leaf), MOST_CLAIMS),
)  # fmt: skip
_CONDITION = _object(type=_leaf, status=_leaf, lastTransitionTime=_leaf)
_OUR_CONDITION = _object(
    type=_leaf, status=_leaf, reason=_leaf, message=lambda value: value[:2000] if isinstance(value, str) else value,
    lastTransitionTime=_leaf,
)  # fmt: skip
_STATUS = _list(
    _object(
        name=_leaf, containerID=_leaf, resources=_RESOURCES, allocatedResources=_amounts,
        state=_object(terminated=_object(finishedAt=_leaf), running=_object(startedAt=_leaf)),
        lastState=_object(terminated=_object(startedAt=_leaf)),
    ),
    2 * MAX_CONTAINERS,
)  # fmt: skip
_POD = _object(
    apiVersion=_leaf,
    kind=_leaf,
    metadata=_object(
        name=_leaf, namespace=_leaf, uid=_leaf, resourceVersion=_leaf, generation=_leaf, creationTimestamp=_leaf,
        deletionTimestamp=_leaf, annotations=_annotations, labels=_labels, ownerReferences=_owners,
        managedFields=_written,
    ),
    spec=_spec,
    status=_object(
        phase=_leaf, reason=_leaf, startTime=_leaf, qosClass=_leaf, resources=_RESOURCES,
        allocatedResources=_amounts, conditions=_list(_condition, MAX_CONTAINERS), initContainerStatuses=_STATUS,
        containerStatuses=_STATUS, ephemeralContainerStatuses=_STATUS,
        resourceClaimStatuses=_list(_object(name=_leaf, resourceClaimName=_leaf), MOST_CLAIMS),
        extendedResourceClaimStatus=_object(
            resourceClaimName=_leaf,
            requestMappings=_list(_object(containerName=_leaf, requestName=_leaf), MOST_DEVICES),
        ),
    ),
)  # fmt: skip
