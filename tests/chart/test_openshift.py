"""What OpenShift lets the agent's pod do is what that pod has, and nothing else."""

from __future__ import annotations

import re

import pytest

from tests.peers import tools
from tools.chart import rendering
from tools.chart.rendering import CHART, Object, of_kind

pytestmark = [pytest.mark.go, pytest.mark.usefixtures("charting")]
LATER = {"allowPrivilegeEscalation"}
"""Fields that OpenShift got after the newest version of its API that is a module."""


@pytest.fixture(scope="module")
def found() -> list[Object]:
    """The objects of an installation there."""
    return rendering.objects(rendering.render("--values", CHART / "presets" / "openshift.yaml"))


def test_the_constraints_have_fields_that_openshift_knows(found: list[Object]) -> None:
    """By OpenShift's own types: an unknown field would be dropped in silence."""
    types = tools.module("github.com/openshift/api", "v3.9.0+incompatible") / "security" / "v1" / "types.go"
    known = set(re.findall(r'json:"(\w+)', types.read_text("utf-8"))) | {"apiVersion", "kind"} | LATER
    scc = of_kind(found, "SecurityContextConstraints")
    assert set(scc) <= known
    assert {key: set(scc[key]) for key in ("runAsUser", "fsGroup", "supplementalGroups", "seLinuxContext")} == {
        "runAsUser": {"type"}, "fsGroup": {"type"}, "supplementalGroups": {"type"}, "seLinuxContext": {"type"},
    }  # fmt: skip


def test_the_constraints_allow_what_the_pod_has_and_no_more(found: list[Object]) -> None:
    """Kinds of volumes, host namespaces, capabilities, privileges, seccomp: as the DaemonSet's pod has them."""
    scc, spec = of_kind(found, "SecurityContextConstraints"), of_kind(found, "DaemonSet")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    own = container["securityContext"]
    used = {next(key for key in volume if key != "name") for volume in spec["volumes"]}
    everywhere = {"configMap", "downwardAPI", "emptyDir", "projected", "secret"}  # which every other one allows, too
    assert used <= set(scc["volumes"]) <= used | everywhere
    assert scc["allowHostDirVolumePlugin"] == ("hostPath" in used)
    assert scc["allowPrivilegedContainer"] is own["privileged"] is False
    assert scc["allowPrivilegeEscalation"] is own["allowPrivilegeEscalation"] is False
    assert scc["requiredDropCapabilities"] == own["capabilities"]["drop"] == ["ALL"]
    assert scc["allowedCapabilities"] == scc["defaultAddCapabilities"] == scc["users"] == scc["groups"] == []
    assert scc["readOnlyRootFilesystem"] is own["readOnlyRootFilesystem"] is True
    assert scc["seccompProfiles"] == ["runtime/default"]
    for key in ("HostIPC", "HostNetwork", "HostPID", "HostPorts"):
        assert scc[f"allow{key}"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & {key for key, value in spec.items() if value}
    assert not any("hostPort" in port for port in container.get("ports", []))
    assert spec["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "seLinuxOptions": {"type": "spc_t"},
    }


def test_only_the_agents_account_may_use_them(found: list[Object]) -> None:
    """By a role that names these constraints, bound in the release's namespace."""
    scc = of_kind(found, "SecurityContextConstraints")["metadata"]["name"]
    role = of_kind(found, "ClusterRole", f"{scc}-scc")
    assert role["rules"] == [
        {"apiGroups": ["security.openshift.io"], "resources": ["securitycontextconstraints"], "resourceNames": [scc],
         "verbs": ["use"]}
    ]  # fmt: skip
    binding = of_kind(found, "RoleBinding", f"{scc}-scc")
    account = of_kind(found, "DaemonSet")["spec"]["template"]["spec"]["serviceAccountName"]
    assert [each["name"] for each in binding["subjects"]] == [account]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_hook_and_test_pod_take_the_users_of_their_namespace(found: list[Object]) -> None:
    """A uid of our choice is none that OpenShift's default constraints allow."""
    for name, spec in rendering.pod_specs(found):
        if not name.startswith("DaemonSet"):
            assert "runAsUser" not in spec["securityContext"], name
            assert spec["securityContext"]["runAsNonRoot"], name
