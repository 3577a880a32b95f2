"""Values and templates, both ways: every value changes something, and nothing is used that is no value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.chart import rendering, values_schema
from tools.chart.rendering import CHART
from tools.chart.settings_schema import schema

pytestmark = [pytest.mark.go, pytest.mark.usefixtures("charting")]
BASE = yaml.safe_load((CHART / "ci" / "everything-values.yaml").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
USED = re.compile(r"\.Values((?:\.[A-Za-z][A-Za-z0-9]*)+)")
OTHERS: Mapping[str, Any] = {
    "config": {"observeOnly": True}, "global.imageRegistry": "other.test", "image.registry": "other.test",
    "image.tag": "v9", "image.pullPolicy": "Never", "image.digest": "sha256:" + "f" * 64, "log.format": "json",
    "log.level": "error", "statePath": "/var/other", "nri.path": "/run/other", "kubelet.rootDir": "/var/kubelet",
    "monitoring.podMonitor.interval": "7s", "monitoring.podMonitor.scrapeTimeout": "7s",
    "updateStrategy.maxUnavailable": 7, "updateStrategy.type": "OnDelete",
    "monitoring.podMonitor.relabelings": [{"targetLabel": "other"}],
    "monitoring.podMonitor.metricRelabelings": [{"action": "drop"}],
    "test.namespace": "other", "nodeSelector": {"other": "yes"},
    "affinity": {"podAffinity": {}}, "tolerations": [{"key": "other"}], "resources": {"requests": {"cpu": "7m"}},
    "securityContext": {"seLinuxOptions": {"type": "other"}}, "podSecurityContext": {"supplementalGroups": [7]},
    "extraArgs": ["--processes"], "networkPolicy.apiServerPorts": [7], "extraEnv": [{"name": "OTHER"}],
    "networkPolicy.metricsFrom": [{"podSelector": {}}], "networkPolicy.apiServerTo": [{"podSelector": {}}],
    "networkPolicy.extraEgress": [{}], "extraVolumes": [{"name": "other", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/other"}], "uninstall.tolerations": [{"key": "other"}],
    "extraObjects": [{"apiVersion": "v1", "kind": "Other"}], "imagePullSecrets": [{"name": "other"}],
    "global.imagePullSecrets": [{"name": "other"}], "priorityClass.create": False, "priorityClass.name": "other",
    "priorityClass.value": 7, "serviceAccount.name": "other", "gatekeeper.namespaces": ["other"],
    "gatekeeper.schedulerNames": ["other"], "gatekeeper.autoscaler": "karpenter",
    "gatekeeper.scoring": "most-allocated", "gatekeeper.resources": {"requests": {"cpu": "7m"}},
    "gatekeeper.nodeSelector": {"other": "yes"}, "gatekeeper.tolerations": [{"key": "other"}],
}  # fmt: skip
"""Another value where "changed" is not one."""
WITHOUT: Mapping[str, Any] = {
    "image.registry": {"global": {"imageRegistry": ""}}, "image.tag": {"image": {"digest": ""}},
    **{f"gatekeeper.{key}": {"gatekeeper": {"enabled": True}, "config": {"fleet": {"publish": True}}}
       for key in VALUES["gatekeeper"] if key != "enabled"},
}  # fmt: skip
"""What would hide a value, and is taken away for it; the gatekeeper's are seen where it is on."""


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and default of each value; a value that is Kubernetes' own or the user's is one."""
    for key, value in values.items():
        here = f"{path}.{key}".lstrip(".")
        if isinstance(value, dict) and value and here not in values_schema.KINDS and here != "config":
            yield from leaves(value, here)
        else:
            yield here, value


def changed(path: str, value: Any) -> Any:  # noqa: ANN401 - YAML
    """Something else of the same kind."""
    if path in OTHERS:
        return OTHERS[path]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 7
    if isinstance(value, str):
        return "changed"
    return {"changed": "yes"} if isinstance(value, dict) else [{"changed": "yes"}]


def nested(path: str, value: Any) -> dict[str, Any]:  # noqa: ANN401 - YAML
    """{"a": {"b": value}} of "a.b"."""
    head, _, rest = path.partition(".")
    return {head: nested(rest, value) if rest else value}


def current(path: str) -> Any:  # noqa: ANN401 - YAML
    """What the case with everything has."""
    for values in (BASE, VALUES):
        found: Any = values
        for key in path.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if found is not None:
            return found
    return None


def test_every_value_changes_what_is_rendered(tmp_path: Path) -> None:
    """A value that changes nothing is a promise that nobody keeps."""
    everything = CHART / "ci" / "everything-values.yaml"

    def silent(leaf: tuple[str, Any]) -> str:
        path, _ = leaf
        texts = []
        for each in (None, changed(path, current(path))):
            file = tmp_path / f"{path}-{each is None}.yaml"
            file.write_text(yaml.safe_dump({} if each is None else nested(path, each)))
            hidden = tmp_path / f"{path}-hidden.yaml"
            hidden.write_text(yaml.safe_dump(WITHOUT.get(path, {})))
            texts.append(_text(everything, hidden, file))
        return path if texts[0] == texts[1] else ""

    with ThreadPoolExecutor(2) as pool:
        quiet = {path for path in pool.map(silent, leaves(VALUES)) if path}
    assert quiet == set()


def _text(*files: Path) -> str:
    """What is rendered, or the sentence by which a template refuses it; the schema must take it."""
    try:
        return rendering.render(*(part for each in files for part in ("--values", each)))
    except rendering.HelmError as error:
        said = str(error)
    assert "meet the specifications of the schema" not in said
    return said


def test_nothing_is_used_that_is_no_value() -> None:
    """A typing error in a template would render as nothing."""
    known = {path for path, _ in leaves(VALUES)}
    known |= {".".join(path.split(".")[:depth]) for path in known for depth in range(1, 5)}
    known |= {f"config.{key}" for key in schema()["properties"]}
    texts = {path: path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file()}
    used = {(path.name, name.lstrip(".")) for path, text in texts.items() for name in USED.findall(text)}
    assert {each for each in used if each[1] not in known} == set()
    assert len(used) > 50
