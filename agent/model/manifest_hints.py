"""What is odd in a manifest, though numalign can read it: what kubectl or the API server would complain of.

A pod with `resource:` instead of `resources:` is a BestEffort pod, and nothing else would say so. Only fields that
numalign reads are looked at, so that a newer Kubernetes' own fields cost no word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from agent.errors import MalformedError
from agent.model.fields import mapping_of, mappings_in, plain, show
from agent.model.notes import OURS, PREFIX
from agent.model.quantity import is_whole, parse_milli, units

MOST_CONTAINERS = 512
LONGEST_BASE = 58
"""Characters of generateName that are kept: the API server adds five to make a name of 63."""
_POD = ("containers", "initContainers", "resources", "overhead", "nodeName", "nodeSelector", "tolerations",
        "affinity", "priorityClassName", "resourceClaims")  # fmt: skip
_CONTAINER = ("name", "resources", "restartPolicy")
_RESOURCES = ("limits", "requests", "claims")
_METADATA = ("name", "namespace", "annotations", "generateName")
_KNOWN = frozenset({
    "image", "args", "command", "env", "envFrom", "ports", "hostname", "volumes", "os", "labels", "tty", "stdin",
    "resizePolicy", "restartPolicyRules", "ephemeralContainers", "nodeSelectorTerms", "priority", "schedulerName",
})  # fmt: skip
"""Fields that are none of the above, and are no misspelt ones either."""
_AMOUNTS = ("cpu", "memory", "ephemeral-storage")
_LIKE = 0.8
_SMALL = 1 << 20
"""Bytes of memory below which a unit was forgotten, or a small letter written."""


def with_name(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object, with a name where it has generateName alone: made of what it says, so the same at each reading."""
    metadata = mapping_of(body.get("metadata"))
    base = metadata.get("generateName")
    if not isinstance(base, str) or not base or metadata.get("name") is not None:
        return body
    mark = hashlib.sha256(repr(body).encode("utf-8", "replace")).hexdigest()[:5]
    return {**body, "metadata": {**metadata, "name": f"{base[:LONGEST_BASE]}{mark}"}}


def hints(body: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Sentences on what is odd in an object.

    Args:
        body: a pod, or a workload of Kubernetes.
        kind: of it.
    """
    return map(plain, _hints(body, kind))


def _hints(body: Mapping[str, Any], kind: str) -> Iterator[str]:
    metadata, spec = mapping_of(body.get("metadata")), mapping_of(body.get("spec"))
    yield from _misspelt(body, "", ("metadata", "spec"))
    yield from _misspelt(metadata, "metadata", _METADATA)
    if kind == "Pod":
        yield from _pod(spec, "spec")
        return
    place = "spec.template"
    if kind == "CronJob":
        spec, place = mapping_of(mapping_of(spec.get("jobTemplate")).get("spec")), "spec.jobTemplate.spec.template"
    else:
        yield from _misspelt(spec, "spec", ("replicas", "template", "parallelism", "completions", "suspend"))
    template = mapping_of(spec.get("template"))
    inner = mapping_of(template.get("metadata"))
    wishes = mapping_of(metadata.get("annotations"))
    there = mapping_of(inner.get("annotations"))
    for name in map(str, wishes):
        if name.startswith(PREFIX) and name not in OURS and name not in there:
            yield (
                f"{name[:80]} stands on the {kind}; numalign reads it in {place}.metadata.annotations, or on the "
                "namespace"
            )
    yield from _pod(mapping_of(template.get("spec")), f"{place}.spec")


def _pod(spec: Mapping[str, Any], path: str) -> Iterator[str]:
    yield from _misspelt(spec, path, _POD)
    yield from _amounts(spec, path)
    whole = bool(spec.get("resources"))
    for section in ("initContainers", "containers"):
        for number, each in enumerate(mappings_in(spec.get(section), MOST_CONTAINERS)):
            place = f"{path}.{section}[{number}]"
            yield from _misspelt(each, place, _CONTAINER)
            yield from _amounts(each, place, pages_alone=not whole)


def _amounts(holder: Mapping[str, Any], path: str, *, pages_alone: bool = False) -> Iterator[str]:
    resources = mapping_of(holder.get("resources"))
    yield from _misspelt(resources, f"{path}.resources", _RESOURCES)
    named = set[str]()
    for part in ("requests", "limits"):
        for key, value in list(mapping_of(resources.get(part)).items())[:100]:
            name = str(key)
            twice = part == "requests" and mapping_of(resources.get("limits")).get(name) == value
            named.add(name)
            if (said := _amount(name, value)) and not twice:
                yield f"{path}.resources.{part}.{name[:60]}: {said}"
    if pages_alone and any(name.startswith("hugepages-") for name in named) and not named & {"cpu", "memory"}:
        yield f"{path}.resources: huge pages need cpu or memory beside them, or the API server refuses the pod"


def _amount(name: str, value: object) -> str:
    """What is odd in one amount; "" for nothing."""
    huge = name.startswith("hugepages-")
    if "/" not in name and name not in _AMOUNTS and not huge:
        close = next((each for each in _AMOUNTS if _alike(name, each)), "")
        return f"is no resource of Kubernetes; did you mean {close}?" if close else (
            "is no resource of Kubernetes; write cpu, memory, hugepages-SIZE or a name with a domain"
        )  # fmt: skip
    try:
        milli = parse_milli(value)
        page = parse_milli(name.removeprefix("hugepages-")) if huge else 1
    except MalformedError:
        return ""
    if huge and page > 0 and milli % page:
        return f"{show(value)} is no multiple of the page size"
    if name == "memory" and 0 < milli < _SMALL * 1000:
        amount = f"{units(milli)} bytes" if is_whole(milli) else "no whole number of bytes"
        return f"{show(value)} is {amount}; did you mean {str(value).rstrip('mKk')[:20]}Mi?"
    return ""


def _misspelt(holder: Mapping[str, Any], path: str, known: tuple[str, ...]) -> Iterator[str]:
    for key in map(str, list(holder)[:200]):
        close = _closest(key[:100], known)
        if close and close not in holder:
            place = f"{path}.{key[:60]}".removeprefix(".")
            yield f"{place}: is no field here, and is ignored; did you mean {close}?"


@lru_cache(maxsize=4096)
def _closest(key: str, known: tuple[str, ...]) -> str:
    """The field that a key was meant to be; "" where it is one, or like none."""
    if key in known or key in _KNOWN:
        return ""
    return next((each for each in known if _alike(key, each)), "")


def _alike(one: str, other: str) -> bool:
    """Whether a word is another one with a letter too few, too many or wrong."""
    one, other = one[:100].lower(), other.lower()
    return one == other or SequenceMatcher(None, one, other).ratio() > _LIKE
