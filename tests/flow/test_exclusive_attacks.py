"""What a tenant may try with numalign.io/exclusive and numalign.io/mixed: odd texts, late changes, odd containers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.core.explain.serialize import lines
from agent.core.request.exclusive import EXCLUSIVE
from agent.host.cpu_files import CpuFiles
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.standin import container_id
from agent.model.idset import CpuSet
from agent.model.podspec import pod_from
from agent.node.explaining import explained
from tests.flow.exclusive_world import ALL, MEMORY, SIDE, Node, burstable, guaranteed
from tests.flow.world import container, manifest

MANY = ",".join(["app"] * 100_000)
LETTER = "\u0430pp"
"""Looks like app, and begins with a Cyrillic letter."""
BROKEN = (
    "app\n",
    "app,",
    ",",
    "",
    "app;side",
    "APP",
    "*",
    "app\x00",
    LETTER,
    "app\u200b",
    "-app",
    "app,none",
    "app side",
)
BOTH: dict[str, Any] = {"exclusive": "auto", "mixed": "app"}


def cpus(text: str) -> CpuSet:
    """A set from the kernel's list format."""
    return CpuSet.parse(text)


@pytest.mark.parametrize("text", [*BROKEN, MANY], ids=lambda each: ascii(each)[:12])
def test_a_text_that_is_no_list_gives_nothing_and_is_told_in_one_sentence(tmp_path: Path, text: str) -> None:
    """By pod or by namespace: exclusive gives no CPUs, mixed no shared ones; the sentence is short."""
    node = Node(tmp_path / "tree")
    node.come(burstable("e", exclusive=text))
    node.come(burstable("n", created=1), {EXCLUSIVE: text})
    node.come(burstable("m", created=2, exclusive="auto", mixed=text))
    assert [bool(node.holds(uid)) for uid in ("e", "n", "m")] == [False, False, True]
    assert node.engine.ledger.cpus.mixed == {}
    for uid, name in (("e", "exclusive"), ("n", "exclusive"), ("m", "mixed")):
        (problem,) = node.engine.pods[uid].settings.problems
        assert problem.annotation == f"numalign.io/{name}"
        assert len(str(problem)) < 400
        assert node.message(uid).count(f"numalign.io/{name}") == 1
        assert node.message(uid).isascii()


def test_a_name_that_is_said_often_counts_once(tmp_path: Path) -> None:
    """Doubles in a list are no mistake and give nothing twice."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", exclusive="app,app, app", mixed="app,app"))
    assert len(cpus(node.holds("b"))) == 4
    assert node.engine.ledger.cpus.mixed == {"b": {"app": node.engine.node.reserved}}


MODES = pytest.mark.parametrize("compatibility", ["fixed", "kubelet"])
WISHES = pytest.mark.parametrize("wish", ["run", "fail", "wait", "evict"])


@MODES
@WISHES
@pytest.mark.parametrize("cpu", ["4", "20"], ids=["fits", "fits-no-node"])
def test_an_annotation_that_comes_while_the_pod_runs_moves_and_refuses_nobody(
    tmp_path: Path, compatibility: str, wish: str, cpu: str
) -> None:
    """Who runs is adopted as it is (S4): nothing of it is decided anew; explain says that it came too late."""
    settings = {
        "compatibility": compatibility, "topologyManagerPolicy": "single-numa-node", "onMisalignment": wish, **MEMORY,
    }  # fmt: skip
    node = Node(tmp_path / "tree", settings=settings)
    node.come(burstable("b", cpu=cpu))
    before = {each.path: (each.cpus, each.mems) for each in node.cgroups.observe().cgroups}
    late: tuple[dict[str, Any], ...] = (BOTH, {"exclusive": "app"}, {}, BOTH)
    for notes in late:
        node.see(burstable("b", cpu=cpu, **notes))
        assert node.holds("b") == ""
        assert node.engine.ledger.memory.blocks == {}
    assert node.ears.refused_ == {}
    assert "b" in node.engine.ledger.pods
    assert {each.path: (each.cpus, each.mems) for each in node.cgroups.observe().cgroups} == before
    found = explained(node.engine.snapshot, "b")
    assert found is not None
    assert any("changed after its admission, which counts for a new pod" in each for each in lines(found))


@MODES
def test_a_late_annotation_takes_nothing_from_who_holds_cpus_and_memory(tmp_path: Path, compatibility: str) -> None:
    """The kubelet's answers would count an ended init container's memory again (D4), and refuse a pod that runs."""
    settings = {
        "compatibility": compatibility,
        "onMisalignment": "fail",
        "topologyManagerPolicy": "restricted",
        **MEMORY,
    }
    node = Node(tmp_path / "tree", settings=settings)
    memory = str(node.machine.nodes[1].memory * 3 // 5)
    inits = [container("init", cpu="2", memory=memory)]
    body = manifest("g", container("app", cpu="2", memory=memory), inits=inits)
    node.come(body)
    held, ledger = node.holds("g"), node.engine.ledger
    assert held
    late: tuple[dict[str, Any], ...] = ({"exclusive": "none"}, {"mixed": "app"}, {"policy": "single-numa-node"})
    for notes in late:
        body = manifest("g", container("app", cpu="2", memory=memory), inits=inits, **notes)
        node.see(body)
        assert (node.holds("g"), node.ears.refused_) == (held, {})
    assert node.engine.ledger.memory == ledger.memory


def test_a_container_that_starts_again_has_what_its_pod_was_admitted_with(tmp_path: Path) -> None:
    """The annotations say something else meanwhile: set, environment and folder are as at its first start."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", **BOTH))
    (tmp_path / "state").mkdir()
    files = CpuFiles(tmp_path / "state")
    files.begin()
    decisions = EngineDecisions(node.engine, lambda _address: Usable(()), files=files)

    def answer() -> tuple[Any, ...]:
        files.follow(node.engine.snapshot, node.engine.at_rest)
        return tuple(ask("b", name) for ask in (decisions.desired, decisions.mixed, decisions.folders)
                     for name in ("app", "side"))  # fmt: skip

    first = answer()
    later: tuple[dict[str, Any], ...] = (
        {}, {"exclusive": "none", "mixed": "side"}, {"exclusive": "side", "mixed": "typo"},
    )  # fmt: skip
    for notes in later:
        node.see(burstable("b", **notes))
        assert answer() == first


