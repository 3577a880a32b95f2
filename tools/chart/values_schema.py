"""The chart's values.schema.json, written by `make chart` (`tools.chart.__main__`).

Shape and types come from values.yaml's own defaults, descriptions from its comments, `config` from the agent's
settings (`agent.settings.schema`), so that neither can part from the chart. What a default cannot say is in KINDS
below. Nothing unknown is allowed anywhere but in what is Kubernetes' own or the user's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agent.settings import schema as settings_schema

CHART = Path(__file__).parents[2] / "charts" / "numalign"
Json = dict[str, Any]

_TEXTS: Json = {"type": "object", "additionalProperties": {"type": "string"}}
_OBJECT: Json = {"type": "object"}
_OBJECTS: Json = {"type": "array", "items": {"type": "object"}}
_SECRETS: Json = {
    "type": "array",
    "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
}
_FOLDER: Json = {"type": "string", "pattern": "^/[^:]*[^/:]$"}
_DURATION: Json = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
KINDS: Mapping[str, Json] = {
    "global.imagePullSecrets": _SECRETS,
    "imagePullSecrets": _SECRETS,
    "image.registry": {"type": "string", "pattern": "^[^/]*(/[^/]+)*$"},
    "image.repository": {"type": "string", "minLength": 1},
    "image.tag": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{0,128}$"},
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "commonLabels": _TEXTS,
    "serviceAccount.annotations": _TEXTS,
    "priorityClass.value": {"type": "integer", "maximum": 1_000_000_000},
    "nodeSelector": _TEXTS,
    "affinity": _OBJECT,
    "tolerations": _OBJECTS,
    "uninstall.tolerations": _OBJECTS,
    "updateStrategy.maxUnavailable": {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^([1-9][0-9]?|100)%$"}]
    },
    "revisionHistoryLimit": {"type": "integer", "minimum": 1},
    "terminationGracePeriodSeconds": {"type": "integer", "minimum": 1},
    "resources": {
        "type": "object",
        "additionalProperties": False,
        "properties": {each: {"type": "object"} for each in ("requests", "limits", "claims")},
    },
    "securityContext": _OBJECT,
    "podSecurityContext": _OBJECT,
    "port": {"type": "integer", "minimum": 1024, "maximum": 65535},
    "log.format": {"enum": ["json", "text"]},
    "log.level": {"enum": ["debug", "info", "warning", "error"]},
    "statePath": _FOLDER,
    "nri.path": _FOLDER,
    "kubelet.rootDir": _FOLDER,
    "networkPolicy.metricsFrom": _OBJECTS,
    "networkPolicy.apiServerTo": _OBJECTS,
    "networkPolicy.apiServerPorts": {
        "type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1, "maximum": 65535},
    },
    "networkPolicy.extraEgress": _OBJECTS,
    "monitoring.podMonitor.labels": _TEXTS,
    "monitoring.podMonitor.interval": _DURATION,
    "monitoring.podMonitor.scrapeTimeout": _DURATION,
    "monitoring.podMonitor.sampleLimit": {"type": "integer", "minimum": 0},
    "monitoring.podMonitor.relabelings": _OBJECTS,
    "monitoring.podMonitor.metricRelabelings": _OBJECTS,
    "monitoring.prometheusRule.labels": _TEXTS,
    "monitoring.prometheusRule.alertLabels": _TEXTS,
    "monitoring.dashboards.labels": _TEXTS,
    "monitoring.dashboards.annotations": _TEXTS,
    "test.namespace": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"},
    "test.cpus": {"type": "integer", "minimum": 1},
    "uninstall.timeoutSeconds": {"type": "integer", "minimum": 5, "maximum": 3600},
    "podLabels": _TEXTS,
    "podAnnotations": _TEXTS,
    "extraArgs": {"type": "array", "items": {"type": "string", "pattern": "^--"}},
    "extraEnv": _OBJECTS,
    "extraVolumes": _OBJECTS,
    "extraVolumeMounts": _OBJECTS,
    "extraObjects": _OBJECTS,
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
    definitions = config.pop("$defs")
    used = set(KINDS)
    top = _object(values, "", words, used)
    if used:
        raise ValueError(f"KINDS names values that do not exist: {', '.join(sorted(used))}")
    top["properties"]["config"] = {**config, "description": words["config"]}
    return {"$schema": "http://json-schema.org/draft-07/schema#", **top, "definitions": definitions}


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
