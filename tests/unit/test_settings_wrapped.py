"""The documents in which providers and installers keep a kubelet's configuration: found, named, written as ours."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.app.setup import instead_of
from agent.cli.config import command
from agent.errors import SettingsError
from agent.host.settings_file import LARGEST, observe_only_set, read_file, read_text
from agent.settings import Settings
from agent.settings.parsing import Reading

FOLDER = Path(__file__).parents[1] / "fixtures" / "kubelet_configs"
STATIC = {"cpuManagerPolicy": "static"}
CLUSTER_API = (
    "spec.template.spec.files[0] (/etc/kubernetes/patches/kubeletconfiguration0+strategic.json) of "
    "KubeadmConfigTemplate md-0 with spec.template.spec.joinConfiguration.nodeRegistration.kubeletExtraArgs of "
    "KubeadmConfigTemplate md-0"
)
FORMS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "aks-node-pool.json", "the kubelet configuration of an AKS node pool",
        {**STATIC, "topologyManagerPolicy": "best-effort"},
    ),
    (
        "bottlerocket.toml", "settings.kubernetes",
        {
            **STATIC, "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "reservedSystemCPUs": "0",
            "topologyManagerPolicy": "single-numa-node", "memoryManagerPolicy": "Static",
            "kubeReserved": {"memory": "1073741824"},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1178599424"}}],
        },
    ),
    (
        "cluster-api.yaml",
        CLUSTER_API,
        {**STATIC, "reservedSystemCPUs": "0"},
    ),
    (
        "configmap.yaml", "data.kubelet of ConfigMap kubelet-config",
        {"topologyManagerPolicy": "restricted", "cpuManagerReconcilePeriod": "10s"},
    ),
    (
        "configz.json", "kubeletconfig",
        {"cpuManagerPolicy": "none", "topologyManagerPolicy": "none", "memoryManagerPolicy": "None"},
    ),
    (
        "ec2nodeclass-bottlerocket.yaml", "settings.kubernetes in spec.userData of EC2NodeClass default",
        {**STATIC, "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}},
    ),
    (
        "ec2nodeclass.yaml", "spec.kubelet of EC2NodeClass default",
        {"systemReserved": {"cpu": "100m", "memory": "104857600"}},
    ),
    (
        "eks-nodeconfig.yaml", "spec.kubelet.config of NodeConfig with spec.kubelet.flags of NodeConfig",
        {**STATIC, "topologyManagerPolicy": "restricted", "reservedSystemCPUs": "0"},
    ),
    (
        "gardener-shoot.yaml", "spec.provider.workers[0].kubernetes.kubelet (pinned) of Shoot s",
        {
            **STATIC, "evictionHard": {"memory.available": "200Mi", "imagefs.inodesFree": "5%"},
            "kubeReserved": {"cpu": "80m", "memory": "1073741824", "ephemeral-storage": "5368709120"},
        },
    ),
    (
        "gke-node-system.yaml", "kubeletConfig",
        {
            **STATIC, "topologyManagerPolicy": "restricted", "topologyManagerScope": "pod",
            "memoryManagerPolicy": "Static",
        },
    ),
    (
        "k0s.yaml", "spec.workerProfiles[0].values (pinned) of ClusterConfig k0s",
        {**STATIC, "reservedSystemCPUs": "0-1"},
    ),
    (
        "kind.yaml", "nodes[1].kubeadmConfigPatches[0] of Cluster",
        {**STATIC, "systemReserved": {"cpu": "500m"}},
    ),
    (
        "kind-flags.yaml",
        "nodeRegistration.kubeletExtraArgs of JoinConfiguration in nodes[0].kubeadmConfigPatches[0] of Cluster",
        {**STATIC, "kubeReserved": {"cpu": "1"}},
    ),
    (
        "kops.yaml", "spec.kubelet of InstanceGroup nodes",
        {
            **STATIC, "evictionHard": {"memory.available": "100Mi"}, "kubeReserved": {"cpu": "1"},
            "featureGates": {"A": True},
        },
    ),
    (
        "kubeadm.yaml", "KubeletConfiguration with nodeRegistration.kubeletExtraArgs of InitConfiguration",
        {**STATIC, "reservedSystemCPUs": "0"},
    ),
    (
        "kubelet-extra-args.env", "flags of the kubelet",
        {
            **STATIC, "reservedSystemCPUs": "0-1",
            "featureGates": {"A": True, "CPUManagerPolicyAlphaOptions": True},
            "evictionHard": {"memory.available": "5%", "nodefs.available": "10%"},
        },
    ),
    ("microk8s.args", "flags of the kubelet", {**STATIC, "kubeReserved": {"cpu": "200m", "memory": "209715200"}}),
    ("microshift.yaml", "kubelet", {**STATIC, "reservedSystemCPUs": "0"}),
    (
        "openshift-kubeletconfig.yaml", "spec.kubeletConfig of KubeletConfig worker-numa",
        {**STATIC, "cpuManagerReconcilePeriod": "5s", "topologyManagerPolicy": "single-numa-node"},
    ),
    (
        "openshift-performanceprofile.yaml", "the settings that follow from PerformanceProfile cnf",
        {
            **STATIC, "cpuManagerReconcilePeriod": "5s", "topologyManagerPolicy": "single-numa-node",
            "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "memoryManagerPolicy": "Static",
            "reservedSystemCPUs": "0-1", "kubeReserved": {"memory": "524288000"},
            "systemReserved": {"memory": "1073741824"},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": str(1624 << 20)}}],
            "evictionHard": {
                "memory.available": "100Mi", "nodefs.available": "10%", "imagefs.available": "15%",
                "nodefs.inodesFree": "5%",
            },
        },
    ),
    (
        "rke2.yaml", "kubelet-arg",
        {
            **STATIC, "memoryManagerPolicy": "Static", "kubeReserved": {"cpu": "1", "memory": "2147483648"},
            "reservedMemory": [
                {"numaNode": 0, "limits": {"memory": "1073741824"}},
                {"numaNode": 1, "limits": {"memory": "1178599424"}},
            ],
        },
    ),
    (
        "systemd-unit.conf", "flags of the kubelet",
        {**STATIC, "kubeReserved": {"cpu": "1"}, "topologyManagerPolicy": "restricted"},
    ),
    (
        "talos.yaml", "machine.kubelet.extraConfig with machine.kubelet.extraArgs",
        {**STATIC, "systemReserved": {"cpu": "1"}, "featureGates": {"CPUManagerPolicyAlphaOptions": True}},
    ),
    ("user-data.mime", "spec.kubelet.config of NodeConfig", STATIC),
    ("user-data.sh", "flags of the kubelet", {**STATIC, "topologyManagerPolicy": "best-effort"}),
]  # fmt: skip


def check(*words: str) -> Result:
    """`numalign config check`."""
    return CliRunner().invoke(command, ["check", *words])


def of(text: str) -> Reading:
    """What a text says."""
    return read_text(text.encode(), "file")


def test_each_fixture_has_its_answer() -> None:
    """No form is in the folder that no test reads."""
    explained = {"k0s-two-profiles.yaml", "unknown-kind.yaml"}
    assert {file.name for file in FOLDER.iterdir()} == {name for name, _, _ in FORMS} | explained


@pytest.mark.parametrize(("name", "where", "named"), FORMS, ids=[name for name, _, _ in FORMS])
def test_a_wrapped_configuration_is_found_and_its_place_is_named(
    name: str, where: str, named: dict[str, Any]
) -> None:
    """What it sets is in force, all of it and nothing else; the rest is numalign's default."""
    found = read_file(FOLDER / name)
    assert found.taken == where
    assert {key: value for key, value in found.settings.shown().items() if key in found.named} == named
    assert f"taken: {where}" in check(str(FOLDER / name)).output.splitlines()
    assert found.sentences[0] == f"taken: {where}"


