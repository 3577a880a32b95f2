"""Values that are wrong are refused by Helm, with their key, before anything in the cluster changes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.settings import parse
from tests.chart import schemas
from tests.peers import tools
from tools.chart import rendering
from tools.chart.rendering import CHART, NEWEST, of_kind

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


OTHERS: tuple[tuple[str, str], ...] = (
    ('resources={"limits":{"cpus":"1"}}', "cpus"),
    ('resources={"limits":{"cpu":"abc"}}', "/resources/limits/cpu"),
    ('resources={"limit":{"cpu":"1"}}', "'limit' not allowed"),
    ('tolerations=[{"operater":"Exists"}]', "at '/tolerations/0': additional properties 'operater'"),
    ('tolerations=[{"operator":"Exist"}]', "at '/tolerations/0/operator'"),
    ('uninstall.tolerations=[{"effect":"NoRun"}]', "at '/uninstall/tolerations/0/effect'"),
    ('affinity={"nodeAffinty":{}}', "at '/affinity': additional properties 'nodeAffinty'"),
    ('nodeSelector={"gpu":true}', "at '/nodeSelector/gpu': got boolean"),
    ('nodeSelector={"gpu":"not a label"}', "at '/nodeSelector/gpu'"),
    ('securityContext={"previleged":true}', "at '/securityContext': additional properties 'previleged'"),
    ('podSecurityContext={"seccompProfile":{"type":"Default"}}', "at '/podSecurityContext/seccompProfile/type'"),
    ('extraEnv=[{"nam":"x"}]', "at '/extraEnv/0': additional properties 'nam'"),
    ('extraVolumes=[{"name":"a","hostPath":{"pth":"/x"}}]', "at '/extraVolumes/0/hostPath'"),
    ('extraVolumeMounts=[{"name":"a"}]', "missing property 'mountPath'"),
    ('extraArgs=["--log-levle=debug"]', "at '/extraArgs/0'"),
    ('extraArgs=["--config=/x"]', "at '/extraArgs/0'"),
    ('extraObjects=[{"metadata":{}}]', "at '/extraObjects/0'"),
    ('networkPolicy.metricsFrom=[{"podSelectr":{}}]', "at '/networkPolicy/metricsFrom/0'"),
    (
        'networkPolicy.extraEgress=[{"ports":[{"protocol":"HTTP"}]}]',
        "at '/networkPolicy/extraEgress/0/ports/0/protocol'",
    ),
    ('monitoring.podMonitor.relabelings=[{"targetLable":"x"}]', "at '/monitoring/podMonitor/relabelings/0'"),
    ('updateStrategy.type="Recreate"', "at '/updateStrategy/type'"),
    ('podLabels={"a":"b c"}', "at '/podLabels/a'"),
    ('podAnnotations={"a b":"c"}', "a b"),
    ('fullnameOverride="Bad_Name!"', "at '/fullnameOverride'"),
    ('nameOverride="UPPER_case"', "at '/nameOverride'"),
    ('serviceAccount.name="Foo Bar"', "at '/serviceAccount/name'"),
    ('image.repository="reg/x:tag"', "at '/image/repository'"),
    ('image.registry="https://registry.test"', "at '/image/registry'"),
    ('image.tag="-x"', "at '/image/tag'"),
    ('imagePullSecrets=["mine"]', "at '/imagePullSecrets/0'"),
    ('global.imageregistry="x"', "global.imageregistry: is no value; write global.imageRegistry"),
)
"""Values beside `config`, and what Helm says of them."""
TAKEN = (
    'resources={"requests":{"cpu":1,"memory":"96Mi"},"limits":{"memory":"2.5e8","hugepages-2Mi":"64Mi","a.test/nic":1}}',
    'tolerations=[{"key":"a","operator":"Equal","value":"b","effect":"NoExecute","tolerationSeconds":30},{"effect":""}]',
    'affinity={"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"a","namespaces":[]}]}}',
    'securityContext={"seLinuxOptions":{"type":"spc_t"},"appArmorProfile":{"type":"Unconfined"}}',
    'podSecurityContext={"fsGroup":1000,"sysctls":[{"name":"a","value":"b"}]}',
    'extraEnv=[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}]',
    'extraVolumes=[{"name":"a","projected":{"sources":[{"configMap":{"name":"a","items":[{"key":"b","path":"c"}]}}]}}]',
    'networkPolicy={"enabled":true,"extraEgress":[{"ports":[{"port":"http"},{"port":80,"endPort":90}]}]}',
    'image={"registry":"registry.test:5000/team/","repository":"a__b/c-d","tag":"v1.0_x"}',
    'updateStrategy.type="OnDelete"',
    'extraArgs=["--no-processes","--nri-socket=/x"]',
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


@pytest.mark.parametrize(("value", "why"), OTHERS, ids=[each[0] for each in OTHERS])
def test_what_kubernetes_would_refuse_or_leave_out_is_refused_by_helm(value: str, why: str) -> None:
    """A typing error in what is Kubernetes' own has no effect, or fails when half of the chart is there."""
    with pytest.raises(rendering.HelmError, match=re.escape(why)):
        rendering.render("--set-json", value)


@pytest.mark.parametrize("value", TAKEN, ids=lambda each: each.partition("=")[0])
def test_what_kubernetes_takes_is_taken_by_helm(value: str, tmp_path: Path) -> None:
    """The schema is no stricter than Kubernetes' own about every form in which such a value is usually written."""
    (tmp_path / "all.yaml").write_text(rendering.render("--set-json", value))
    location = f"{schemas.folder(NEWEST)}/{schemas.LOCATION}"
    done = subprocess.run(
        [tools.kubeconform(), "-strict", "-schema-location", location, tmp_path / "all.yaml"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_needs_no_network() -> None:
    """Every type that it refers to stands in it; a cluster without a way out can install the chart."""
    text = (CHART / "values.schema.json").read_text("utf-8")
    known = json.loads(text)["definitions"]
    assert {each.removeprefix("#/definitions/") for each in re.findall(r'"\$ref": "([^"]*)"', text)} == set(known)
