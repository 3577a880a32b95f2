"""What the agent's own process logs: each line belongs to its operation, and a machine can read it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.nodes import FAIL, Agent, Make
from tests.nri.peer import Peer
from tests.patience import until

Line = Mapping[str, Any]


def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON whose keys are all different."""
    assert len({key for key, _ in found}) == len(found), found
    return dict(found)


def of(lines: list[Line], beginning: str) -> list[Line]:
    """Those whose message begins so."""
    return [each for each in lines if each["msg"].startswith(beginning)]


@pytest.mark.go
def test_each_line_of_an_operation_carries_its_id(place: Make, program: Path, tmp_path: Path) -> None:
    """A pod's passage, a request of the runtime, a look at the cgroups: all that is logged meanwhile has one id.

    Each operation begins once and ends once, with its seconds and its outcome; no id is used twice.
    """
    node = place()
    with Peer(program, tmp_path / "nri.sock") as peer:
        peer.ask("state", pods=[], containers=[])
        with Agent(node, "--log-level", "debug", "--nri-socket", str(peer.socket)) as agent:
            peer.event("synchronized")
            created = node.create("db", cpu="2")
            uid = node.start("db")
            until(lambda: node.effective(uid) == node.held(uid) != "", what="pinned")
            node.create("wide", cpu="10", annotations=FAIL)
            until(lambda: '"msg": "refused' in agent.words(), what="refused")
            sandbox = {"id": "s", "name": "db", "namespace": node.name, "uid": created["metadata"]["uid"]}
            peer.ask("run_pod_sandbox", pod=sandbox)
            node.tree.kernel_write(f"{node.tree.pod_path(uid)}", "cpuset.cpus", "0-15")
            until(lambda: agent.metric('numalign_operation_seconds_count{operation="reconcile"}') > 0, what="a look")
            node.delete("db")
            agent.settled()
        words = agent.words().splitlines()
    lines: list[Line] = [json.loads(each, object_pairs_hook=pairs) for each in words]
    assert all({"time", "level", "msg"} <= each.keys() for each in lines)
    assert all(re.fullmatch("[0-9a-f]{8}", each.get("op", "00000000")) for each in lines)
    begun, ended = of(lines, "begin "), of(lines, "end ")
    assert Counter(each["op"] for each in begun) == Counter(each["op"] for each in ended)
    assert max(Counter(each["op"] for each in begun).values()) == 1
    names = {each["op"]: each["msg"].removeprefix("begin ") for each in begun}
    assert all(names[each["op"]] == each["msg"].removeprefix("end ") for each in ended)
    assert all({"outcome", "seconds"} <= each.keys() for each in ended)
    assert {"pods", "reconcile", "NRI RunPodSandbox", "NRI Synchronize"} <= set(names.values())
    (admitted,) = [each for each in of(lines, "admitted") if each.get("pod") == f"{node.name}/db"]
    assert names[admitted["op"]] == "pods"
    assert any(each["op"] == admitted["op"] for each in of(lines, "written")), "its cgroups, in the same passage"
    (refused,) = of(lines, "refused")
    assert names[refused["op"]] == "pods"
    assert all("op" in each for each in of(lines, "written"))