@pytest.mark.parametrize("name", [name for name, _, _ in FORMS])
def test_what_is_written_for_the_chart_gives_the_same_settings(tmp_path: Path, name: str) -> None:
    """`--write` prints values of the chart that `config check` takes, with where they come from in comments."""
    written = check(str(FOLDER / name), "--write")
    assert written.exit_code == 0, written.output
    assert "# taken: " in written.output
    values = tmp_path / "values.yaml"
    values.write_text(written.output)
    again = read_file(values)
    assert (again.taken, again.settings) == ("config", read_file(FOLDER / name).settings)
    answer = json.loads(check(str(FOLDER / name), "--write", "--output", "json").output)
    assert answer["config"] == json.loads(json.dumps(answer["config"]))
    assert set(answer["config"]) >= read_file(FOLDER / name).named


def test_sizes_are_written_as_people_write_them() -> None:
    """Bytes of memory get their suffix back."""
    written = check(str(FOLDER / "rke2.yaml"), "--write").output
    assert "memory: 2Gi" in written
    assert "memory: 1124Mi" in written


TWO = (FOLDER / "k0s-two-profiles.yaml").read_text()
OTHER_VERSION = "{apiVersion: kubelet.config.k8s.io/v1alpha1, kind: KubeletConfiguration}"
MISSPELT = """
apiVersion: machineconfiguration.openshift.io/v1
kind: KubeletConfig
metadata: {name: w}
spec: {kubeletConfig: {cpuManagerPolcy: static}}
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TWO, "holds 2 configurations of kubelets that differ: "),
        (TWO, "spec.workerProfiles[1].values (b) of ClusterConfig; give one of them"),
        ((FOLDER / "unknown-kind.yaml").read_text(), "spec.machines[0].kubelet looks like a kubelet's configuration"),
        ("{apiVersion: machineconfiguration.openshift.io/v1, kind: MachineConfig}", "is no form in which numalign"),
        ("{apiVersion: node.eks.aws/v1alpha1, kind: NodeConfig, spec: {}}", "NodeConfig holds no configuration of a"),
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {a: b}}",
            "ConfigMap x holds no configuration",
        ),
        (OTHER_VERSION, "cannot be read; remove it, or write"),
        ("a: 1\n---\nb: 2\n", "holds 2 documents that could be the configuration"),
        ("{apiVersion: v1, kind: Pod}\n---\n{apiVersion: v1, kind: Node}", "configuration of a kubelet: Pod, Node"),
        (MISSPELT, "(did you mean cpuManagerPolicy?)"),
        (MISSPELT, "remove it (in spec.kubeletConfig of KubeletConfig w)"),
        (
            "resources: [{kubelet: {cpuManagerPolicy: static}}]",
            "this is not a form that numalign reads; resources[0]",
        ),
        (
            'resource "x" "y" {\n  kubelet_config {\n    cpu_manager_policy = "static"\n  }\n}\n',
            "is Terraform's; write its",
        ),
        ("kubelet-arg: [kube-reserved=cpu]", 'kubelet-arg: --kube-reserved: "cpu" is not of the form NAME=VALUE'),
        ("kubelet-arg: [feature-gates=A=maybe]", 'parsing "maybe": invalid syntax; correct the flag'),
        ("kubelet-arg: [reserved-memory=memory=1Gi]", "is not of the form NODE:memory=AMOUNT"),
        ("kubeletConfig: {cpuManagerPolicyy: static}", "did you mean cpuManagerPolicy?"),
        ("{cpuManagerPolicy: static, kubelet: {topologyManagerPolicy: restricted}}", "kubelet: is not a setting"),
        ("a: |\n  kind: KubeletConfiguration\n  cpuManagerPolcy: static\n", "(did you mean cpuManagerPolicy?)"),
    ],
)
def test_what_is_not_taken_is_explained(text: str, words: str) -> None:
    """The sentence says where the configuration lies, which of several there are, or what to give instead."""
    with pytest.raises(SettingsError) as caught:
        of(text)
    assert words in str(caught.value)
    assert str(caught.value).startswith("file: ")


FLUX = (
    "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nspec: {values: {config: {cpuManagerPolicy: static}}}"
)
ARGO = """
apiVersion: argoproj.io/v1alpha1
kind: Application
spec: {source: {helm: {values: "config: {pinAdopted: false}"}}}
"""
EKSCTL = """
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
nodeGroups: [{name: a, kubeletExtraConfig: {cpuManagerPolicy: static}}]
"""
EKSCTL_BOTTLEROCKET = """
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
managedNodeGroups: [{name: a, bottlerocket: {settings: {kubernetes: {cpu-manager-policy: static}}}}]
"""
K3D = """
apiVersion: k3d.io/v1alpha5
kind: Simple
options:
  k3s: {extraArgs: [{arg: --kubelet-arg=cpu-manager-policy=static}, {arg: --kubelet-arg=kube-reserved=cpu=1}]}
