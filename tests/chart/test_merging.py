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
        'commonLabels={"team":"a","app.kubernetes.io/version":"9","helm.sh/chart":"mine"}',
        'podLabels={"team":"b"}',
        'podAnnotations={"numalign.io/tolerate-missing-plugin":"false"}',
    )
    context = found["spec"]["containers"][0]["securityContext"]
    assert (context["readOnlyRootFilesystem"], context["capabilities"]) == (False, {"drop": ["ALL"]})
    assert context["seLinuxOptions"] == {"type": "spc_t"}
    assert found["spec"]["securityContext"] == {"seccompProfile": {"type": "Unconfined"}}
    assert found["metadata"]["labels"]["team"] == "b"
    assert found["metadata"]["annotations"]["numalign.io/tolerate-missing-plugin"] == "true"


@pytest.mark.parametrize("label", OWN)
@pytest.mark.parametrize("value", ["commonLabels", "podLabels"])
def test_a_label_that_selects_the_agents_cannot_be_another(value: str, label: str) -> None:
    """The DaemonSet would lose its pods; one sentence says so beforehand."""
    with pytest.raises(rendering.HelmError, match=f"{value}: {label} selects the agents' pods"):
        agents(f'{value}={{"{label}":"x"}}')
