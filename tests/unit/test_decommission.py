"""Asking agents to leave, without an API: answers as they are read, nodes as they are counted (safety.md S18)."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from urllib3 import HTTPResponse

from agent.app.offline.decommission import UNTOUCHED, NodeProgress, ReleaseCoordinator, sentence
from agent.cli.release import command
from agent.cli.release_cluster import ReleaseOptions, release_cluster
from agent.core.request.annotations import APART, RELEASE, RELEASED, pod_settings
from agent.errors import KubeError
from agent.kube import client
from agent.kube.client import KubeClient
from agent.kube.decommission import ReleaseAnswer, answer_of, never_began, nodes_with_reports, request_of
from agent.model.podspec import pod_from
from agent.model.rules import CpuOptions, Policy
from tests.docs.pages import ROOT


class Api(KubeClient):
    """A DaemonSet and its pods; each look may find others. Answers come one look after the request."""

    def __init__(self, *looks: list[dict[str, Any]] | KubeError, wanted: int = 1, answering: bool = True) -> None:
        self.looks, self.wanted, self.answering = list(looks), wanted, answering
        self.asked: list[str] = []
        self.pods: list[dict[str, Any]] = []
        self.listed = 0

    def close(self) -> None:
        """Nothing is open."""

    def get(self, path: str, *, query: Any = ()) -> dict[str, Any]:  # noqa: ANN401 - query parameters
        if "daemonsets" in path:
            return {"spec": {"selector": {"matchLabels": {"a": "b"}}},
                    "status": {"desiredNumberScheduled": self.wanted}}  # fmt: skip
        assert query == (("labelSelector", "a=b"),)
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, KubeError):
            raise look
        return {"items": look}

    def call(
        self, method: str, path: str, body: Any = None, *, reader: Any = None, **_: Any,  # noqa: ANN401 - JSON
    ) -> dict[str, Any]:  # fmt: skip
        if (method, path) == ("GET", "/api/v1/pods"):
            self.listed += 1
            text = json.dumps({"kind": "PodList", "metadata": {}, "items": self.pods}).encode()
            return dict(reader(HTTPResponse(io.BytesIO(text), preload_content=False)))
        assert (method, path.rpartition("/")[2]) == ("PATCH", "status")
        name = path.split("/")[-2]
        self.asked.append(name)
        for pod in (pod for look in self.looks if isinstance(look, list) for pod in look):
            if pod["metadata"]["name"] == name:
                request = body["metadata"]["annotations"][RELEASE]
                pod["metadata"]["annotations"] = {RELEASE: request}
                if self.answering:
                    pod["metadata"]["annotations"][RELEASED] = ReleaseAnswer(request, clean=True, writes=3).text()
        return {}


def pod(name: str, node: str, **metadata: str) -> dict[str, Any]:
    """An agent's pod."""
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, **metadata}, "spec": {"nodeName": node}, "status": ready}


def ask(api: Api, within: float = 5) -> tuple[tuple[NodeProgress, ...], list[str], float]:
    """Words, lines and the seconds that it took by its own clock."""
    now, lines = [0.0], list[str]()
    words = ReleaseCoordinator(
        client=api, namespace="s", daemonset="d", request="r1", within=within, tell=lines.append,
        clock=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
    ).all()  # fmt: skip
    return words, lines, now[0]


def test_answers_are_told_as_they_come_and_by_node() -> None:
    """Each pod is asked once; it ends with the last answer."""
    pods = [pod("p2", "n2"), pod("p1", "n1")]
    api = Api(pods, wanted=2)
    words, lines, took = ask(api)
    assert [(word.node, word.released) for word in words] == [("n1", True), ("n2", True)]
    assert sorted(api.asked) == ["p1", "p2"]
    assert "n1: released, 3 writes" in lines
    assert took == 1


def test_a_pod_that_comes_late_is_asked_too() -> None:
    """The node's agent was being replaced when the first look was taken."""
    old, new = pod("old", "n1", deletionTimestamp="t"), pod("new", "n1")
    api = Api([old], [new])
    words, _, took = ask(api)
    assert words[0].released
    assert (api.asked, took) == (["new"], 2)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (pod("p", "n1", deletionTimestamp="t"), "its pod p is being deleted"),
        ({**pod("p", "n1"), "status": {"phase": "Pending"}}, "its pod p is Pending"),
        ({**pod("p", "n1"), "status": {}}, "its pod p is Pending"),
        ({**pod("p", "n1"), "status": {"phase": "Running"}}, "its pod p is not ready: the node may be down"),
        (pod("p", "n1"), "no answer of its pod p"),
    ],
    ids=["deleted", "pending", "no-status", "not-ready", "silent"],
)
def test_who_does_not_answer_in_time_is_named_with_the_reason(given: dict[str, Any], why: str) -> None:
    """And it takes no longer than was allowed."""
    words, _, took = ask(Api([given], answering=False), within=3)
    assert words == (NodeProgress("n1", None, why),)
    assert took == 3


