"""The gatekeeper's part of the chart: nothing where it is off, and no more rights than it uses where it is on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from agent.app.gatekeeper.ungate import POLICIES
from agent.cli import gatekeeper, ungate
from agent.forecast.gate.values import GATE, HOSTNAME
from agent.kube.gate import switch
from agent.observe.metrics import GATEKEEPER
from tests.chart.test_rules import promtool
from tools.chart import rendering
from tools.chart.rendering import CHART, Object, of_kind

pytestmark = [pytest.mark.go, pytest.mark.usefixtures("charting")]
ON = ("--set", "gatekeeper.enabled=true,config.fleet.publish=true")
CASES = Path(__file__).with_name("gatekeeper.test.yaml")
NAME, SWITCH, UNGATE = "numalign-gatekeeper", "numalign-gate", "numalign-ungate"


def on(*flags: str, version: str = rendering.NEWEST) -> list[Object]:
    """The objects of an installation with it."""
    return rendering.objects(rendering.render(*ON, *flags, version=version))


@pytest.mark.parametrize("version", [rendering.OLDEST, rendering.NEWEST])
def test_off_it_is_nowhere_byte_for_byte(version: str) -> None:
    """Its other settings change nothing, and no object, argument or right names it."""
    plain = rendering.render(version=version)
    others = "gatekeeper.maxNotIn=7,gatekeeper.maxWait=60,gatekeeper.replicas=3,gatekeeper.autoscaler=karpenter"
    assert rendering.render("--set", others, version=version) == plain
    assert not re.search(r"gatekeeper|numalign-gate|ungate|numalign\.io/fit", plain, re.IGNORECASE)
    kinds = {each["kind"] for each in rendering.objects(plain)}
    assert not {"Deployment", "MutatingAdmissionPolicy", "PodDisruptionBudget"} & kinds


def test_its_arguments_are_those_of_the_command_line() -> None:
    """Replicas and hook start with options that exist, and name the same objects."""
    found = on("--values", str(CHART / "ci" / "gatekeeper-values.yaml"))
    args = of_kind(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    context = gatekeeper.command.make_context(
        "gatekeeper", [each.replace("$(POD_IP)", "10.0.0.1") for each in args[1:]]
    )
    given = context.params
    assert (args[0], given["name"], given["switch"]) == ("gatekeeper", NAME, SWITCH)
    assert (given["max_not_in"], given["max_wait"], given["autoscaler"]) == (16, 120, "cluster-autoscaler")
    labels = dict(each.split("=") for each in given["agents"].split(","))
    assert labels == of_kind(found, "DaemonSet")["spec"]["selector"]["matchLabels"]
    job = of_kind(found, "Job", UNGATE)["spec"]["template"]["spec"]["containers"][0]["args"]
    asked = ungate.command.make_context("ungate", job[1:]).params
    assert (job[0], asked["every"], asked["policy"], asked["namespace"]) == ("ungate", True, True, "numalign-system")


def test_s23_it_may_bind_and_delete_no_pod() -> None:
    """The rights are those of its requests: pods are read and patched, and no subresource but the status."""
    found = on()
    verbs: dict[str, set[str]] = {}
    for each in found:
        if each["kind"] in ("ClusterRole", "Role") and each["metadata"]["name"] in (NAME, UNGATE):
            for rule in each["rules"]:
                for resource in rule["resources"]:
                    verbs.setdefault(resource, set()).update(rule["verbs"])
    assert verbs.pop("pods") == {"get", "list", "watch", "patch"}
    assert verbs.pop("pods/status") == {"patch"}
    assert verbs.pop("configmaps") == {"create", "delete", "list"}
    assert verbs.pop("leases") == {"create", "get", "update"}
    assert verbs.pop("mutatingadmissionpolicybindings") == {"list", "delete"}
    assert set().union(*verbs.values()) == {"get", "list", "watch"}
    assert not [each for each in verbs if "/" in each or each in ("secrets", "bindings")]


def test_the_switch_the_policy_and_the_command_name_one_another() -> None:
    """The binding names the ConfigMap of the leader, a missing one gates no pod, and the hook finds the binding."""
    found = on()
    binding = of_kind(found, "MutatingAdmissionPolicyBinding")
    ref = {"name": SWITCH, "namespace": "numalign-system", "parameterNotFoundAction": "Allow"}
    assert binding["spec"] == {
        "policyName": of_kind(found, "MutatingAdmissionPolicy")["metadata"]["name"],
        "paramRef": ref,
    }
    assert binding["metadata"]["labels"][switch.LABEL] == switch.PART
    assert binding["apiVersion"].partition("/")[0] in POLICIES
    assert binding["kind"].lower() in POLICIES


def test_s23_the_policy_gates_no_pod_that_must_not_wait() -> None:
    """A node, a DaemonSet, a mirror, a critical priority, another scheduler, kube-system, our own namespace."""
    spec = of_kind(on(), "MutatingAdmissionPolicy")["spec"]
    spaces = spec["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert spaces == [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "numalign-system"]}
    ]
    words = {each["name"]: each["expression"] for each in spec["matchConditions"]}
    assert set(words) == {"not-gated-yet", "no-node", "no-daemon", "not-static", "not-critical", "scheduler"}
    assert words["scheduler"].endswith("in ['default-scheduler']")
    assert "2000000000" in words["not-critical"]
    assert spec["failurePolicy"] == "Ignore"
    narrowed = of_kind(on("--set", "gatekeeper.namespaces={a,b}"), "MutatingAdmissionPolicy")["spec"]
    assert narrowed["matchConstraints"]["namespaceSelector"]["matchExpressions"][1]["values"] == ["a", "b"]


def test_the_policy_knows_the_nodes_default() -> None:
    """A pod without annotations is strict where the settings of the nodes are."""
    for flags, policy, otherwise in (
        ((), "best-effort", "run"),
        (("--set", "config.topologyManagerPolicy=restricted,config.onMisalignment=wait"), "restricted", "wait"),
    ):
        variables = of_kind(on(*flags), "MutatingAdmissionPolicy")["spec"]["variables"]
        words = {each["name"]: each["expression"] for each in variables}
        assert words["policy"].endswith(f"'{policy}'")
        assert words["otherwise"].endswith(f"'{otherwise}'")


@pytest.mark.parametrize(
    ("version", "there"), [("1.34.0", False), ("1.35.2", False), ("1.36.0", True), ("1.37.2", True)]
)
def test_an_older_kubernetes_has_no_policy_that_gates(version: str, there: bool) -> None:  # noqa: FBT001 - a parameter
    """MutatingAdmissionPolicy is served from 1.36 on; the limits of the token are there in any case."""
    kinds = [each["kind"] for each in on(version=version)]
    assert ("MutatingAdmissionPolicy" in kinds) is there
    assert kinds.count("ValidatingAdmissionPolicy") == 2
    off = [each["kind"] for each in on("--set", "gatekeeper.admission=false", version=version)]
    assert "MutatingAdmissionPolicy" not in off


def test_the_limits_of_the_token_name_what_the_code_writes() -> None:
    """The gate, the label of nodes, the number of names, and both accounts."""
    found = on("--set", "gatekeeper.maxNotIn=9")
    policy = of_kind(found, "ValidatingAdmissionPolicy", NAME)
    text = yaml.safe_dump(policy["spec"], width=10_000)
    assert GATE in text
    assert HOSTNAME in text
    assert "<= 9" in text
    users = policy["spec"]["matchConditions"][0]["expression"]
    for account in (NAME, UNGATE):
        assert f"'system:serviceaccount:numalign-system:{account}'" in users
    binding = of_kind(found, "ValidatingAdmissionPolicyBinding", NAME)
    assert binding["spec"] == {"policyName": NAME, "validationActions": ["Deny"]}


def test_s23_uninstalling_ungates_before_anything_is_removed() -> None:
    """Its hook comes before that of the agents, with an account of its own."""
    found = on()
    weights = {
        each["metadata"]["name"]: int(each["metadata"]["annotations"]["helm.sh/hook-weight"])
        for each in found if each["kind"] == "Job"
    }  # fmt: skip
    assert weights[UNGATE] < weights["numalign-uninstall"]
    kept = on("--set", "uninstall.release=false")
    of_kind(kept, "Job", UNGATE)


@pytest.mark.needs("promtool")
def test_each_alert_fires_for_its_fault(tmp_path: Path) -> None:
    """Promtool's own tests: both replicas gone, none that decides, what was left behind."""
    rules = CHART / "files" / "gatekeeper" / "rules.yaml"
    told = yaml.safe_load(rules.read_text("utf-8"))
    for group in told["groups"]:
        for rule in group["rules"]:
            rule["annotations"] = {}  # their words are not compared
    bare, cases = tmp_path / "rules.yaml", tmp_path / "cases.yaml"
    bare.write_text(yaml.safe_dump(told), "utf-8")
    cases.write_text(CASES.read_text("utf-8").replace("[RULES]", f"[{bare}]"), "utf-8")
    assert "SUCCESS" in promtool("check", "rules", str(rules))
    promtool("test", "rules", str(cases))


def test_its_alerts_come_with_it_and_name_metrics_that_it_has() -> None:
    """Rendered only where it is enabled."""
    monitoring = ("--set", "monitoring.prometheusRule.enabled=true,monitoring.skipCrdCheck=true")
    rules = of_kind(on(*monitoring), "PrometheusRule")["spec"]["groups"]
    (group,) = [each for each in rules if each["name"] == "numalign-gatekeeper"]
    text = (CHART / "files" / "gatekeeper" / "rules.yaml").read_text("utf-8")
    assert "kubectl numalign ungate --all" in text
    assert [each["for"] for each in group["rules"]] == ["2m", "1m", "1m"]
    known = {spec.name for spec in GATEKEEPER}
    for each in group["rules"]:
        assert set(re.findall(r"numalign_\w+", each["expr"])) <= known