"""
EKS_ANYWHERE = """
apiVersion: anywhere.eks.amazonaws.com/v1alpha1
kind: Cluster
spec:
  workerNodeGroupConfigurations: [{kubeletConfiguration: {kind: KubeletConfiguration, cpuManagerPolicy: static}}]
"""
RANCHER = """
apiVersion: provisioning.cattle.io/v1
kind: Cluster
spec: {rkeConfig: {machineSelectorConfig: [{config: {kubelet-arg: [cpu-manager-policy=static]}}]}}
"""

ARGO_SOURCES = """
apiVersion: argoproj.io/v1alpha1
kind: Application
spec: {sources: [{path: a}, {helm: {valuesObject: {config: {cpuManagerPolicy: static}}}}]}
"""
HELM_CHART = """
apiVersion: helm.cattle.io/v1
kind: HelmChart
spec: {valuesContent: "config: {cpuManagerPolicy: static}"}
"""
KIND_JSON = """
apiVersion: kind.x-k8s.io/v1alpha4
kind: Cluster
kubeadmConfigPatches: ["kind: KubeletConfiguration\\ncpuManagerPolicy: static"]
nodes:
- role: worker
  kubeadmConfigPatchesJSON6902:
  - group: kubeadm.k8s.io
    version: v1beta3
    kind: JoinConfiguration
    patch: "[{op: add, path: /nodeRegistration/kubeletExtraArgs/reserved-cpus, value: '0'}]"
