"""`numalign fleet` against a real API server: pages, the rights that it needs, and what it says where they lack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from agent.app.fleet.reading import read_fleet
from agent.app.fleet.source import READER, ApiSource
from agent.cli import group
from agent.errors import KubeError
from agent.kube.caller import Caller
from agent.kube.topology_crd import PATH
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import account, bind, cluster_role, node, rule
from tests.unit.test_fleet import served
from tests.world.fleets import pod, summary_of, topology

pytestmark = pytest.mark.cluster
DEPLOY = Path(__file__).parents[2] / "deploy"
HAS_IT = f"is missing: the ClusterRole whose name ends in {READER} has it"
NAMES = tuple(f"fleet-{number}" for number in range(5))


@pytest.fixture(scope="module")
def fleet(cluster: ControlPlane) -> ControlPlane:
    """Five nodes that published, one pod that nobody bound, and three accounts: reader, half, nobody."""
    crd = yaml.safe_load((DEPLOY / "crds/noderesourcetopologies.yaml").read_text())
    role = yaml.safe_load((DEPLOY / "access/fleet-reader.yaml").read_text())
    cluster.ensure(crd, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}, role)
    cluster.wait_served(PATH)
    for name in NAMES:
        cluster.create(node(name))
        cluster.call("POST", PATH, topology(name, summary_of(served(3))))
    body = pod("open", cpu="4", tolerations=[{"operator": "Exists"}])  # no kubelet: the nodes are not ready
    body["metadata"].pop("uid")
    cluster.create(
        account("fleet-all"), account("fleet-half"), account("fleet-none"),
        cluster_role("fleet-half", rule("topology.node.k8s.io", "noderesourcetopologies", "list")),
        bind("fleet-half", "fleet-half"), bind(role["metadata"]["name"], "fleet-all"), account("default", "shop"),
        body,
    )  # fmt: skip
    for name in ("fleet-all", "fleet-half"):
        cluster.wait_allowed(
            cluster.token("default", name), "list", "noderesourcetopologies", "topology.node.k8s.io"
        )  # fmt: skip
    return cluster


def kubeconfig(cluster: ControlPlane, name: str, folder: Path) -> Path:
    """As kubectl has it, of an account."""
    file = folder / f"{name}.yaml"
    server = {"server": cluster.server, "insecure-skip-tls-verify": True}  # its certificate has another name
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1", "kind": "Config", "current-context": "here",
                "clusters": [{"name": "here", "cluster": server}],
                "users": [{"name": name, "user": {"token": cluster.token("default", name)}}],
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": name}}],
            }
        )
    )  # fmt: skip
    return file


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_the_clusterrole_is_enough_and_pages_are_all_read(fleet: ControlPlane, tmp_path: Path) -> None:
    """With no right but the role's, two objects a page: every node is there once, and the pod that waits."""
    told: list[tuple[str, int, int | None]] = []
    caller = Caller(kubeconfig(fleet, "fleet-all", tmp_path), page=2)
    found = read_fleet(ApiSource(caller), lambda *each: told.append(each))
    ours = [each for each in found.nodes if each.name in NAMES]
    assert [each.name for each in ours] == list(NAMES)
    assert all(each.usable_summary is not None and each.body for each in ours)
    assert [each.key for each in found.unbound if each.key.startswith("shop/")] == ["shop/open"]
    assert found.notes == ()
    counts = [done for what, done, _ in told if what == "summaries"]
    assert counts[:2] == [2, 4]
    assert all(total is not None and total >= done for what, done, total in told if what == "summaries")


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_without_rights_the_role_is_named(fleet: ControlPlane, tmp_path: Path) -> None:
    """403 on the topologies ends it with the remedy; on anything else the rest is told, with what is missing."""
    with pytest.raises(
        KubeError,
        match=f"403 .*list noderesourcetopologies is missing: the ClusterRole whose name ends in {READER} has",
    ):
        read_fleet(ApiSource(Caller(kubeconfig(fleet, "fleet-none", tmp_path))))
    found = read_fleet(ApiSource(Caller(kubeconfig(fleet, "fleet-half", tmp_path))))
    assert [each.name for each in found.nodes if each.usable_summary and each.name in NAMES] == list(NAMES)
    assert len(found.notes) == 3
    for note, what in zip(found.notes, ("nodes", "namespaces", "pods"), strict=True):
        assert f"the right to list {what} {HAS_IT}" in note


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_the_command_asks_a_cluster(fleet: ControlPlane, tmp_path: Path) -> None:
    """As people type it: the pod that waits would fit on each of the nodes, by their own decision."""
    file = kubeconfig(fleet, "fleet-all", tmp_path)
    done = CliRunner().invoke(group, ["fleet", "--kubeconfig", str(file), "--context", "here", "-o", "json"])
    assert done.exit_code == 1, done.output
    (waits,) = (each for each in json.loads(done.stdout)["pods"] if each["pod"] == "shop/open")
    assert set(waits["fits"]["nodes"]) >= set(NAMES), waits
    refused = CliRunner().invoke(group, ["fleet", "--kubeconfig", str(file), "--context", "there"])
    assert isinstance(refused.exception, Exception)
    assert "--context: no cluster can be asked" in str(refused.exception)
