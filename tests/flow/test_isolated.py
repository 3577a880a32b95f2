"""S5 through the engine: CPUs that the kernel isolates, and a resize that would empty the shared pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.cli import group
from agent.core.admission.node import Node
from agent.core.request.isolated import is_mixed
from agent.model.idset import CpuSet
from agent.model.outcome import Admitted
from agent.model.podspec import pod_from
from agent.node.explaining import explained
from tests.examples import examples
from tests.flow.world import World, container, manifest
from tests.world.nodes import managers_of


def node(folder: Path, machine: str, **settings: Any) -> World:  # noqa: ANN401 - a document's values
    """A listed node with a pod that shares."""
    world = World(folder, machine=machine, settings=settings)
    world.engine.pods_listed({"web", "db", "next"})
    world.run(manifest("web", container(cpu="", memory=""), created=1))
    return world


def test_s5_nobody_shares_an_isolated_cpu(tmp_path: Path) -> None:
    """Nothing balances load there: who shares never gets one, before a grant, beside it, or after its end."""
    world = node(tmp_path, "2 sockets x 1 node x 4 cores x 1 thread, isolated 2-3,6-7")
    assert world.effective("web") == "0-1,4-5"
    world.run(manifest("db", container(cpu="2"), created=2))
    assert (world.effective("db"), world.effective("web")) == ("2-3", "0-1,4-5")
    world.run(manifest("next", container(cpu="3"), created=3))
    assert (world.effective("next"), world.effective("web")) == ("4-6", "0-1")
    for uid in ("db", "next"):
        world.end(uid)
        world.engine.pods_gone([uid])
    world.engine.reconcile()
    assert world.effective("web") == "0-1,4-5"
    world.check()


@pytest.mark.parametrize("containers", [4, 8, 15])
def test_a_pod_with_many_containers_is_not_placed_many_times(
    monkeypatch: pytest.MonkeyPatch, containers: int
) -> None:  # fmt: skip
    """Grants that cannot but be mixed are looked for with few tries, as each places all containers of the pod."""
    halves = ",".join(f"{8 * node}-{8 * node + 3}" for node in range(16))
    managers = managers_of(f"2 sockets x 8 nodes x 8 cores, isolated {halves}", {
        "reservedSystemCPUs": "127", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16"},
    })  # fmt: skip
    tries, place = list[object](), Node.attempt

    def counted(*given: Any) -> Any:  # noqa: ANN401 - as it is
        tries.append(given)
        return place(*given)

    monkeypatch.setattr(Node, "attempt", counted)
    big = [container(f"c{number}", cpu="5") for number in range(containers)]
    admitted = managers.admit(managers.start(), pod_from(manifest("db", *big)))
    assert isinstance(admitted, Admitted)
    assert 4 <= len(tries) <= 2 + 64 // containers


@pytest.mark.parametrize(("strict", "held", "shared"), [("false", "1-3", "0"), ("true", "1-2", "3")])
def test_s5_a_resize_does_not_empty_the_pool(tmp_path: Path, strict: str, held: str, shared: str) -> None:
    """Under strict reservation the last shared CPU is not given to a pod that grows, which says why."""
    options = {"strict-cpu-reservation": strict}
    world = node(tmp_path, "1 socket x 1 node x 4 cores x 1 thread", cpuManagerPolicyOptions=options)
    world.run(manifest("db", container(cpu="2"), created=2))
    world.see(manifest("db", container(cpu="3"), created=2))
    assert (world.effective("db"), world.effective("web")) == (held, shared)
    why = world.engine.ledger.pods["db"].why.get("app", "")
    assert ("the shared pool would become empty" in why) is (strict == "true")


SIXTEEN = "1 socket x 1 node x 16 cores x 1 thread, isolated 9-15"
TWO = "2 sockets x 1 node x 8 cores x 1 thread, isolated 4-7"
ON_THEM = "the kernel does not balance threads on them"


@pytest.mark.parametrize(
    ("asks", "held"),
    [
        ({}, "8-13"),  # node 0 has three CPUs of one kind and four of the other; node 1 is as good
        ({"isolated_cpus": "avoid"}, "8-13"),
        ({"policy": "none"}, "1-3,8-10"),
        ({"scope": "pod"}, "8-13"),
    ],
)
def test_a_grant_is_not_mixed_where_another_node_is_as_good(tmp_path: Path, asks: dict[str, Any], held: str) -> None:
    """Six CPUs are of one kind though the node that is chosen first has six free ones of both."""
    world = node(tmp_path, TWO)
    world.run(manifest("db", container(cpu="6"), created=2, **asks))
    assert world.effective("db") == held
    assert world.engine.ledger.pods["db"].aligned["app"] is (asks.get("policy") != "none")
    assert "isolated" not in world.report("db").message


def test_each_container_of_a_pod_has_one_kind(tmp_path: Path) -> None:
    """The first one gets isolated CPUs, and the second one ordinary ones of the other node."""
    world = node(tmp_path, TWO)
    world.run(manifest("db", container("a", cpu="3"), container("b", cpu="4"), created=2))
    assert (world.effective("db", "a"), world.effective("db", "b")) == ("4-6", "8-11")
    assert world.report("db").message.endswith(f"; CPUs 4-6 are isolated: {ON_THEM}")


def test_a_place_that_is_worse_is_no_reason_to_part_the_kinds(tmp_path: Path) -> None:
    """With its device on node 0 a pod gets CPUs of both kinds there, and is told which do not balance threads."""
    nics = {"resource": "numalign.io/nic", "class": "02", "namespaces": ["*"]}
    world = node(tmp_path, f"{TWO}, nic on 0", devices=[nics])
    world.run(manifest("db", container(cpu="6"), created=2, devices="numalign.io/nic=1"))
    assert world.effective("db") == "1-6"
    said = f"CPUs 1-6 on NUMA node 0, policy best-effort; CPUs 4-6 are isolated: {ON_THEM}"
    assert world.report("db").message.endswith(said)


def test_the_annotation_asks_for_isolated_cpus_or_declines_them(tmp_path: Path) -> None:
    """An ordinary pod declines them; one that polls requires them; a third prefers what is left on the other node."""
    world = node(tmp_path, SIXTEEN)
    world.run(manifest("db", container(cpu="7"), created=2, isolated_cpus="avoid"))
    world.run(manifest("next", container(cpu="6"), created=3, isolated_cpus="require"))
    assert (world.effective("db"), world.effective("next")) == ("1-7", "9-14")
    assert world.report("next").message.endswith(f"; CPUs 9-14 are isolated: {ON_THEM}")
    for wish, said in (
        ("require", "only isolated CPUs count (numalign.io/isolated-cpus: require)"),
        ("avoid", "isolated CPUs do not count (numalign.io/isolated-cpus: avoid)"),
    ):
        world.see(manifest(wish, container(cpu="2"), created=4, isolated_cpus=wish))
        assert world.holds(wish) == ""
        refusal = world.ears.refused_[wish]
        assert said in f"{refusal.message} {refusal.details}"
        assert said in refusal.plain  # tables, explain and the page: the numbers alone would be false
    near = World(tmp_path / "near", machine="2 sockets x 1 node x 8 cores x 1 thread, isolated 12-15")
    near.see(manifest("p", container(cpu="3")), manifest("q", container(cpu="3"), created=1, isolated_cpus="prefer"))
    near.see(manifest("r", container(cpu="3"), created=2, isolated_cpus="prefer"))
    assert [near.holds(uid) for uid in "pqr"] == ["0-2", "12-14", "3-5"]


def test_the_kubelet_does_not_look_at_isolation(tmp_path: Path) -> None:
    """Under its answers the annotation is not followed, which is told; so are the isolated CPUs that it has."""
    world = node(tmp_path, SIXTEEN, compatibility="kubelet-1.37")
    world.run(manifest("db", container(cpu="9"), created=2, isolated_cpus="avoid"))
    assert world.effective("db") == "1-9"
    (problem,) = world.engine.pods["db"].settings.problems
    assert str(problem) == (
        'numalign.io/isolated-cpus: "avoid" is not followed: the answers are those of kubelet-1.37, which does not '
        "look at isolation; the pod runs as without it"
    )
    assert world.report("db").message.endswith("CPU 9 is isolated: the kernel does not balance threads on it")


@pytest.mark.parametrize(
    ("asks", "first", "then"),
    [
        ({"isolated_cpus": "avoid"}, "1-2", "1-2,8-11"),  # node 0 has two more of its kind beside four isolated ones
        ({}, "4-5", "4-7"),
    ],
)
def test_a_growth_keeps_to_its_kind(tmp_path: Path, asks: dict[str, Any], first: str, then: str) -> None:
    """A resize adds CPUs of the kind that the container has; beyond its node where its wish leaves none there."""
    world = node(tmp_path, f"{TWO.replace('4-7', '3-7')}" if asks else TWO)
    world.run(manifest("db", container(cpu="2"), created=2, **asks))
    assert world.effective("db") == first
    world.see(manifest("db", container(cpu="6" if asks else "4"), created=2, **asks))
    assert world.effective("db") == then


@pytest.mark.parametrize("wish", ["avoid", "require"])
def test_a_growth_that_lacks_cpus_of_its_kind_says_which_count(tmp_path: Path, wish: str) -> None:
    """CPUs of the other kind are free: the numbers alone would be false."""
    world = node(tmp_path, SIXTEEN)
    world.run(manifest("db", container(cpu="6"), created=2, isolated_cpus=wish))
    world.see(manifest("db", container(cpu="9"), created=2, isolated_cpus=wish))
    assert len(CpuSet.parse(world.effective("db"))) == 6
    assert f"(numalign.io/isolated-cpus: {wish}); it keeps CPUs" in world.engine.ledger.pods["db"].why["app"]


def test_a_wish_that_came_late_is_told(tmp_path: Path) -> None:
    """A running pod is not moved for it."""
    world = node(tmp_path, SIXTEEN)
    world.run(manifest("db", container(cpu="2"), created=2))
    world.see(manifest("db", container(cpu="2"), created=2, isolated_cpus="avoid"))
    assert world.effective("db") == "9-10"
    found = explained(world.engine.snapshot, "db")
    assert found is not None
    assert 'numalign.io/isolated-cpus: "avoid" came after the pod was placed' in " ".join(found.notes)
    assert f"CPUs 9-10 are isolated: {ON_THEM}" in found.notes


def test_run_names_pods_that_have_isolated_cpus(tmp_path: Path) -> None:
    """Below the tables, with the pod's name; and what they are to this node."""
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "web.yaml").write_text(yaml.safe_dump(manifest("web", container(cpu="2"))), "utf-8")
    arguments = [
        "run",
        "--pods",
        str(tmp_path / "pods"),
        "--once",
        "--root",
        f"synthetic:{SIXTEEN}",
        "--no-processes",
    ]
    for answers, pool, cpus in (
        ("fixed", "in no shared pool", "9-10"),
        ("kubelet-1.37", "CPUs like any other here", ""),
    ):
        config = tmp_path / f"{answers}.yaml"
        config.write_text(yaml.safe_dump({"compatibility": answers, "reservedSystemCPUs": "0"}), "utf-8")
        state = str(tmp_path / answers)
        found = CliRunner().invoke(
            group, [*arguments, "--config", str(config), "--state-dir", state], env={"COLUMNS": "200"}
        )
        assert f"CPUs 9-15 are isolated by the kernel's command line: {pool}" in found.output
        assert (f"note: default/web: CPUs {cpus} are isolated: {ON_THEM}" in found.output) == bool(cpus)


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_no_container_is_mixed_without_need(data: st.DataObject) -> None:
    """Pods come and go: where a container is mixed, its pod lies worse, or is refused, by asking for either kind."""
    isolated = data.draw(st.sets(st.integers(1, 15), min_size=2, max_size=10))
    words = ",".join(map(str, sorted(isolated)))
    policy = data.draw(st.sampled_from(["best-effort", "restricted", "single-numa-node"]))
    machine = f"2 sockets x 1 node x 4 cores x 2 threads, isolated {words}"
    managers = managers_of(machine, {"topologyManagerPolicy": policy, "reservedSystemCPUs": "0"})
    ledger, there = managers.start(), list[str]()
    for number in range(data.draw(st.integers(1, 8))):
        gone = data.draw(st.sampled_from([None, *there]))
        if gone is not None:
            ledger = managers.release(ledger, gone)
            there.remove(gone)
        body = container(cpu=str(data.draw(st.integers(1, 7))))
        bodies = [manifest(f"p{number}", body)]
        bodies += [manifest(f"p{number}", body, isolated_cpus=wish) for wish in ("avoid", "require")]
        pods = [pod_from(each) for each in bodies]
        plain, *wishes = (managers.admit(ledger, pod) for pod in pods)
        if not isinstance(plain, Admitted):
            assert not any(isinstance(each, Admitted) for each in wishes)
            continue
        uid = pods[0].uid
        own = plain.ledger.grant(uid, "app").cpus or CpuSet()
        if is_mixed(own, managers.machine.isolated):
            nodes = len(managers.machine.nodes_of(own))
            for each in (other.ledger for other in wishes if isinstance(other, Admitted)):
                worse = len(managers.machine.nodes_of(each.grant(uid, "app").cpus or CpuSet())) > nodes
                assert worse or each.pods[uid].aligned["app"] < plain.ledger.pods[uid].aligned["app"]
        ledger = plain.ledger
        there.append(uid)
