"""What the stand-in API server makes of paths, selectors and patches."""

from __future__ import annotations

from typing import Any

from aiohttp import web

Object = dict[str, Any]
KEYED = {"conditions": "type", "schedulingGates": "name"}
"""Lists that a strategic merge patch merges entry by entry -> the field that names an entry."""
DRA = ("resourceclaims", "resourceslices")


def mutable(part: str) -> tuple[str, ...]:
    """The fields that a patch of an object, or of its status, changes."""
    return ("metadata", "status") if part == "status" else ("metadata", "spec", "zones", "attributes")


def resource_of(path: str) -> str:
    """What a path is about: "pods", "nodes", "namespaces", "events", "noderesourcetopologies", claims and slices."""
    parts = [each for each in path.strip("/").split("/") if each]
    for name in ("noderesourcetopologies", "events", "pods", "nodes", *DRA):
        if name in parts[2:]:
            return name
    return parts[2] if len(parts) > 2 else "discovery"


def key_of_path(parts: list[str], resource: str) -> str:
    """The key of the object that a path names."""
    at = parts.index(resource)
    name = parts[at + 1] if len(parts) > at + 1 else ""
    return f"{parts[at - 1]}/{name}" if resource in ("pods", "resourceclaims") else name


def selected(body: Object, selector: str) -> bool:
    """Whether an object is selected; fields of spec alone are looked at."""
    parts = [each.partition("=") for each in selector.split(",") if each.startswith("spec.")]
    return all(body.get("spec", {}).get(name.removeprefix("spec.")) == value for name, _, value in parts)


def key_of(body: Object) -> str:
    """An object's key: namespace/name, or its name."""
    metadata = body["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])


def failure(code: int, message: str) -> web.Response:
    """A refusal as the API server words it."""
    headers = {"Retry-After": "1"} if code == 429 else {}
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
    return web.json_response(body, status=code, headers=headers)


def bound(body: Object, node: str) -> Object:
    """A pod as a scheduler leaves it: on a node, with its condition. A status that is no object stays as it is."""
    status = body.get("status", {})
    if isinstance(status, dict) and isinstance(conditions := status.get("conditions", []), list):
        status = {**status, "conditions": [*conditions, {"type": "PodScheduled", "status": "True"}]}
    return {**body, "spec": {**body["spec"], "nodeName": node}, "status": status}


def brief(body: Object) -> Object:
    """The metadata alone, as answers to writes have them."""
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": body.get("metadata", {})}


def merged(old: Any, patch: Any) -> Any:  # noqa: ANN401 - JSON
    """A merge patch; the lists of KEYED are merged by a field of their entries, as a strategic one does."""
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        elif name in KEYED:
            found[name] = _by_key(found.get(name) or [], value, KEYED[name])
        else:
            found[name] = merged(found.get(name), value)
    return found


def _by_key(old: Any, patch: list[Object], key: str) -> list[Object]:  # noqa: ANN401 - of a body of any shape
    found = {each[key]: each for each in (old if isinstance(old, list) else ()) if isinstance(each, dict)}
    for each in patch:
        if each.get("$patch") == "delete":
            found.pop(each[key], None)
        else:
            found[each[key]] = {**found.get(each[key], {}), **each}
    return list(found.values())
