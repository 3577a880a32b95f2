"""Memory policies (numalign.io/memory-policy): by a runc that sets them, and by Debian's, which ignores them.

Both create containers of the same node and containerd: a pod asks for the newer one by its RuntimeClass.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.kube.pod_report import CONDITION
from tests.lab import agent, builds, report
from tests.lab.cluster import Lab
from tests.lab.needs import LabError, PromiseError
from tests.lab.node import NEWER, NEWER_PLACE, Node
from tests.lab.pods import Object, pod
from tests.patience import until

ON = {"nri": {"memoryPolicy": True}}
CLASS = {
    "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": NEWER}, "handler": NEWER,
}  # fmt: skip
TOLD, TRIES = 240.0, 3
MEMORY = "1200Mi"
"""More than one NUMA node has, and less than two: the pods get two each."""
SHOWN = {"interleave": "interleave", "preferred": "prefer (many)", "bind": "bind"}


def release(lab: Lab, *, allowed: bool) -> None:
    """The agent's pod with or without the right to read policies: another pod, which is waited for."""
    old = agent.pod_of(lab.numalign)
    config = {**lab.numalign.plan.config, **(ON if allowed else {})}
    agent.install(lab.plane, config, **({"nri": {"readMemoryPolicies": True}} if allowed else {}))

    def replaced() -> bool:
        new = agent.pod_of(lab.numalign)
        return new is not None and (old is None or new["metadata"]["uid"] != old["metadata"]["uid"])

    until(replaced, "another pod of the agent", within=TOLD, pause=0.5, fault=PromiseError)
    agent.wait_ready(lab.numalign)


@pytest.fixture(scope="module")
def node(alone: Lab) -> Iterator[Node]:
    """The node that numalign serves, with the feature and a newer runc beside Debian's; afterwards as before."""
    found = alone.numalign
    alone.clear(found)
    found.guest.send(builds.runc(), NEWER_PLACE)
    found.run(f"chmod 755 {NEWER_PLACE}")
    alone.plane.ensure(CLASS)
    release(alone, allowed=True)
    for name in ("runc", NEWER_PLACE):
        report.record(f"{name} of the memory policies", found.run(f"{name} --version | head -1").split()[-1])
    yield found
    alone.clear(found)
    release(alone, allowed=False)


def asking(name: str, wish: str, **spec: str) -> Object:
    """A pod with memory of two NUMA nodes that asks for a policy."""
    notes = {"numalign.io/memory-policy": wish, "numalign.io/policy": "best-effort"}
    return pod(name, cpu="2", memory=MEMORY, annotations=notes, **spec)


def started(lab: Lab, node: Node, wish: str, **spec: str) -> str:
    """Let such a pod run; its name. One for which the emulated machine was too slow to answer NRI comes again."""
    for number in range(TRIES):
        name = f"policy-{wish}-{number}"
        made = lab.create(asking(name, wish, **spec), node, wait=True)
        if not agent.late(node, name):
            return name
        lab.delete(name)
        lab.wait_gone(made)
    raise LabError(f"the answer to NRI came late {TRIES} times")


def shown(lab: Lab, node: Node, name: str) -> tuple[str, str]:
    """The kernel's policy of a pod's program, as it reads it itself, and its memory nodes."""
    asked = "head -1 /proc/1/numa_maps; grep Mems_allowed_list /proc/1/status"
    first, second = lab.inside(node, name, "c", asked).splitlines()
    return first.partition(" ")[2].partition(" file=")[0], second.split()[-1]


def message(lab: Lab, name: str, word: str) -> str:
    """What the pod's condition says, once it has a word."""
    found = ""

    def there() -> bool:
        nonlocal found
        conditions = lab.pod(name)["status"].get("conditions", [])
        found = next((each["message"] for each in conditions if each["type"] == CONDITION), "")
        return word in found

    until(there, lambda: f'"{word}" in the condition of {name}: {found}', within=TOLD, pause=1, fault=PromiseError)
    return found


@pytest.mark.parametrize("wish", SHOWN)
def test_a_runc_that_has_policies_sets_it_and_the_kernel_shows_it(alone: Lab, node: Node, wish: str) -> None:
    """Over the nodes of the container's cpuset; `preferred` over those of its own CPUs, which are among them."""
    name = started(alone, node, wish, runtimeClassName=NEWER)
    policy, mems = shown(alone, node, name)
    assert mems.count("-") + mems.count(",") == 1, f"two NUMA nodes: {mems}"
    kind, _, nodes = policy.partition(":")
    assert kind == SHOWN[wish]
    assert nodes == mems or (wish == "preferred" and nodes in mems), (policy, mems)
    assert f"container c has the memory policy {policy}" in message(alone, name, "memory policy")
    alone.delete(name)


def test_a_runc_without_policies_is_told_as_not_in_force(alone: Lab, node: Node) -> None:
    """Debian's runs the container with the kernel's default; the condition names the runtime and its version."""
    alone.create(asking("policy-none", "interleave"), node, wait=True)
    policy, _ = shown(alone, node, "policy-none")
    assert policy == "default"
    said = message(alone, "policy-none", "memory policy")
    assert 'of container c is not in force: the kernel shows "default", and the runtime is containerd ' in said
    assert builds.CONTAINERDS[node.plan.runtime].removeprefix("v") in said
    alone.delete("policy-none")