"""
KUBESPRAY = """
kube_reserved: true
kube_cpu_reserved: 100m
system_cpu_reserved: 100m
kubelet_cpu_manager_policy: none
kubelet_config_extra_args: {cpuManagerPolicy: static}
kubelet_custom_flags: [--reserved-cpus=0]
"""
AZURE = """
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: AzureManagedMachinePool
spec: {kubeletConfig: {cpuManagerPolicy: static, cpuCfsQuota: true}}
"""


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (ARGO_SOURCES, STATIC),
        (HELM_CHART, STATIC),
        (KIND_JSON, {**STATIC, "reservedSystemCPUs": "0"}),
        (KUBESPRAY, {**STATIC, "reservedSystemCPUs": "0", "kubeReserved": {"cpu": "100m"}}),
        (AZURE, STATIC),
        (
            "kubelet-arg: [cpu-manager-policy=static]\nkubelet-arg+: [reserved-cpus=0]",
            {**STATIC, "reservedSystemCPUs": "0"},
        ),
        (
            "{apiVersion: v1, kind: ConfigMap, data: {config.yaml: 'enforcement: nri'}}",
            {"enforcement": "nri"},
        ),
        ("kubelet-arg: cpu-manager-policy=static", STATIC),
        ("kubelet-arg: [--cpu-manager-policy, static, --reserved-cpus=0]", {**STATIC, "reservedSystemCPUs": "0"}),
        ("kubelet-arg+: [cpu-manager-policy=static]", STATIC),
        ("--cpu-manager-policy static", STATIC),
        ("KUBELET_OPTS='--cpu-manager-policy=static'", STATIC),
        ("services: {kubelet: {extra_args: {cpu-manager-policy: static}}}", STATIC),
        ("kubelet_config_extra_args: {cpuManagerPolicy: static}", STATIC),
        (
            "machine: {kubelet: {extraArgs: {feature-gates: [A=true, B=0]}}}",
            {"featureGates": {"A": True, "B": False}},
        ),
        ("- {op: add, path: /machine/kubelet/extraConfig, value: {cpuManagerPolicy: static}}", STATIC),
        ("{apiVersion: v1, kind: List, items: [{kind: KubeletConfiguration, cpuManagerPolicy: static}]}", STATIC),
        ("{name: pool, config: {machineType: n2, kubeletConfig: {cpuManagerPolicy: static}}}", STATIC),
        ("agentPoolProfiles: [{name: a, kubeletConfig: {cpuManagerPolicy: static}}, {name: b}]", STATIC),
        ("numalign: {config: {cpuManagerPolicy: static}}", STATIC),
        (FLUX, STATIC),
        (ARGO, {"pinAdopted": False}),
        ("{apiVersion: v1, kind: ConfigMap, data: {config.yaml: 'observeOnly: true'}}", {"observeOnly": True}),
        (EKSCTL, STATIC),
        (K3D, {**STATIC, "kubeReserved": {"cpu": "1"}}),
        ("k3s agent --kubelet-arg=cpu-manager-policy=static --kubelet-arg v=2", STATIC),
        ("k3d cluster create --k3s-arg '--kubelet-arg=cpu-manager-policy=static@agent:*'", STATIC),
        ("minikube start --extra-config=kubelet.cpu-manager-policy=static --extra-config=apiserver.v=4", STATIC),
        ("root 1 /usr/bin/kubelet --cpu-manager-policy=static --v=2", STATIC),
        (EKS_ANYWHERE, STATIC),
        (RANCHER, STATIC),
        ("[{name: a, kubeletConfig: null}, {name: b, kubeletConfig: {cpuManagerPolicy: static}}]", STATIC),
        (EKSCTL_BOTTLEROCKET, STATIC),
        ("{kind: Pod}\n---\n{kind: KubeletConfiguration, cpuManagerPolicy: static}\n---\n", STATIC),
        ("---\n\n---\ncpuManagerPolicy: static\n---\n", STATIC),
    ],
)
def test_variants_of_the_forms_are_read(text: str, same: dict[str, Any]) -> None:
    """Lists and mappings of flags, patches, lists, several documents, empty ones among them."""
    found = of(text)
    assert {key: value for key, value in found.settings.shown().items() if key in found.named} == same


WITHIN = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
"""
DATA_URL = "data:text/plain;charset=utf-8;base64," + b64encode(WITHIN.encode()).decode()
POLICY = """
apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata: {name: p}
spec:
  policy-templates:
  - objectDefinition:
      kind: KubeletConfig
      apiVersion: machineconfiguration.openshift.io/v1
      metadata: {name: w}
      spec: {kubeletConfig: {cpuManagerPolicy: static}}
"""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (POLICY, "spec.kubeletConfig of KubeletConfig w in spec.policy-templates[0].objectDefinition of Policy p"),
        (json.dumps({"write_files": [{"content": "a"}, {"content": WITHIN}]}), "write_files[1].content"),
        (
            json.dumps({"storage": {"files": [{"contents": {"source": DATA_URL}}]}}),
            "storage.files[0].contents.source",
        ),
        (f"#!/bin/sh\ncat <<EOF >a\nb: 1\nEOF\ncat >b <<'END'\n{WITHIN}END\n", "here-document[0]"),
    ],
    ids=["policy", "cloud-init", "ignition", "script"],
)
def test_a_form_inside_a_document_of_another_kind_is_read(text: str, place: str) -> None:
    """Policies of a fleet, cloud-init, Ignition and scripts hold the known forms as objects or texts."""
    found = of(text)
    assert found.taken == place
    assert found.named == {"cpuManagerPolicy"}


