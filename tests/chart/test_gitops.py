"""The chart as GitOps tools render it: what deploy/docs/gitops.md says of it holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.docs import pages
from tools.chart import rendering
from tools.chart.rendering import CHART, Object, of_kind

pytestmark = [pytest.mark.go, pytest.mark.usefixtures("charting")]
PAGE = pages.DOCS / "gitops.md"
EXAMPLES = [yaml.safe_load(each) for each in pages.blocks(PAGE, "yaml")]
CASES = sorted(CHART.glob("ci/*-values.yaml"))
OPERATOR = ("--api-versions", "monitoring.coreos.com/v1", "--api-versions", "monitoring.coreos.com/v1/PodMonitor")
HOOK, WEIGHT, POLICY = "helm.sh/hook", "helm.sh/hook-weight", "helm.sh/hook-delete-policy"
COMMENT, ACTION = re.compile(r"{{-? */\*.*?\*/ *-?}}", re.DOTALL), re.compile(r"{{.*?}}", re.DOTALL)
LOOSE = re.compile(
    r"\b(lookup|now|date|rand\w+|uuidv4|gen[A-Z]\w+|htpasswd|getHostByName|Release\.(Revision|Is\w+))\b"
)
"""Functions and values of which two renderings may differ."""
names = pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem.removesuffix("-values"))


def notes(found: Object) -> dict[str, str]:
    """An object's annotations."""
    annotations: dict[str, str] = found["metadata"].get("annotations") or {}
    return annotations


def named(found: Object) -> str:
    """Kind and name, to say which object is meant."""
    return f"{found['kind']} {found['metadata']['name']}"


def argo(*flags: str | Path) -> str:
    """As Argo CD's repository server calls Helm: CRDs with the rest, the cluster's APIs as options, tests too."""
    return rendering.render("--include-crds", *OPERATOR, *flags)


@names
def test_two_renderings_are_equal(values: Path) -> None:
    """Nothing drifts by itself: a tool that renders the chart every few minutes finds what it applied."""
    assert argo("--values", values) == argo("--values", values)


def test_nothing_rendered_depends_on_time_chance_or_the_cluster() -> None:
    """`helm template` cannot look into the cluster: only NOTES do, which no tool applies."""
    files = [path for path in (CHART / "templates").rglob("*") if path.is_file() and path.name != "NOTES.txt"]
    code = {path.name: ACTION.findall(COMMENT.sub("", path.read_text("utf-8"))) for path in files}
    found = {(name, each) for name, actions in code.items() for each in actions if LOOSE.search(each)}
    assert len(files) > 10
    assert found == set()


@names
def test_hooks_are_those_that_the_page_names(values: Path) -> None:
    """Whatever is rendered is either applied by a sync, or made before the deletion, or is the test's pod."""
    found = rendering.objects(argo("--values", values))
    hooks = {named(each): notes(each) for each in found if HOOK in notes(each)}
    assert {each[HOOK] for each in hooks.values()} <= {"pre-delete", "test"}
    assert not [word for each in found for word in notes(each) if "argoproj.io" in word], (
        "Helm's hooks would be ignored"
    )
    decommission = {name: each for name, each in hooks.items() if each[HOOK] == "pre-delete"}
    assert {name.partition(" ")[0] for name in decommission} in (
        set(), {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Job"},
    )  # fmt: skip
    jobs = {name: int(each[WEIGHT]) for name, each in decommission.items() if name.startswith("Job ")}
    for name, each in decommission.items():
        job = f"Job {name.partition(' ')[2]}"
        assert name == job or int(each[WEIGHT]) < jobs[job], "where weights count, the job comes after its rights"
    assert {each[POLICY] for each in decommission.values()} <= {"before-hook-creation,hook-succeeded"}


def test_the_page_has_the_annotations_that_are_there_and_no_other() -> None:
    """A row for each annotation by which the chart speaks to a tool."""
    found = rendering.objects(argo("--values", CHART / "ci" / "everything-values.yaml"))
    found += rendering.objects(argo())
    there = {
        f"{key}: {value}" if key in (HOOK, "helm.sh/resource-policy") else key
        for each in found for key, value in notes(each).items() if key.startswith("helm.sh/")
    }  # fmt: skip
    rows = {
        row.split("|")[1].strip().strip("`") for row in PAGE.read_text("utf-8").splitlines() if "`helm.sh/" in row
    }
    assert rows == there - {"helm.sh/hook-output-log-policy"}


def test_the_crd_is_kept() -> None:
    """By an annotation that both tools read."""
    found = rendering.objects(argo("--set", "nodeResourceTopology.installCRD=true"))
    assert notes(of_kind(found, "CustomResourceDefinition"))["helm.sh/resource-policy"] == "keep"


def test_the_page_names_every_kind_that_a_project_must_allow() -> None:
    """Objects without a namespace: Argo CD refuses those that the application's project does not list."""
    flags = ("--set", "openshift.enabled=true", "--values", CHART / "ci" / "everything-values.yaml")
    found = rendering.objects(argo(*flags))
    kinds = {each["kind"] for each in found if "namespace" not in each["metadata"]}
    text = " ".join(pages.prose(PAGE).split())
    assert [kind for kind in kinds if kind not in text] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each["kind"])
def test_the_values_of_the_examples_are_taken(example: Object, tmp_path: Path) -> None:
    """The chart is rendered with them, for the namespace that the example names."""
    spec = example["spec"]
    values = spec["values"] if "values" in spec else spec["source"]["helm"]["valuesObject"]
    space = spec.get("targetNamespace") or spec["destination"]["namespace"]
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    found = rendering.objects(
        rendering.render("--values", tmp_path / "values.yaml", name=example["metadata"]["name"], namespace=space)
    )
    assert "registry.example.com/" in str(of_kind(found, "DaemonSet"))
    assert "observeOnly: true" in of_kind(found, "ConfigMap", "numalign")["data"]["config.yaml"]
    label = {"pod-security.kubernetes.io/enforce": "privileged"}
    (made,) = yaml.safe_load_all((rendering.MANIFESTS / "namespace.yaml").read_text("utf-8"))
    assert made["metadata"]["name"] == space
    assert label.items() <= made["metadata"]["labels"].items()
    if "syncPolicy" in spec:
        assert spec["syncPolicy"]["managedNamespaceMetadata"]["labels"] == label


def test_what_is_rendered_to_release_by_hand_is_the_hook_and_nothing_else() -> None:
    """The same objects that Helm makes before it uninstalls, even where the values switch the hook off."""
    (command,) = [
        each.text for each in pages.commands() if each.page == PAGE and each.text.startswith("helm template")
    ]
    assert "--set uninstall.release=true" in command
    flags = ("--set", "uninstall.release=true", "--show-only", "templates/uninstall.yaml")
    found = rendering.objects(argo(*flags))
    whole = rendering.objects(argo())
    assert {named(each) for each in found} == {named(each) for each in whole if notes(each).get(HOOK) == "pre-delete"}


def test_without_the_hook_no_object_is_left_to_a_tool_that_ignores_it() -> None:
    """With `uninstall.release: false`, as the page advises for Argo CD before 3.4."""
    found = rendering.objects(argo("--set", "uninstall.release=false"))
    assert [named(each) for each in found if notes(each).get(HOOK, "test") != "test"] == []
