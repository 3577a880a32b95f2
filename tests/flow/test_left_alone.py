"""S21: nothing that the agent needs is refused, held, failed or evicted by it: itself, and who is left alone (S2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.core.request.exempt import CRITICAL, Exemptions
from agent.errors import SandboxRefused
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from agent.kube.watch.intake import Intake
from agent.model.podspec import pod_from
from agent.model.rules import OnMisalignment
from agent.node.wait_queue import queue_of
from tests.flow.world import World, container, manifest
from tests.patience import PATIENCE
from tests.unit.reporter_cases import Queue, reporter

STATIC = {f"kubernetes.io/config.{part}": "a-uid-of-its-manifest" for part in ("hash", "mirror")}
NEEDED: dict[str, dict[str, Any]] = {
    "numalign": {"namespace": "default"},
    "numalign-helper": {"namespace": "numalign-system"},
    "kube-proxy": {"namespace": "kube-system"},
    "kube-apiserver": {"annotations": STATIC, "namespace": "default"},
    "cni": {"priority": CRITICAL + 1000, "namespace": "cni"},
}
"""Pods and what makes them needed; the first is the agent's own, wherever it lives."""
WISHES = [OnMisalignment.FAIL, OnMisalignment.EVICT, OnMisalignment.WAIT]


def pod(name: str, wish: str = "", *, namespace: str = "default", annotations: Any = (), priority: int = 0) -> Any:  # noqa: ANN401 - a manifest's
    """A pod that asks for whole CPUs of one node, and for the worst if there are none."""
    body = manifest(name, container(cpu="3"), created=5, namespace=namespace, policy="single-numa-node")
    body["metadata"]["annotations"] |= {
        **({"numalign.io/on-misalignment": wish} if wish else {}),
        **dict(annotations),
    }
    body["spec"]["priority"] = priority
    return body


class Node(World):
    """A node of four CPUs that one pod has filled, with its ends towards the API and the runtime."""

    def __init__(self, folder: Path, wish: OnMisalignment, *included: str) -> None:
        self.rule = Exemptions(("kube-system", "numalign-system"), included, "numalign")
        super().__init__(
            folder, machine="1 socket x 1 node x 4 cores x 1 thread", settings={"onMisalignment": wish.value},
            exempt=lambda pod: self.rule.why(pod),  # noqa: PLW0108 - the rule changes
        )  # fmt: skip
        self.queue = Queue()
        self.reporter = reporter(self.queue, wish, exempt=self.rule.why)
        self.reporters.add(self.reporter)
        self.decisions = EngineDecisions(self.engine, lambda _address: Usable(()))
        self.driver = NriDriver(self.decisions)
        self.engine.pods_listed(set())
        self.run(manifest("full", container(cpu="3")))

    def hear(self, *bodies: Mapping[str, Any]) -> None:
        """The watch brings pods."""
        self.pods |= {each["metadata"]["uid"]: pod_from(each) for each in bodies}
        intake = Intake(self.engine, self.reporter)
        for body in bodies:
            intake.pod_changed(body)
        intake.start()
        intake.stop(PATIENCE)
        self.check()

    def starts(self, uid: str) -> bool:
        """The runtime asks whether a pod may start; one that may starts as it is."""
        found = self.pods[uid]
        sandbox = Sandbox(f"s-{uid}", found.name, found.namespace, uid)
        try:
            self.driver.run_sandbox(sandbox)
        except SandboxRefused:
            return False
        assert self.driver.create_container(sandbox, RuntimeContainer(f"c-{uid}", sandbox.id, "app")) == Adjustment()
        return True

    def untouched(self, uid: str) -> None:
        """Now and after any time, nothing is done to a pod."""
        assert self.starts(uid)
        self.engine.changed(self.node(), replace(self.engine.switches, waiting_limit=-1.0))
        self.engine.reconcile()
        assert self.engine.pods[uid].refusal is None
        assert uid not in {each.pod.uid for each in queue_of(self.engine.pods, self.engine.node.rules)}
        assert self.holds(uid) == ""
        assert uid not in {who for _, who in self.queue.actions}
        assert self.starts(uid)


