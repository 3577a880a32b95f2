"""Schemas for kubeconform without its catalogue: from Kubernetes' own OpenAPI, as each version's Go module has it.

    folder(version)   a folder of files that kubeconform finds by LOCATION: one per kind, strict
    monitoring()      the Prometheus operator's CRDs, as its module has them

The files are cached beside the tools, keyed by version and by this module's text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.peers import making, tools
from tools.chart.kubernetes import OPERATOR

LOCATION = "{{ .ResourceKind }}{{ .KindSuffix }}.json"
MODULES = {"1.32.0": "v1.32.13", "1.34.0": "v1.34.4", "1.37.2": "v1.37.2", "1.38.0-beta.0": "v1.38.0-beta.0"}
"""Version that is asked for -> of k8s.io/kubernetes."""
_ALL = "_definitions.json"
_CRDS = ("podmonitors", "prometheusrules")
Json = dict[str, Any]


def folder(version: str) -> Path:
    """Made once; raises PeerMissingError."""
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    target = tools.TOOLS.parent / "schemas" / f"{MODULES[version]}-{digest}"
    with making(target / "ready") as part:
        if part:
            swagger = tools.module("k8s.io/kubernetes", MODULES[version]) / "api/openapi-spec/swagger.json"
            for name, found in _kinds(json.loads(swagger.read_text("utf-8"))["definitions"]):
                (target / name).write_text(json.dumps(found), "utf-8")
            for crd in monitoring():
                kind = crd["spec"]["names"]["kind"].lower()
                schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
                (target / f"{kind}-monitoring-v1.json").write_text(json.dumps(_strict(schema)), "utf-8")
            part.touch()
    return target


def monitoring() -> tuple[Json, ...]:
    """The CRDs of PodMonitor and PrometheusRule."""
    place = tools.module("github.com/prometheus-operator/prometheus-operator", OPERATOR)
    names = (place / f"example/prometheus-operator-crd/monitoring.coreos.com_{each}.yaml" for each in _CRDS)
    return tuple(yaml.safe_load(path.read_text("utf-8")) for path in names)


def _kinds(definitions: Json) -> Iterator[tuple[str, Json]]:
    """File name and schema of every kind, and the file with all definitions that they refer to."""
    strict = {name: _strict(found) for name, found in definitions.items()}
    strict["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = {"type": ["string", "integer"]}
    strict["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {"type": ["string", "number"]}
    yield _ALL, {"definitions": strict}
    for name, found in definitions.items():
        for each in found.get("x-kubernetes-group-version-kind", ()):
            group = each["group"].split(".")[0]
            file = "-".join(part for part in (each["kind"].lower(), group, each["version"]) if part)
            yield f"{file}.json", {"$ref": f"{_ALL}#/definitions/{name}"}


def _strict(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Nothing unknown where the properties are listed, except where Kubernetes keeps what it does not know."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _strict(value) for key, value in schema.items() if key != "properties"}
    if isinstance(schema.get("properties"), dict):  # names of fields, which may look like a schema's own words
        found["properties"] = {name: _strict(value) for name, value in schema["properties"].items()}
    keeps = schema.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in found and "additionalProperties" not in schema and not keeps:
        found["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    return found