def test_an_ephemeral_container_shares_whatever_it_is_called(tmp_path: Path) -> None:
    """`kubectl debug` in a pod with own and shared CPUs: it has the pool, named or not, and is told of no CPUs."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", exclusive="auto", mixed="app,debugger"))
    assert "names debugger, which is no container of the pod" in node.message("b")
    number = container_id("b", "debugger")
    node.tree.add_container("b", number)
    for names in ({}, {number: ("b", "debugger")}):
        node.engine.containers_seen(names)
        node.engine.reconcile()
        (found,) = (each for each in node.cgroups.observe().cgroups if each.container_id == number)
        assert found.effective_cpus == node.engine.ledger.cpus.shared == ALL - cpus(node.holds("b"))
    decisions = EngineDecisions(node.engine, lambda _address: Usable(()))
    want = decisions.desired("b", "debugger")
    assert (want.exclusive, want.shared, decisions.mixed("b", "debugger")) == (False, CpuSet(), {})
    assert decisions.folders("b", "debugger") == ()


def test_a_container_of_another_name_inherits_nothing(tmp_path: Path) -> None:
    """The app of a pod is renamed (a manifest in a folder, same uid): what was held stays, the new name shares."""
    node = Node(tmp_path / "tree")
    node.come(burstable("b", **BOTH))
    held, books = node.holds("b"), node.engine.ledger.cpus
    body = burstable("b", exclusive="auto", mixed="new")
    body["spec"]["containers"][0]["name"] = "new"
    node.engine.pods_seen([pod_from(body)])
    assert node.engine.ledger.cpus == books
    decisions = EngineDecisions(node.engine, lambda _address: Usable(()))
    assert decisions.mixed("b", "new") == {}
    want = decisions.desired("b", "new")
    assert want.cpus is not None
    assert (want.exclusive, want.cpus.isdisjoint(cpus(held))) == (False, True)


def test_init_containers_and_sidecars_that_are_mixed_have_their_turn(tmp_path: Path) -> None:
    """In order: each has its own CPUs and the reserved ones; what an ended one leaves goes on to later ones, once."""
    node = Node(tmp_path / "tree")
    inits = [container("i1", cpu="3"), container("proxy", cpu="1", restartPolicy="Always"), container("i2", cpu="2")]
    names = "i1,i2,proxy,app"
    body = manifest("b", container("app", cpu="4"), container("log", cpu="", memory="") | SIDE, inits=inits,
                    exclusive="auto", mixed=names)  # fmt: skip
    node.see(body)
    reserved = node.engine.node.reserved
    for name in ("i1", "proxy", "i2", "app"):
        node.start("b", name)
        assert cpus(node.effective("b", name)) == cpus(node.holds("b", name)) | reserved
        if name.startswith("i"):
            node.tree.remove_container("b", container_id("b", name))
            node.engine.container_gone(container_id("b", name))
    node.start("b", "log")
    proxy, app = (cpus(node.holds("b", name)) for name in ("proxy", "app"))
    assert (proxy & app, len(proxy | app)) == (CpuSet(), 5)
    assert cpus(node.effective("b", "log")) == node.engine.ledger.cpus.shared == ALL - proxy - app


@pytest.mark.parametrize(("init", "app"), [("15", "16"), ("9", "16"), ("1", "2")])
def test_what_an_init_container_leaves_is_no_second_grant(tmp_path: Path, init: str, app: str) -> None:
    """The kubelet keeps both where others fit the app better: 31 CPUs of a pod that requested 16. Here it has 16."""
    node = Node(tmp_path / "tree")
    side = container("log", cpu="", memory="") | SIDE
    node.see(manifest("b", container("app", cpu=app), side, inits=[container("init", cpu=init)], exclusive="auto"))
    held = CpuSet.union(node.engine.ledger.cpus.assigned["b"].values())
    assert len(held) == len(cpus(node.holds("b"))) == int(app)
    node.come(guaranteed("g", created=1))
    assert len(node.engine.ledger.cpus.shared) == len(ALL) - int(app) - 2