@pytest.mark.parametrize("wish", WISHES)
def test_s21_who_asks_for_the_same_is_refused(tmp_path: Path, wish: OnMisalignment) -> None:
    """What the other tests rest on: a pod that nobody needs does not get in here, whoever says what becomes of it."""
    node = Node(tmp_path / "tree", wish)
    node.hear(pod("app"), pod("job", wish))
    assert [node.engine.pods[uid].refusal is not None for uid in ("app", "job")] == [True, True]
    assert node.starts("app") is node.starts("job") is (wish is OnMisalignment.EVICT)
    assert len(node.queue.actions) == (0 if wish is OnMisalignment.WAIT else 2)


@pytest.mark.parametrize("asked", ["", *WISHES])
@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("name", NEEDED)
def test_s21_on_a_full_node_who_is_needed_starts(tmp_path: Path, name: str, wish: OnMisalignment, asked: str) -> None:
    """Whatever node and pod ask for, by the watch: not refused, not in line, not pinned, nothing done to it."""
    node = Node(tmp_path / "tree", wish)
    node.hear(pod(name, asked, **NEEDED[name]))
    node.untouched(name)


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("name", NEEDED)
def test_s21_the_runtime_may_come_before_the_watch(tmp_path: Path, name: str, wish: OnMisalignment) -> None:
    """At the gate it is decided like that too; and without the API, of which nothing is known then, it starts."""
    node = Node(tmp_path / "tree", wish)
    found = pod_from(pod(name, wish, **NEEDED[name]))
    node.pods[name] = found
    assert node.starts(name), "the API server does not answer: perhaps it is what is to start"
    node.decisions.start()
    node.driver = NriDriver(node.decisions, find=lambda *_: node.decisions.decide(found, within=10.0))
    assert node.starts(name)
    assert node.decisions.stop(PATIENCE)
    assert name in node.engine.pods
    node.untouched(name)


@pytest.mark.parametrize("wish", WISHES)
def test_s21_the_agents_own_pod_cannot_be_named(tmp_path: Path, wish: OnMisalignment) -> None:
    """Where includedPods names everybody, the agent's own pod is left alone all the same."""
    node = Node(tmp_path / "tree", wish, "*")
    node.hear(pod("numalign", wish), pod("kube-proxy", wish, namespace="kube-system"))
    assert node.engine.pods["kube-proxy"].refusal is not None
    node.untouched("numalign")


@pytest.mark.parametrize("wish", WISHES)
def test_s21_a_full_disk_refuses_nobody_who_is_needed(tmp_path: Path, wish: OnMisalignment) -> None:
    """Nor one who asks for nothing: they start, and are in the ledger as soon as it can be saved."""
    node = Node(tmp_path / "tree", wish)
    node.store.full = "cannot be saved: No space left on device"
    plain = manifest("plain", container(cpu="500m", memory=""), created=6)
    node.hear(*(pod(name, wish, **more) for name, more in NEEDED.items()), plain)
    everybody = [*NEEDED, "plain"]
    assert node.engine.snapshot.unwritable
    for uid in everybody:
        node.untouched(uid)
    assert node.engine.ledger.pods.keys() == {"full"}
    node.store.full = ""
    node.engine.reconcile()
    assert node.engine.ledger.pods.keys() == {"full", *everybody}
    for uid in everybody:
        node.untouched(uid)


def test_s21_who_waits_is_let_go_when_the_settings_name_it(tmp_path: Path) -> None:
    """A pod that the agent turns out to need waits for room; excludedNamespaces ends that at once, not its limit."""
    node = Node(tmp_path / "tree", OnMisalignment.WAIT)
    node.hear(pod("cni", namespace="cni"))
    assert not node.starts("cni")
    node.rule = replace(node.rule, namespaces=("kube-system", "cni"))
    node.engine.changed(node.node(), node.engine.switches)
    node.untouched("cni")
    node.end("full")
    node.engine.pods_gone(["full"])
    node.untouched("cni")
