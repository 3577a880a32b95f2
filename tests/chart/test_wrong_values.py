"""Values that are wrong are refused by Helm, with their key, before anything in the cluster changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.settings import parse
from tools.chart import rendering
from tools.chart.rendering import of_kind

pytestmark = [pytest.mark.go, pytest.mark.usefixtures("charting")]
WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"config": {"cpuManagerPolicyOptions": {"full-pcpus": "true"}}}, "full-pcpus"),
    ({"config": {"cpuManagerPolicyOptions": {"full-pcpus-only": "yes"}}}, "full-pcpus-only"),
    ({"config": {"topologyManagerPolicyOptions": {"prefer-closest": "true"}}}, "prefer-closest"),
    ({"config": {"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "many"}}}, "max-allowable-numa-nodes"),
    ({"config": {"reservedSystemCPUs": "0-x"}}, "reservedSystemCPUs"),
    ({"config": {"systemReserved": {"cpu": "abc"}}}, "systemReserved"),
    ({"config": {"kubeReserved": {"cpus": "1"}}}, "kubeReserved"),
    ({"config": {"evictionHard": {"memory.availble": "1Gi"}}}, "evictionHard"),
    ({"config": {"evictionHard": {"memory.available": "101%"}}}, "evictionHard"),
    ({"config": {"reservedMemory": [{"numaNode": 0, "limits": {"huge-2Mi": "1Gi"}}]}}, "limits"),
    ({"config": {"waiting": {"limit": "5x"}}}, "limit"),
    ({"config": {"refusals": {"deleteAfter": "24"}}}, "deleteAfter"),
    ({"config": {"devices": [{"resource": "kubernetes.io/nic", "vendor": "8086"}]}}, "resource"),
    ({"config": {"devices": [{"resource": "nic", "vendor": "8086"}]}}, "resource"),
    ({"config": {"page": {"address": "localhost"}}}, "address"),
)
RIGHT: tuple[dict[str, Any], ...] = (
    {"cpuManagerPolicyOptions": {"full-pcpus-only": True, "distribute-cpus-across-numa": "F"}},
    {"topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": 16}},
    {"reservedSystemCPUs": "0-1,8,10-11"},
    {"systemReserved": {"cpu": "500m", "memory": "1.5Gi"}, "kubeReserved": {"cpu": 1, "pid": "1e3"}},
    {"evictionHard": {"memory.available": "5.5%", "nodefs.available": "100%", "imagefs.available": "1Gi"}},
    {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "64Mi"}}]},
    {"waiting": {"limit": "1h30m0.5s"}, "page": {"address": "::1", "hosts": ["node-1.example.com"]}},
    {"devices": [{"resource": "numalign.io/nic", "vendor": "8086"}]},
)


def rendered(values: dict[str, Any], folder: Path) -> str:
    """The chart with these values; raises HelmError."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return rendering.render("--values", file)


@pytest.mark.parametrize(("values", "key"), WRONG, ids=[f"{number}-{key}" for number, (_, key) in enumerate(WRONG)])
def test_a_wrong_value_is_refused_with_its_key(values: dict[str, Any], key: str, tmp_path: Path) -> None:
    """`helm upgrade` refuses what agents would refuse at their next start, and names the key."""
    with pytest.raises(rendering.HelmError, match=f"at '/config.*{key}"):
        rendered(values, tmp_path)


@pytest.mark.parametrize("config", RIGHT, ids=lambda each: next(iter(each)))
def test_a_right_value_is_taken_by_helm_and_by_the_agent(config: dict[str, Any], tmp_path: Path) -> None:
    """The schema is no stricter than the agent about every form in which a value is usually written."""
    found = rendering.objects(rendered({"config": config}, tmp_path))
    parse(yaml.safe_load(of_kind(found, "ConfigMap", "numalign")["data"]["config.yaml"]))