def test_a_part_of_its_own_goes_before_what_other_documents_hold() -> None:
    """A KubeletConfiguration counts, and a text elsewhere that holds another one is named as left out."""
    found = of(f"{WITHIN}topologyManagerPolicy: restricted\n---\n{json.dumps({'kind': 'X', 'a': WITHIN})}")
    assert found.named == {"cpuManagerPolicy", "topologyManagerPolicy"}
    assert "left out: a of X" in found.sentences


def test_flags_go_before_the_file_and_gates_come_together() -> None:
    """As for the kubelet."""
    found = of(
        "{apiVersion: kubeadm.k8s.io/v1beta3, kind: JoinConfiguration, nodeRegistration: {kubeletExtraArgs: "
        "{topology-manager-policy: restricted, feature-gates: A=true}}}\n---\n"
        "{kind: KubeletConfiguration, topologyManagerPolicy: none, featureGates: {B: true}}"
    ).settings
    assert (str(found.topology_manager_policy), found.feature_gates) == ("restricted", {"A": True, "B": True})


def test_several_node_configs_are_merged_in_their_order() -> None:
    """As nodeadm does with the parts of the user data."""
    document = "{{apiVersion: node.eks.aws/v1alpha1, kind: NodeConfig, spec: {{kubelet: {{config: {{{}}}}}}}}}\n---\n"
    text = document.format("systemReserved: {cpu: 1}, cpuManagerPolicy: none")
    text += document.format("systemReserved: {memory: 1Gi}, cpuManagerPolicy: static")
    found = of(text).settings
    assert (found.system_reserved, str(found.cpu_manager_policy)) == ({"cpu": 1000, "memory": 1000 << 30}, "static")


