"""What hostile pods' DRA claims were allocated, and what drivers of their node publish: some of it as it should be.

A tenant writes his claims, the scheduler their status, a driver its slices. Here each of them may be of any shape.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from agent.kube.claims import uses_of
from tests.flow.claims import claim, device, result, slices
from tests.hostile.kinds import DIGITS, LITERALS, Object
from tests.hostile.objects import SPACE, Hostile
from tests.matrix.node import Node

FOLLOWING = {"dra": {"enabled": True}}
"""Settings that follow claims."""
(DEEP,) = LITERALS
_ODD: tuple[Callable[[], object], ...] = (
    lambda: claim(result("d0")), lambda: claim(result("d1"), result("d0", "r/s")),
    lambda: claim(*(result(f"x{each}") for each in range(10_000))), lambda: claim(result("d1", adminAccess="yes")),
    lambda: claim(result("x" * 253, "q" * 253, shareID="s" * 10_000)), lambda: claim({"device": DIGITS}, {}),
    lambda: claim(result("d1", driver="../x", adminAccess=True)), lambda: {"status": {"allocation": DEEP}},
    lambda: {"status": {"allocation": {"devices": {"results": {"0": result("d1")}}}}}, lambda: {"status": [DEEP]},
    lambda: {"status": {"allocation": {"devices": {"results": [None, 7, [], result("d1")]}}}}, dict,
)  # fmt: skip


def published() -> Iterator[Object]:
    """ResourceSlices: one that says where two devices are, and others."""
    numa = "resource.kubernetes.io/numaNode"
    yield slices(device("d0", 0), device("d1", 1))
    yield slices(*(device(f"x{each}", each) for each in range(5000)), driver="many.example.com")
    odd: tuple[object, ...] = (
        {"int": -1},
        {"int": 10**30},
        {"ints": list(range(3000))},
        {"ints": [0, "1", None]},
        {"int": True},
        7,
        DEEP,
        {"int": 1.5},
        {"string": "1"},
        {"ints": {}},
    )
    named = [{"name": f"o{number}", "attributes": {numa: each}} for number, each in enumerate(odd)]
    named += [{"name": "p0", "attributes": {"resource.kubernetes.io/pciBusID": {"string": "../../0000:01:00.0"}}}]
    yield slices(*named, {"name": {}}, {"attributes": []}, driver="odd.example.com")
    yield slices(device("d1", 0), generation=-(10**20))
    yield {"spec": {"driver": [], "pool": "p", "devices": {}}}
    yield {"spec": {"driver": "gpu.example.com", "pool": {"name": "n", "generation": "9"}, "devices": [None, DEEP]}}


def publish(node: Node) -> None:
    """The drivers' part."""
    for number, each in enumerate(published()):
        spec = {**each["spec"], "nodeName": node.name}
        node.api.put("resourceslices", {"spec": spec, "metadata": {"name": f"s{number}"}})


def allocate(node: Node, pod: Hostile) -> None:
    """The scheduler's part, for the claims of a pod that the agent would ask for."""
    dice = random.Random(pod.uid)
    for name in sorted({use.claim for use in uses_of(pod.body)}):
        body = dice.choice(_ODD)()
        assert isinstance(body, dict)
        node.api.put("resourceclaims", {**body, "metadata": {"namespace": SPACE, "name": name}})
