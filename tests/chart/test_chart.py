"""The chart, rendered by the real Helm: valid for every Kubernetes that it names, generated parts up to date."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent import __version__
from agent.app.fleet.source import READER
from agent.cli import release, run
from agent.settings import Settings, parse
from tests.chart import schemas
from tests.peers import tools
from tools import image
from tools.chart import rendering
from tools.chart.rendering import CHART, Object, of_kind

pytestmark = [pytest.mark.go, pytest.mark.usefixtures("charting")]
CASES = sorted(CHART.glob("ci/*-values.yaml"))
EVERYTHING = CHART / "ci" / "everything-values.yaml"
ACCESS = rendering.ROOT / "deploy" / "access"
names = pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem.removesuffix("-values"))


def defaults() -> list[Object]:
    """The objects of a default installation."""
    return rendering.objects(rendering.render())


def arguments(found: list[Object], container: int = 0) -> list[str]:
    """Of the agent."""
    spec = of_kind(found, "DaemonSet")["spec"]["template"]["spec"]
    args: list[str] = spec["containers"][container]["args"]
    return args


@names
def test_helm_lints_without_a_word(values: Path) -> None:
    """Strictly, and with the schema."""
    assert "0 chart(s) failed" in rendering.helm("lint", "--strict", CHART, "--values", values)


@names
@pytest.mark.parametrize("version", schemas.MODULES)
def test_every_object_is_what_kubernetes_knows(values: Path, version: str, tmp_path: Path) -> None:
    """No unknown field, no key twice, for the oldest and the newest Kubernetes, one between, and a beta."""
    (tmp_path / "all.yaml").write_text(rendering.render("--values", values, version=version))
    location = f"{schemas.folder(version)}/{schemas.LOCATION}"
    done = subprocess.run(
        [tools.kubeconform(), "-strict", "-summary", "-schema-location", location, tmp_path / "all.yaml"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Errors: 0, Skipped: 0" in done.stdout


def test_an_older_kubernetes_is_refused() -> None:
    """The admission policy needs tokens that name their node."""
    with pytest.raises(rendering.HelmError, match=r"requires kubeVersion: >=1\.32"):
        rendering.render(version="1.31.9")


def test_what_is_generated_is_up_to_date() -> None:
    """Schema, table of values, CRD and the manifests for kubectl: `make chart` would change nothing."""
    stale = [path for path, text in rendering.generated().items() if path.read_text("utf-8") != text]
    assert stale == [], "run `make chart`"


def test_helm_unittest() -> None:
    """One assertion per option, and a snapshot of the defaults: charts/numalign/tests."""
    done = subprocess.run(
        [tools.unittest(), "--strict", CHART], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_version() -> None:
    """Chart, application, image and wheel carry the same."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} == {__version__}
    spec = of_kind(defaults(), "DaemonSet")["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == image.NAME


def test_s1_the_defaults_are_the_agents_own() -> None:
    """What the chart writes into the configuration changes nothing, and reads without a warning."""
    text = of_kind(defaults(), "ConfigMap")["data"]["config.yaml"]
    settings, ignored = parse(yaml.safe_load(text))
    assert (settings, ignored) == (Settings(), ())
    shown = settings.shown()
    assert {key: shown[key] for key in ("cpuManagerPolicy", "memoryManagerPolicy", "topologyManagerPolicy")} == {
        "cpuManagerPolicy": "static", "memoryManagerPolicy": "None", "topologyManagerPolicy": "best-effort",
    }  # fmt: skip
    assert (shown["onMisalignment"], shown["enforcement"]) == ("run", "auto")


@names
def test_every_configuration_is_one_that_the_agent_takes(values: Path) -> None:
    """What the schema lets through is understood."""
    found = rendering.objects(rendering.render("--values", values))
    parse(yaml.safe_load(of_kind(found, "ConfigMap", "numalign")["data"]["config.yaml"]))


@names
def test_the_arguments_are_those_of_the_command_line(values: Path) -> None:
    """Agent and hook start with options that exist."""
    found = rendering.objects(rendering.render("--values", values))
    args = arguments(found)
    assert args[0] == "run"
    run.command.make_context("run", [each.replace("$(POD_IP)", "10.0.0.1") for each in args[1:]])
    for job in (each for each in found if each["kind"] == "Job" and each["metadata"]["name"].endswith("-uninstall")):
        hook = job["spec"]["template"]["spec"]["containers"][0]["args"]
        context = release.command.make_context("release", hook[1:])
        assert (hook[0], context.params["cluster"], context.params["daemonset"]) == ("release", True, "numalign")
        assert context.params["within"] < job["spec"]["activeDeadlineSeconds"] < 300, "Helm's own patience"


def _bare(found: Object) -> Object:
    """Without labels and Helm's annotations."""
    metadata = {key: value for key, value in found["metadata"].items() if key not in ("labels", "annotations")}
    return {**found, "metadata": metadata}


def test_rights_are_those_that_were_proven() -> None:
    """Roles, policy and hook are, word for word, what tests/cluster tries on a real API server."""
    text = rendering.render(
        "--set",
        "rbac.eviction=true,rbac.cleanup=true,config.dra.enabled=true,config.fleet.publish=true,gatekeeper.enabled=true",
    )
    found = {(each["kind"], each["metadata"]["name"]): _bare(each) for each in rendering.objects(text)}
    for file in sorted(ACCESS.glob("*.yaml")):
        for each in yaml.safe_load_all(file.read_text()):
            mine = found[each["kind"], each["metadata"]["name"]]
            mine.pop("automountServiceAccountToken", None)
            if each["kind"].startswith("Cluster") or each["kind"].startswith("Validating"):
                each["metadata"].pop("namespace", None)
            assert mine == each, file.name


def test_every_releases_role_for_people_ends_as_the_hint_says() -> None:
    """`numalign fleet` cannot know the release's name: what it says of the ClusterRole holds for any."""
    publish = ("--set", "config.fleet.publish=true")
    for name, more in (("numalign", ()), ("r" * 53, ()), ("other", ("--set", "fullnameOverride=mine"))):
        found = rendering.objects(rendering.render(*publish, *more, name=name))
        assert sum(each["kind"] == "ClusterRole" and each["metadata"]["name"].endswith(READER) for each in found) == 1
    assert yaml.safe_load((ACCESS / "fleet-reader.yaml").read_text())["metadata"]["name"].endswith(READER)


def test_a_release_of_another_name_reaches_its_own_objects() -> None:
    """Accounts, references, selectors and the policy's user follow release and namespace; names stay short enough."""
    name = "r" * 53
    found = rendering.objects(
        rendering.render("--set", "rbac.eviction=true,rbac.cleanup=true", name=name, namespace="elsewhere")
    )
    policy = of_kind(found, "ValidatingAdmissionPolicy")
    account = of_kind(found, "DaemonSet")["spec"]["template"]["spec"]["serviceAccountName"]
    users = (f"'system:serviceaccount:elsewhere:{each}'" for each in (account, f"{account}-uninstall"))
    assert policy["spec"]["matchConditions"][0]["expression"] == f"request.userInfo.username in [{', '.join(users)}]"
    of_kind(found, "ServiceAccount", account)
    for each in found:
        assert len(each["metadata"]["name"]) <= 63
        for subject in each.get("subjects", []):
            of_kind(found, "ServiceAccount", subject["name"])
            assert subject["namespace"] == "elsewhere"
        if "roleRef" in each:
            of_kind(found, each["roleRef"]["kind"], each["roleRef"]["name"])


def _apart(*flags: str) -> str:
    """The rule on whom the agent's token may not end."""
    text = rendering.render(*(part for each in flags for part in ("--set", each)))
    variables = of_kind(rendering.objects(text), "ValidatingAdmissionPolicy")["spec"]["variables"]
    return str(next(each["expression"] for each in variables if each["name"] == "apart"))


def test_whom_the_policy_guards_follows_the_configuration() -> None:
    """The namespaces that are left alone, and the agents' own; where some pods are named all the same, that alone.

    Finding 19.
    """
    assert _apart().startswith("request.namespace in ['kube-system', 'numalign-system'] || ")
    several = _apart("config.excludedNamespaces={monitoring,numalign-system}")
    assert several.startswith("request.namespace in ['monitoring', 'numalign-system'] || ")
    assert _apart("config.includedPods={kube-system/dns-*}") == "request.namespace == 'numalign-system'"


def test_selectors_carry_no_version_and_pods_roll_for_nothing_else() -> None:
    """A new chart of the same application replaces no pod; hook and test pods are not the DaemonSet's."""
    found = defaults()
    daemonset = of_kind(found, "DaemonSet")
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    selector = daemonset["spec"]["selector"]["matchLabels"]
    assert selector.items() <= labels.items()
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(labels)
    for each in found:
        if each["kind"] in ("Job", "Pod"):
            own = each["metadata"] if each["kind"] == "Pod" else each["spec"]["template"]["metadata"]
            assert not selector.items() <= own["labels"].items()


def test_no_restart_for_another_configuration() -> None:
    """The agent follows its file: the pod's template does not change with it."""
    other = rendering.objects(rendering.render("--set", "config.onMisalignment=wait"))
    assert of_kind(other, "DaemonSet") == of_kind(defaults(), "DaemonSet")
    assert of_kind(other, "ConfigMap") != of_kind(defaults(), "ConfigMap")


ALLOWED = {
    "agent: hostPath /sys, read only", "agent: hostPath /sys/fs/cgroup", "agent: hostPath /var/lib/numalign",
    "agent: hostPath /var/run/nri, read only", "agent: hostPath /var/lib/kubelet/pod-resources, read only",
    "agent: hostPath /var/lib/kubelet/plugins_registry, read only", "agent: uid 0",
}  # fmt: skip
"""What the level "restricted" of Pod Security forbids and the chart needs. Nothing else."""
ASKED = {f"agent: hostPath /var/lib/kubelet/{each}_manager_state, read only" for each in ("cpu", "memory")}
"""What it needs with kubelet.stateFiles."""


@names
def test_pods_are_restricted_but_for_what_is_written_down(values: Path) -> None:
    """Pod Security's level restricted, with the exceptions above; kubernetes.io/docs/concepts/security."""
    found = rendering.objects(rendering.render("--values", values))
    exceptions = {word for _, spec in rendering.pod_specs(found) for word in _unrestricted(spec)}
    assert exceptions <= ALLOWED | ASKED
    assert exceptions.isdisjoint(ASKED) or values == EVERYTHING
    if values.stem.startswith("default"):
        assert exceptions == ALLOWED, "one is not needed any more"


def _unrestricted(spec: Object) -> list[str]:
    """What of a pod is not restricted."""
    words = [f"{key} is on" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    hosts = {each["name"]: each["hostPath"] for each in spec.get("volumes", []) if "hostPath" in each}
    pod = spec["securityContext"]
    for container in spec["containers"]:
        name, context = container["name"], {**pod, **container["securityContext"]}
        words += [f"{name}: {key} is {context.get(key)}" for key, want in _WANTED.items() if context.get(key) != want]
        if context.get("capabilities") != {"drop": ["ALL"]}:
            words.append(f"{name}: has capabilities")
        if context.get("runAsUser") == 0 or not context.get("runAsNonRoot"):
            words.append(f"{name}: uid 0")
        for mount in container.get("volumeMounts", []):
            if mount["name"] in hosts:
                assert hosts[mount["name"]].get("type"), (
                    "a hostPath of any type may be made as a folder by the runtime"
                )
                words.append(
                    f"{name}: hostPath {hosts[mount['name']]['path']}" + ", read only" * bool(mount.get("readOnly"))
                )
        assert "cpu" not in container["resources"].get("limits", {}) or container["name"] == "pinned"
    return words


_WANTED: dict[str, Any] = {
    "privileged": False, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip


GUARDS = [
    (("serviceAccount.create=false",), "serviceAccount.name: is empty"),
    (("rbac.create=false",), "uninstall.serviceAccountName: is empty"),
    (("serviceAccount.create=false", "serviceAccount.name=mine"), "uninstall.serviceAccountName: is empty"),
    (("uninstall.serviceAccountName=numalign",), "uninstall.serviceAccountName: is the agents' account"),
    (("config.onMisalignment=evict",), "config.onMisalignment: evict needs rbac.eviction: true"),
    (("config.refusals.deleteAfter=24h",), "config.refusals.deleteAfter: needs rbac.cleanup: true"),
    (("config.enforcement=nri", "nri.enabled=false"), "config.enforcement: nri needs nri.enabled: true"),
    (("gatekeeper.enabled=true",), "gatekeeper.enabled: needs config.fleet.publish: true"),
    (("priorityClass.create=true",), "priorityClass.name: names of system- classes"),
    (("monitoring.podMonitor.enabled=true",), "install the Prometheus operator first"),
    (("monitoring.prometheusRule.enabled=true",), "install the Prometheus operator first"),
    (("confg.onMisalignment=run",), "additional properties 'confg' not allowed"),
    (("config.cpuManagerPolicyy=static",), "additional properties 'cpuManagerPolicyy' not allowed"),
    (("config.onMisalignment=sometimes",), "must be one of 'fail', 'wait', 'evict', 'run'"),
    (("monitoring.podmonitor.enabled=true",), "additional properties 'podmonitor' not allowed"),
    (("image.digest=latest",), "does not match pattern"),
    (("statePath=state",), "does not match pattern"),
    (("updateStrategy.maxUnavailable=0",), "minimum: got 0, want 1"),
    (("updateStrategy.maxSurge=1",), "additional properties 'maxSurge' not allowed"),
    (("uninstall.timeoutSeconds=1",), "minimum: got 1, want 5"),
]


@pytest.mark.parametrize(("flags", "why"), GUARDS, ids=[each[0][-1] for each in GUARDS])
def test_what_cannot_work_is_refused_in_one_sentence(flags: tuple[str, ...], why: str) -> None:
    """Before anything is installed."""
    with pytest.raises(rendering.HelmError, match=re.escape(why)):
        rendering.render(*(part for each in flags for part in ("--set", each)))


def test_monitoring_needs_no_switch_where_the_operator_is() -> None:
    """With its API, the guard is silent."""
    text = rendering.render(
        "--set", "monitoring.podMonitor.enabled=true", "--api-versions", "monitoring.coreos.com/v1"
    )
    assert "kind: PodMonitor" in text