NODE_CLASS = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: n}
spec:
  kubelet: {kubeReserved: {cpu: 2}}
  userData: |
    [settings.kubernetes]
    cpu-manager-policy = "static"
    [settings.kubernetes.kube-reserved]
    cpu = "1"
    memory = "1Gi"
"""


def test_a_node_class_of_karpenter_goes_over_its_user_data() -> None:
    """spec.kubelet wins, key by key."""
    found = of(NODE_CLASS)
    assert found.settings.kube_reserved == {"cpu": 2000, "memory": 1000 << 30}
    assert found.taken == "settings.kubernetes in spec.userData of EC2NodeClass n with spec.kubelet"


def test_shared_cpus_of_a_profile_are_reserved_too() -> None:
    """With mixed CPUs, as the operator does."""
    text = (FOLDER / "openshift-performanceprofile.yaml").read_text()
    text = text.replace("reserved: 0-1}", "reserved: 0-1, shared: 2-3}") + "  workloadHints: {mixedCpus: true}\n"
    assert str(of(text).settings.reserved_system_cpus) == "0-3"


def test_the_agent_takes_the_same_forms_and_obeys_their_kill_switch(tmp_path: Path) -> None:
    """The chart's values as --config; something wrong beside the switch does not hide it (safety rule S3)."""
    file = tmp_path / "values.yaml"
    file.write_text("config: {observeOnly: true, cpuManagerPolcy: static}\n")
    assert observe_only_set(file)
    last, wrong = instead_of(file, Settings(), SettingsError("config", "wrong"))
    assert last.observe_only
    assert "observeOnly: true" in wrong


NESTED = "apiVersion: v1\nkind: ConfigMap\ndata:\n  a: |\n"


def nested(levels: int) -> str:
    """A ConfigMap in a text in a ConfigMap in a text ..."""
    text = "kind: KubeletConfiguration\n"
    for _ in range(levels):
        text = NESTED + "".join(f"    {line}\n" for line in text.splitlines())
    return text


@pytest.mark.parametrize(
    "text",
    [
        nested(150),
        "kubelet-arg: [" + "kubelet-extra-args=" * 20000 + "]",
        "KUBELET_EXTRA_ARGS=" + "A=" * 200_000 + "--cpu-manager-policy=static",
        "kubelet-arg:\n" + "- a=b\n" * 5000,
        "MIME-Version: 1.0\n" + "Content-Type: multipart/mixed; boundary=x\n\n--x\n" * 3000,
        "kubeletConfig: {" + ", ".join(f"topologyManagerPolic{number}: a" for number in range(9000)) + "}",
        "kind: X\nmetadata: {name: " + "a" * 100_000 + "}\nspec: " + "{a: " * 40 + "{cpuManagerPolicy: b}" + "}" * 40,
        "#!/bin/sh\n" + "cat <<E\ncpuManagerPolicy: a\n" * 20_000,
        json.dumps({"a": ["cpuManagerPolicy: [" * 30] * 1500}),
    ],
    ids=["nested", "flags-in-flags", "variables", "flags", "mail", "names", "deep", "here", "texts"],
)
def test_a_hostile_document_ends_in_one_sentence(text: str) -> None:
    """What nests, doubles or is long costs no stack and little time, and is refused like any other."""
    assert len(text) < LARGEST
    try:
        said = " ".join(of(text).sentences)
    except SettingsError as error:
        said = str(error)
    assert len(said) < 3000
    assert "\n" not in said