def test_an_answer_to_an_earlier_request_is_none() -> None:
    """The second attempt of an uninstall must not be satisfied by the first one's answers."""
    stale = pod("p", "n1")
    stale["metadata"]["annotations"] = {RELEASED: ReleaseAnswer("r0", clean=True).text()}
    assert not ask(Api([stale], answering=False), within=1)[0][0].released


def test_the_api_may_be_away_for_a_moment_but_not_for_ever() -> None:
    """A refused look is told and tried again; if none succeeds, nobody was asked."""
    words, lines, _ = ask(Api(KubeError(503, "away"), [pod("p", "n1")]))
    assert words[0].released
    assert lines[0] == "API server: 503 away"
    words, _, _ = ask(Api(KubeError(503, "away")), within=2)
    assert words == (NodeProgress("", None, "the API server did not answer: no agent was asked"),)


def test_nodes_without_a_pod_are_counted() -> None:
    """The DaemonSet wants three nodes and has one pod."""
    words, _, _ = ask(Api([pod("p", "n1")], wanted=3), within=1)
    assert [word.released for word in words] == [True, False, False]


@pytest.mark.parametrize(
    "notes",
    [{}, None, "x", {RELEASED: ""}, {RELEASED: "[]"}, {RELEASED: "{"}, {RELEASED: '{"asked":"r","clean":1}'},
     {RELEASED: '{"asked":"r","clean":true,"writes":"many","confined":[],"named":0,"untold":0}'}],
)  # fmt: skip
def test_an_answer_that_cannot_be_read_is_none(notes: object) -> None:
    """Whoever may annotate pods may write nonsense."""
    assert answer_of({"metadata": {"annotations": notes}}) is None
    assert request_of({"metadata": {"annotations": notes if isinstance(notes, Mapping) else None}}) == ""


def test_an_answer_says_what_remains() -> None:
    """The first confined cgroup and how many more, what is only named, and what was not told in time."""
    answer = ReleaseAnswer("r", clean=False, writes=2, confined=("/a: EBUSY", "/b: EBUSY"), named=4, untold=1)
    assert answer_of({"metadata": {"annotations": {RELEASED: answer.text()}}}) == answer
    assert sentence(answer) == (
        "still confined: /a: EBUSY and 1 more; 4 cgroups have everything and name it; 1 pods still carry annotations"
    )


def test_annotations_for_the_runtime_and_for_agents_are_no_typing_errors() -> None:
    """A network plugin's pod that tolerates the missing plugin (nri.md) gets no BadAnnotation."""
    notes = dict.fromkeys(APART, "true")
    metadata = {"uid": "u", "name": "cni", "namespace": "kube-system", "annotations": notes}
    body = {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}
    assert pod_settings(pod_from(body), CpuOptions(), Policy.BEST_EFFORT).problems == ()


WAITING = {"name": "agent", "state": {"waiting": {"reason": "ImagePullBackOff"}}, "lastState": {}, "restartCount": 0}


