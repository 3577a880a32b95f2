"""Kubernetes' own types, and one of the Prometheus operator's, as definitions of the chart's schema.

They come from the OpenAPI document of the newest Kubernetes that the tests know, without descriptions. They stand in
the schema itself, which needs no network. Nothing unknown is allowed in them: a typing error is refused, as an API
server refuses it that is asked to be strict. `helm --skip-schema-validation` lets a newer Kubernetes' field through.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.peers import tools

VERSION = "1.37.2"
"""Of Kubernetes. The Go module of that version has the document."""
Json = dict[str, Any]
_LONG = "#/definitions/"
QUANTITY = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
"""https://pkg.go.dev/k8s.io/apimachinery/pkg/api/resource#Quantity: what its parser takes."""
_VALUES: Mapping[str, tuple[str, ...]] = {
    "Toleration.operator": ("", "Exists", "Equal", "Lt", "Gt"),
    "Toleration.effect": ("", "NoSchedule", "PreferNoSchedule", "NoExecute"),
    "NodeSelectorRequirement.operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    "LabelSelectorRequirement.operator": ("In", "NotIn", "Exists", "DoesNotExist"),
    "SeccompProfile.type": ("Localhost", "RuntimeDefault", "Unconfined"),
    "AppArmorProfile.type": ("Localhost", "RuntimeDefault", "Unconfined"),
    "NetworkPolicyPort.protocol": ("TCP", "UDP", "SCTP"),
}
"""Type and field -> what its description names as its values, which the document does not say by `enum`."""
_SMALL: Mapping[str, Json] = {
    "IntOrString": {"type": ["integer", "string"]},
    "Quantity": {"type": ["string", "number"], "pattern": QUANTITY},
    "ObjectMeta": {"type": "object"},  # of a template of a volume's claim; all of it is a hundred lines
}
"""Types that the document does not say rightly, or that are not worth their length."""


OPERATOR = "v0.85.0"
"""Of the Go module of the Prometheus operator, whose CRDs say what a relabeling is."""


def _relabeling() -> Json:
    """The Prometheus operator's type of relabelings, closed; raises PeerMissingError."""
    module = tools.module("github.com/prometheus-operator/prometheus-operator", OPERATOR)
    file = module / "example" / "prometheus-operator-crd" / "monitoring.coreos.com_podmonitors.yaml"
    found = yaml.safe_load(file.read_text("utf-8"))["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in ("spec", "podMetricsEndpoints", "relabelings"):
        found = found["properties"][name]
        found = found.get("items", found)
    return {"type": "object", "additionalProperties": False, "properties": _plain(found["properties"])}


def _plain(schema: Json) -> Json:
    """Without words and defaults."""
    kept = {key: value for key, value in schema.items() if key not in ("description", "default", "format")}
    return {key: _plain(value) if isinstance(value, dict) else value for key, value in kept.items()}


@functools.cache
def _document() -> Mapping[str, Json]:
    file = tools.module("k8s.io/kubernetes", f"v{VERSION}") / "api" / "openapi-spec" / "swagger.json"
    found: Mapping[str, Json] = json.loads(file.read_text("utf-8"))["definitions"]
    return {name.rpartition(".")[2]: each for name, each in found.items() if _chosen(name)}


def _chosen(name: str) -> bool:
    """Whether the short name means this one: core and network policies, and what both refer to."""
    return name.startswith(("io.k8s.api.core.v1.", "io.k8s.api.networking.v1.", "io.k8s.apimachinery.pkg."))


def definitions(*names: str) -> dict[str, Json]:
    """These types and all that they refer to, by their short names; raises PeerMissingError, KeyError."""
    found: dict[str, Json] = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = _SMALL.get(name) or (
                _relabeling() if name == "RelabelConfig" else _type(name, _document()[name])
            )
            todo += named(found[name])
    return dict(sorted(found.items()))


def _type(name: str, schema: Json) -> Json:
    """One type, closed where its fields are listed."""
    fields = {key: _field(value) for key, value in schema.get("properties", {}).items()}
    for key in fields:
        if (values := _VALUES.get(f"{name}.{key}")) is not None:
            fields[key] = {"enum": list(values)}
    found: Json = {"type": schema.get("type", "object")}
    if fields:
        found |= {"additionalProperties": False, "properties": fields}
    if schema.get("required"):
        found["required"] = schema["required"]
    return found


def _field(schema: Json) -> Json:
    """What a field may be."""
    if "$ref" in schema:
        return {"$ref": _LONG + schema["$ref"].rpartition(".")[2]}
    found: Json = {"type": schema["type"]}
    for key in ("items", "additionalProperties"):
        if key in schema:
            found[key] = _field(schema[key])
    return found


def named(schema: object) -> Iterator[str]:
    """The types that one refers to."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(_LONG)
        for each in schema.values():
            yield from named(each)
