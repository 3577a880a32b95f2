"""What users add to labels and security contexts comes over the chart's own, and no key is there twice."""

from __future__ import annotations

import pytest
import yaml

from tools.chart import rendering
from tools.chart.rendering import Object

pytestmark = [pytest.mark.go, pytest.mark.usefixtures("charting")]
OWN = ("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component")


class Once(yaml.SafeLoader):
    """YAML in which a key that is there twice is an error, as kustomize reads it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:  # noqa: FBT001, FBT002 - the library's own
        """As the library does, after a look for keys that are there twice."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"twice: {sorted(map(str, keys))}"
        return super().construct_mapping(node, deep=deep)


def agents(*settings: str) -> Object:
    """The DaemonSet's template, of a text in which no object has a key twice."""
    found = list(yaml.load_all(rendering.render(*(f"--set-json={each}" for each in settings)), Once))
    (daemonset,) = (each for each in found if each and each["kind"] == "DaemonSet")
    template: Object = daemonset["spec"]["template"]
    return template


def test_what_is_added_replaces_and_doubles_no_key() -> None:
    """Each key of the chart's own can be set by a value; the others stay."""
    found = agents(
        'securityContext={"readOnlyRootFilesystem":false,"seLinuxOptions":{"type":"spc_t"}}',
        'podSecurityContext={"seccompProfile":{"type":"Unconfined"}}',
        'commonLabels={"team":"a","app.kubernetes.io/part-of":"nodes"}',
        'podLabels={"team":"b"}',
        'podAnnotations={"note":"mine"}',
        'monitoring={"skipCrdCheck":true,"podMonitor":{"enabled":true,"labels":{"team":"c"}},'
        '"prometheusRule":{"enabled":true,"labels":{"team":"c"}},'
        '"dashboards":{"enabled":true,"labels":{"team":"c"}}}',
    )
    context = found["spec"]["containers"][0]["securityContext"]
    assert (context["readOnlyRootFilesystem"], context["capabilities"]) == (False, {"drop": ["ALL"]})
    assert context["seLinuxOptions"] == {"type": "spc_t"}
    assert found["spec"]["securityContext"] == {"seccompProfile": {"type": "Unconfined"}}
    assert found["metadata"]["labels"]["team"] == "b"
    assert found["metadata"]["annotations"] == {"numalign.io/tolerate-missing-plugin": "true", "note": "mine"}


@pytest.mark.parametrize("label", OWN)
@pytest.mark.parametrize("value", ["commonLabels", "podLabels"])
def test_a_label_that_selects_the_agents_cannot_be_another(value: str, label: str) -> None:
    """The DaemonSet would lose its pods; one sentence says so beforehand."""
    with pytest.raises(rendering.HelmError, match=f"{value}: {label} selects the agents' pods"):
        agents(f'{value}={{"{label}":"x"}}')


OWN_KEYS = (
    ("commonLabels", "app.kubernetes.io/version", "is the chart's own"),
    ("commonLabels", "helm.sh/chart", "is the chart's own"),
    ("monitoring.podMonitor.labels", "app.kubernetes.io/name", "is the chart's own"),
    ("monitoring.prometheusRule.labels", "app.kubernetes.io/managed-by", "is the chart's own"),
    ("monitoring.dashboards.labels", "app.kubernetes.io/instance", "is the chart's own"),
    ("podAnnotations", "numalign.io/tolerate-missing-plugin", "is numalign's own"),
    ("podAnnotations", "numalign.io/release", "is numalign's own"),
)


@pytest.mark.parametrize(("value", "key", "why"), OWN_KEYS, ids=[f"{each[0]}-{each[1]}" for each in OWN_KEYS])
def test_a_key_of_the_charts_own_is_refused_and_not_left_out(value: str, key: str, why: str) -> None:
    """A value that would be without effect, or that would undo the chart's own, is told, whatever else is set."""
    with pytest.raises(rendering.HelmError, match=f"{value}: {key} {why}"):
        agents(f'{value}={{"{key}":"x"}}')


OWN_THINGS = (
    ('extraEnv=[{"name":"NODE_NAME","value":"x"}]', "extraEnv: NODE_NAME is the chart's own"),
    ('extraVolumes=[{"name":"state","emptyDir":{}}]', "extraVolumes: state is the name of a volume of the chart"),
    ('extraVolumeMounts=[{"name":"a","mountPath":"/sys/"}]', "extraVolumeMounts: /sys/ is where the chart mounts"),
)


@pytest.mark.parametrize(("value", "why"), OWN_THINGS, ids=[each[0].partition("=")[0] for each in OWN_THINGS])
def test_what_is_more_is_not_what_is_there(value: str, why: str) -> None:
    """A variable, volume or mount of the chart cannot be there twice."""
    with pytest.raises(rendering.HelmError, match=why):
        agents(value)


def test_own_names_and_places_are_all_that_the_agent_has() -> None:
    """The list of what may not be there twice is complete: with everything switched on, each entry is refused."""
    spec = agents('kubelet={"stateFiles":true}')["spec"]
    agent = spec["containers"][0]
    wrong = [f'extraEnv=[{{"name":"{each["name"]}","value":"x"}}]' for each in agent["env"]]
    wrong += [f'extraVolumes=[{{"name":"{each["name"]}","emptyDir":{{}}}}]' for each in spec["volumes"]]
    wrong += [
        f'extraVolumeMounts=[{{"name":"a","mountPath":"{each["mountPath"]}"}}]' for each in agent["volumeMounts"]
    ]
    for each in wrong:
        with pytest.raises(rendering.HelmError, match="the chart"):
            agents(each)


def test_the_agent_sees_processes_only_where_that_is_asked_for() -> None:
    """To read memory policies it needs the host's processes and one capability; OpenShift's constraints bar both."""
    given = {"capabilities": {"drop": ["ALL"]}}, {"capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE"]}}
    for asked, context in zip((False, True), given, strict=True):
        spec = agents(f'nri={{"readMemoryPolicies":{str(asked).lower()}}}')["spec"]
        assert spec["hostPID"] is asked
        assert spec["containers"][0]["securityContext"].items() >= context.items()
        assert spec["containers"][0]["securityContext"]["privileged"] is False
    with pytest.raises(rendering.HelmError, match=r"nri\.readMemoryPolicies: needs hostPID and SYS_PTRACE"):
        agents('nri={"readMemoryPolicies":true}', 'openshift={"enabled":true}')