def unbegun(name: str, node: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """An agent's pod whose image cannot be pulled."""
    return {**pod(name, node), "status": {"phase": "Pending", "containerStatuses": [{**WAITING, **more}]}}


def told_on(node: str, **metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A pod that an agent has told what it has."""
    conditions = [{"type": "Ready"}, {"type": "numalign.io/Aligned", "status": "True"}]
    found = {"name": f"on-{node}", "namespace": "s", "uid": node, **metadata}
    return {"metadata": found, "spec": {"nodeName": node}, "status": {"conditions": conditions}}


@pytest.mark.parametrize("kind", ["numalign.io/Aligned", "numalign.io/Pinned"])
def test_s18_either_condition_says_that_an_agent_was_there(kind: str) -> None:
    """A pod that carries one of them alone is on a node that an uninstallation waits for."""
    one = {**told_on("n1"), "status": {"conditions": [{"type": kind, "status": "True"}]}}
    api = Api([], wanted=0)
    api.pods = [one, {**told_on("n2"), "status": {"conditions": [{"type": "Ready", "status": "True"}]}}]
    assert nodes_with_reports(api) == {"n1"}


def test_s18_nodes_whose_agent_never_began_are_not_waited_for() -> None:
    """A failed first installation: one image that cannot be pulled, one pod that cannot be placed, one refused."""
    unplaced = unbegun("p2", "")
    del unplaced["spec"]["nodeName"]
    field = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    unplaced["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    api = Api([unbegun("p1", "n1"), unplaced], wanted=3, answering=False)
    api.pods = [{**told_on("n1"), "status": {"conditions": [{"type": "Ready"}]}}]
    words, _, took = ask(api, within=120)
    assert [(word.node, word.released, word.untouched) for word in words] == [
        ("n1", True, True), ("n2", True, True), ("", True, True),
    ]  # fmt: skip
    assert took == 10
    assert api.listed == 1


def test_s18_where_the_daemonset_has_no_pod_at_all_there_is_nothing_to_release() -> None:
    """Pod Security, an SCC or a quota refuses every pod."""
    words, _, took = ask(Api([], wanted=2), within=120)
    assert [word.released for word in words] == [True, True]
    assert took == 10


def test_s18_a_node_in_doubt_is_waited_for_and_named() -> None:
    """The agent's pod there is new, and pods carry the word of the one before; the other node was never touched."""
    api = Api([unbegun("p1", "n1"), unbegun("p2", "n2")], wanted=2, answering=False)
    api.pods = [told_on("n2")]
    words, _, took = ask(api, within=30)
    assert [(word.node, word.released, word.why) for word in words] == [
        ("n1", True, UNTOUCHED), ("n2", False, "its pod p2 is Pending"),
    ]  # fmt: skip
    assert took == 30


def test_s18_a_node_that_lost_its_agent_gets_a_name() -> None:
    """The DaemonSet has no pods any more, and pods on n7 carry an agent's annotation."""
    api = Api([], wanted=2)
    api.pods = [{**told_on("n7", annotations={"numalign.io/assignment": "{}"}), "status": {}}]
    words, _, took = ask(api, within=12)
    assert [(word.node, word.released) for word in words] == [("n7", False), ("", False)]
    assert took == 12


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Running"},
        {"phase": "Failed"},
        {"phase": "Pending", "containerStatuses": [{**WAITING, "restartCount": 1}]},
        {"phase": "Pending", "containerStatuses": [{**WAITING, "lastState": {"terminated": {}}}]},
        {"phase": "Pending", "containerStatuses": [{**WAITING, "state": {"running": {}}}]},
        {"phase": "Pending", "containerStatuses": ["x"]},
        {"phase": "Pending", "containerStatuses": 7},
        "x",
    ],
    ids=["running", "failed", "started again", "ended before", "runs", "no status", "no list", "nothing"],
)
def test_s18_an_agent_that_may_have_begun_is_waited_for(status: object) -> None:
    """Whatever its status says but that no container ever started."""
    given = status if isinstance(status, dict) else {"phase": status}
    api = Api([{**pod("p1", "n1"), "status": given}], answering=False)
    assert not ask(api, within=20)[0][0].released
    assert not api.listed
    assert not never_began({"status": status})


@pytest.mark.parametrize("answering", [True, False])
@pytest.mark.parametrize("tolerant", [True, False])
def test_whether_all_nodes_are_released_is_the_commands_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, answering: bool, tolerant: bool
) -> None:
    """`helm uninstall` goes by it: a node that remains is named with the remedy, and is no success unasked."""
    api = Api([pod("p1", "n1")], answering=answering)
    monkeypatch.setattr(client, "KubeClient", lambda *_: api)
    asked = ReleaseOptions(
        namespace="s", daemonset="d", within=1.5, tolerant=tolerant, server="http://127.0.0.1:1", account=None
    )  # fmt: skip
    assert release_cluster(asked, "text") is (answering or tolerant)
    said = capsys.readouterr().out
    assert ("remains: n1: no answer of its pod p1" in said) is not answering
    assert ("helm uninstall --no-hooks" in said) is not answering
    assert f"{int(answering)} of 1 nodes are released" in said


def test_who_asks_by_hand_waits_as_long_as_the_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two minutes, without --within: nodes that `helm uninstall` has time for must not remain for a person."""
    asked: list[ReleaseOptions] = []

    def released(given: ReleaseOptions, _output: str) -> bool:
        asked.append(given)
        return True

    monkeypatch.setattr("agent.cli.release.release_cluster", released)
    assert CliRunner().invoke(command, ["--cluster", "--namespace", "s"]).exit_code == 0
    chart = yaml.safe_load((ROOT / "charts/numalign/values.yaml").read_text("utf-8"))
    assert [each.within for each in asked] == [chart["uninstall"]["timeoutSeconds"]] == [120]
