"""The chart's values.schema.json, written by `make chart` (`tools.chart.__main__`).

Shape and types come from values.yaml's own defaults, descriptions from its comments, `config` from the agent's
settings (`agent.settings.schema`), `extraArgs` from its command line, Kubernetes' own types from its OpenAPI document
(`tools.chart.kubernetes`), so that none can part from the chart. What a default cannot say is in KINDS below. Nothing
unknown is allowed anywhere but in what is the user's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agent.cli import run
from tools.chart import kubernetes
from tools.chart.settings_schema import schema as settings_schema

CHART = Path(__file__).parents[2] / "charts" / "numalign"
Json = dict[str, Any]

_KEY_OF_LABEL = r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
_TEXTS: Json = {
    "type": "object", "propertyNames": {"pattern": _KEY_OF_LABEL}, "additionalProperties": {"type": "string"},
}  # fmt: skip
_LABELS: Json = {
    **_TEXTS,
    "additionalProperties": {"type": "string", "pattern": "^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"},
}
_NAME = r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$"
_NAMES = r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?$"
_RESOURCE = r"^(cpu|memory|ephemeral-storage|hugepages-[0-9]+[KMGT]i|[a-z0-9.-]+/[A-Za-z0-9_.-]+)$"
_AMOUNTS: Json = {
    "type": "object",
    "propertyNames": {"pattern": _RESOURCE},
    "additionalProperties": {"$ref": "#/definitions/Quantity"},
}
_SECRETS: Json = {
    "type": "array",
    "items": {
        "type": "object", "required": ["name"], "additionalProperties": False,
        "properties": {"name": {"type": "string", "minLength": 1}},
    },
}  # fmt: skip
_FOLDER: Json = {"type": "string", "pattern": "^/[^:]*[^/:]$"}
_REGISTRY: Json = {"type": "string", "pattern": "^[^/@ ]*(/[^/:@ ]+)*/?$"}
_ALERT: Json = {
    "type": "object",
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    "additionalProperties": {"type": "string"},
}
_DURATION: Json = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}


def _of(name: str) -> Json:
    """One of Kubernetes' own types."""
    return {"$ref": f"#/definitions/{name}"}


def _list(name: str) -> Json:
    return {"type": "array", "items": _of(name)}


_NOT_EXTRA = frozenset({
    "--config", "--host-root", "--metrics-address", "--log-format", "--log-level",
    "--pods", "--root", "--once", "--afresh", "--output",
})  # fmt: skip
"""Options of `numalign run` that the chart gives itself, and those of a node without a cluster."""


def _arguments() -> Json:
    """Options of `numalign run`, with their value after `=`."""
    words = []
    for each in run.command.params:
        names = [name for name in (*each.opts, *each.secondary_opts) if name.startswith("--")]
        words += [
            f"{name}{'' if getattr(each, 'is_flag', False) else '=.+'}" for name in names if name not in _NOT_EXTRA
        ]
    return {"type": "array", "items": {"type": "string", "pattern": f"^({'|'.join(sorted(words))})$"}}


