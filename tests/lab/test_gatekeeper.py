"""The gatekeeper in front of a real kubelet: kube-scheduler binds a hundred pods, and their node refuses none."""

from __future__ import annotations

import random

import pytest

from agent.forecast.gate.values import GATE
from tests.cluster.control_plane import ApiError
from tests.lab import agent
from tests.lab.cluster import Lab, Object
from tests.lab.needs import PromiseError
from tests.lab.node import KIND
from tests.lab.pods import pod
from tests.lab.report import record
from tests.patience import until

GATEKEEPER = {
    "enabled": True, "nodeSelector": {KIND: "numalign"}, "resources": {"requests": {"cpu": "0", "memory": "64Mi"}},
}  # fmt: skip
"""As the agent's pod, a replica asks for no CPU."""
SWITCH = f"/api/v1/namespaces/{agent.NAMESPACE}/configmaps/numalign-gate"
DEFAULT = "/api/v1/namespaces/default/pods"
SIZES = (1, 2, 3)
"""Whole CPUs; a NUMA node has four, and one of them is reserved on the first."""
AT_ONCE = 9
"""Pods that run or wait: more than fit, so that sums and NUMA nodes differ."""
PODS = 100
STARTED, LONG = 300.0, 3000


class Stream:
    """Pods come, AT_ONCE of them at a time; where more are to come, the first one that runs ends.

    Attributes:
        waited: names of pods that no node took when they came.
        ran: names of pods whose container ran.
        refused: what the node said, by the pod's name.
        elsewhere: pods of `ran` that the gatekeeper had not chosen the node for.
    """

    def __init__(self, lab: Lab, count: int) -> None:
        self.lab, self.count = lab, count
        self.draw, self.came = random.Random(44), 0
        self.waited, self.ran, self.elsewhere = set[str](), set[str](), set[str]()
        self.refused = dict[str, str]()

    def over(self) -> bool:
        """Take one step; True when each pod that was to come ran or was refused."""
        items = self.lab.plane.call("GET", DEFAULT)["items"]
        live = [each for each in items if "deletionTimestamp" not in each["metadata"]]
        for each in live:
            self._note(each)
        failed = [each["metadata"]["name"] for each in live if each["status"].get("phase") == "Failed"]
        running = sorted(each["metadata"]["name"] for each in live if each["metadata"]["name"] in self.ran)
        full = len(live) - len(failed) >= AT_ONCE or self.came == self.count
        for name in (*failed, *running[: 1 if full else 0]):
            self.lab.delete(name)
        if self.came < self.count and not full:
            self._come()
        return len(self.ran) + len(self.refused) == self.count

    def run(self) -> None:
        """Let it come to its end; each pod has STARTED seconds to run after the one before."""
        done = -1

        def went_on() -> bool:
            return self.over() or len(self.ran) + len(self.refused) > done

        while not self.over():
            done = len(self.ran) + len(self.refused)
            what = f"pod {done + 1} of {self.count} to run"
            until(went_on, what, within=STARTED, pause=0.3, fault=PromiseError)

    def clear(self) -> None:
        """Delete all of its pods, also those that no node has, and wait until the node has none."""
        for each in self.lab.plane.call("GET", DEFAULT)["items"]:
            self.lab.delete(each["metadata"]["name"])
        self.lab.clear(self.lab.numalign)

    def _come(self) -> None:
        notes = {"numalign.io/gate": "true"}
        body = pod(f"gated-{self.came:03}", cpu=str(self.draw.choice(SIZES)), annotations=notes)
        self.lab.create(body, self.lab.numalign, scheduled=True)
        self.came += 1

    def _note(self, body: Object) -> None:
        name, status = body["metadata"]["name"], body["status"]
        told = [each for each in status.get("conditions", ()) if each["type"] == GATE]
        if any(each["status"] == "False" for each in told):
            self.waited.add(name)
        if status.get("phase") == "Failed":
            self.refused[name] = f"{status.get('reason')}: {status.get('message')}"
        if any("running" in each["state"] for each in status.get("containerStatuses", ())):
            self.ran.add(name)
            if not any(each["message"].startswith(f"{self.lab.numalign.name}: ") for each in told):
                self.elsewhere.add(name)


def switched_on(lab: Lab) -> bool:
    """Whether a gatekeeper leads and can decide: it then has its ConfigMap."""
    try:
        lab.plane.call("GET", SWITCH)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


@pytest.mark.timeout(LONG)
def test_a_hundred_pods_come_and_their_node_refuses_none(publishing: Lab) -> None:
    """More of them are there than fit: some wait behind the gate, and each runs on the node that was chosen."""
    lab, node = publishing, publishing.numalign
    agent.install(lab.plane, {**node.plan.config, **agent.PUBLISHED}, gatekeeper=GATEKEEPER)
    until(lambda: switched_on(lab), "the gatekeeper to decide", within=STARTED, pause=0.5, fault=PromiseError)
    gated = Stream(lab, PODS)
    gated.run()
    assert not gated.refused
    assert len(gated.ran) == PODS
    assert not gated.elsewhere
    assert gated.waited
    gated.clear()
    record("pods behind the gate that their node refused", f"0 of {PODS}")
    record("pods of these that waited behind the gate", len(gated.waited))