KINDS: Mapping[str, Json] = {
    "global.imagePullSecrets": _SECRETS,
    "imagePullSecrets": _SECRETS,
    "global.imageRegistry": _REGISTRY,
    "image.registry": _REGISTRY,
    "image.repository": {"type": "string", "pattern": "^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$"},
    "image.tag": {"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"},
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "nameOverride": {"type": "string", "pattern": _NAME},
    "fullnameOverride": {"type": "string", "pattern": "^([a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?)?$"},
    "namespaceOverride": {"type": "string", "pattern": _NAME},
    "commonLabels": _LABELS,
    "serviceAccount.name": {"type": "string", "pattern": _NAMES},
    "serviceAccount.annotations": _TEXTS,
    "priorityClass.name": {"type": "string", "pattern": _NAMES},
    "priorityClass.value": {"type": "integer", "maximum": 1_000_000_000},
    "nodeSelector": _LABELS,
    "affinity": _of("Affinity"),
    "tolerations": _list("Toleration"),
    "uninstall.tolerations": _list("Toleration"),
    "updateStrategy.type": {"enum": ["RollingUpdate", "OnDelete"]},
    "updateStrategy.maxUnavailable": {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^([1-9][0-9]?|100)%$"}]
    },
    "revisionHistoryLimit": {"type": "integer", "minimum": 1},
    "terminationGracePeriodSeconds": {"type": "integer", "minimum": 1},
    "resources": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"requests": _AMOUNTS, "limits": _AMOUNTS},
    },
    "securityContext": _of("SecurityContext"),
    "podSecurityContext": _of("PodSecurityContext"),
    "port": {"type": "integer", "minimum": 1024, "maximum": 65535},
    "log.format": {"enum": ["json", "text"]},
    "log.level": {"enum": ["debug", "info", "warning", "error"]},
    "statePath": _FOLDER,
    "nri.path": _FOLDER,
    "kubelet.rootDir": _FOLDER,
    "networkPolicy.metricsFrom": _list("NetworkPolicyPeer"),
    "networkPolicy.apiServerTo": _list("NetworkPolicyPeer"),
    "networkPolicy.apiServerPorts": {
        "type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1, "maximum": 65535},
    },
    "networkPolicy.extraEgress": _list("NetworkPolicyEgressRule"),
    "monitoring.podMonitor.labels": _LABELS,
    "monitoring.podMonitor.interval": _DURATION,
    "monitoring.podMonitor.scrapeTimeout": _DURATION,
    "monitoring.podMonitor.sampleLimit": {"type": "integer", "minimum": 0},
    "monitoring.podMonitor.relabelings": _list("RelabelConfig"),
    "monitoring.podMonitor.metricRelabelings": _list("RelabelConfig"),
    "monitoring.prometheusRule.labels": _LABELS,
    "monitoring.prometheusRule.alertLabels": _ALERT,
    "monitoring.dashboards.labels": _LABELS,
    "monitoring.dashboards.annotations": _TEXTS,
    "monitoring.dashboards.namespace": {"type": "string", "pattern": _NAME},
    "gatekeeper.replicas": {"type": "integer", "minimum": 1, "maximum": 10},
    "gatekeeper.namespaces": {"type": "array", "items": {"type": "string", "pattern": _NAME[:-2] + "$"}},
    "gatekeeper.schedulerNames": {
        "type": "array", "minItems": 1, "items": {"type": "string", "pattern": _NAMES[:-2] + "$"},
    },
    "gatekeeper.maxNotIn": {"type": "integer", "minimum": 1, "maximum": 256},
    "gatekeeper.maxWait": {"type": "integer", "minimum": 10, "maximum": 86400},
    "gatekeeper.autoscaler": {"enum": ["none", "cluster-autoscaler", "karpenter"]},
    "gatekeeper.scoring": {"enum": ["least-allocated", "most-allocated"]},
    "gatekeeper.resources": {
        "type": "object", "additionalProperties": False, "properties": {"requests": _AMOUNTS, "limits": _AMOUNTS},
    },
    "gatekeeper.nodeSelector": _LABELS,
    "gatekeeper.tolerations": _list("Toleration"),
    "test.namespace": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"},
    "test.cpus": {"type": "integer", "minimum": 1},
    "uninstall.serviceAccountName": {"type": "string", "pattern": _NAMES},
    "uninstall.timeoutSeconds": {"type": "integer", "minimum": 5, "maximum": 3600},
    "podLabels": _LABELS,
    "podAnnotations": _TEXTS,
    "extraArgs": _arguments(),
    "extraEnv": _list("EnvVar"),
    "extraVolumes": _list("Volume"),
    "extraVolumeMounts": _list("VolumeMount"),
    "extraObjects": {"type": "array", "items": {"type": "object", "required": ["apiVersion", "kind"]}},
}  # fmt: skip
"""Dotted path of a value -> what it may be, where its default's type is not enough."""
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_KEY = re.compile(r"( *)([A-Za-z][A-Za-z0-9]*):")


def described(text: str) -> dict[str, str]:
    """Dotted path -> description, from the comments of values.yaml that start with `# --`."""
    found: dict[str, str] = {}
    path: list[str] = []
    words: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- "):
            words = [stripped.removeprefix("# -- ")]
        elif stripped.startswith("#") and words and not stripped.startswith("# @"):
            words.append(stripped.removeprefix("#").strip())
        elif match := _KEY.match(line):
            path = [*path[: len(match[1]) // 2], match[2]]
            if words:
                found[".".join(path)] = " ".join(words)
            words = []
    return found


def schema(values: Mapping[str, Any], words: Mapping[str, str]) -> Json:
    """The schema of all values."""
    config = settings_schema()
    definitions: dict[str, Json] = config.pop("$defs")
    theirs = kubernetes.definitions(*kubernetes.named(dict(KINDS)))
    if both := definitions.keys() & theirs.keys():
        raise ValueError(f"types of the settings that are called like Kubernetes' own: {', '.join(sorted(both))}")
    used = set(KINDS)
    top = _object(values, "", words, used)
    if used:
        raise ValueError(f"KINDS names values that do not exist: {', '.join(sorted(used))}")
    top["properties"]["config"] = {**config, "description": words["config"]}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **top, "definitions": definitions | theirs}


def _object(values: Mapping[str, Any], path: str, words: Mapping[str, str], used: set[str]) -> Json:
    properties = {key: _value(value, f"{path}.{key}".lstrip("."), words, used) for key, value in values.items()}
    return {"type": "object", "additionalProperties": path == "global", "properties": properties}


def _value(value: object, path: str, words: Mapping[str, str], used: set[str]) -> Json:
    if path == "config":
        return {}
    about = {"description": words[path]} if path in words else {}
    if not about and not (isinstance(value, dict) and path not in KINDS):
        raise ValueError(f"{path}: has no description; write it above the value in values.yaml, after `# -- `")
    if path in KINDS:
        used.discard(path)
        return {**about, **KINDS[path], "default": value}
    if isinstance(value, dict):
        if not value:
            raise ValueError(f"{path}: an empty mapping says nothing; write in KINDS what it may hold")
        return {**about, **_object(value, path, words, used)}
    kind = _TYPES.get(type(value))
    if kind is None:
        raise ValueError(f"{path}: {value!r} says nothing; write in KINDS what it may hold")
    return {**about, "type": kind, "default": value}


def written() -> str:
    """The file's text."""
    text = (CHART / "values.yaml").read_text("utf-8")
    found = json.dumps(schema(yaml.safe_load(text), described(text)), indent=2, ensure_ascii=False)
    return found.replace("#/$defs/", "#/definitions/") + "\n"
