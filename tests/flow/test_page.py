"""The node page's values, from a real agent: what they say of each pod, and where they are to be had."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.cli import group
from agent.errors import SettingsError
from agent.model.rules import Policy
from agent.observe.metrics import SPECS
from agent.settings import parse
from tests import patience
from tests.page.served import Served, pod

FAIL = {"numalign.io/policy": "single-numa-node", "numalign.io/on-misalignment": "fail"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """An agent on two sockets with four nodes of 16 CPUs."""
    with Served(tmp_path) as made:
        yield made


def get(served: Served, path: str) -> Any:  # noqa: ANN401 - any JSON
    """One of its values."""
    with urllib.request.urlopen(served.url + path, timeout=10) as answer:
        return json.load(answer)


def test_every_pod_has_its_state_and_a_reason(served: Served) -> None:
    """Aligned, shared, waiting, refused, left alone; whoever should be looked at is marked."""
    served.add(pod("wide", "20"), pod("narrow", "2"), pod("loose", None), pod("dns", "2", namespace="kube-system"))
    served.add(pod("never", "20", annotations=FAIL), *(pod(f"full-{each}", "8") for each in range(4)))
    served.add(pod("patient", "14", annotations={**FAIL, "numalign.io/on-misalignment": "wait"}))
    answer = get(served, "api/pods")
    found = {each["name"]: each for each in answer["pods"]}
    states = {name: each["state"] for name, each in found.items()}
    assert states["narrow"] == "aligned"
    assert states["loose"] == "shared"
    assert states["dns"] == "left alone"
    assert states["never"] == "refused"
    assert states["patient"] == "waiting"
    marked = {name for name, each in found.items() if each["attention"]}
    assert marked >= {"never", "patient"}
    assert not marked & {"narrow", "loose", "dns"}
    assert all(found[name]["why"] for name in marked)
    assert found["narrow"]["picture"]["letter"]
    assert found["loose"]["picture"] is None
    patience.until(  # a look at the cgroups may come between the two
        lambda: get(served, "api/node")["revision"] == get(served, "api/pods")["revision"], "one revision"
    )


def test_pods_come_by_age_with_the_time_of_their_creation(served: Served) -> None:
    """The API server's seconds since the epoch, whole: the order of the list, whatever came first to this node."""
    for name, stamp in (("late", "2026-01-01T00:00:01.75Z"), ("early", "2026-01-01T01:00:00+01:00")):
        made = pod(name, "2")
        made["metadata"]["creationTimestamp"] = stamp
        served.add(made)
    found = [(each["name"], each["created"]) for each in get(served, "api/pods")["pods"]]
    assert found == [("early", 1767225600.0), ("late", 1767225601.0)]


def test_every_gauge_of_the_table_has_its_value(served: Served) -> None:
    """Without a cluster, too; but for those that only a cluster has, and for pages of pods that nobody runs."""
    gauges = {spec.name.removeprefix("numalign_") for spec in SPECS if spec.kind == "gauge"}
    missing = gauges - served.node.values().keys()
    assert missing == {"api_silent_seconds", "queue_length", "local_memory_ratio", "build_info"}


def test_a_pod_that_is_not_aligned_is_marked(served: Served) -> None:
    """In the values by its state, in the picture by an exclamation mark beside its letter, and in the legend."""
    served.add(*(pod(f"half-{each}", "8") for each in range(4)))
    served.add(pod("whole", "12"))
    served.add(pod("astray", "12"))
    found = next(each for each in get(served, "api/pods")["pods"] if each["name"] == "astray")
    assert (found["state"], found["attention"]) == ("not aligned", True)
    letter = found["picture"]["letter"]
    assert letter.endswith("!")
    with urllib.request.urlopen(f"{served.url}api/picture.svg?bare=1", timeout=10) as answer:
        drawn = answer.read().decode()
    assert drawn.count(f">{letter}</text>") == 12 + 1
    assert "of a pod that is not aligned as its policy wants" in drawn


def test_the_node_says_what_it_has_and_what_was_repaired(served: Served) -> None:
    """CPUs and memory per NUMA node add up; a repair names pod, container, file and who wrote."""
    served.add(pod("first", "4"))
    node = get(served, "api/node")
    assert (node["node"], node["ready"], node["stopped"]) == ("node-7", True, [])
    assert [each["id"] for each in node["numaNodes"]] == [0, 1, 2, 3]
    assert node["numaNodes"][0]["exclusive"] == "1-2,33-34"
    for each in node["numaNodes"]:
        books = each["memory"]["memory"]
        assert books["total"] == books["system"] + books["granted"] + books["free"] > 0
    assert node["machine"]["digest"]
    served.write("first", "cpuset.cpus", "0-3")
    patience.until(lambda: get(served, "api/node")["repairs"], "the repair")
    repair = get(served, "api/node")["repairs"][0]
    assert (repair["pod"], repair["container"], repair["file"]) == ("default/first", "main", "cpuset.cpus")
    assert repair["cause"] == "drift-foreign"
    assert repair["text"].startswith("another program wrote another set")
    assert get(served, "api/pods")["pods"][0]["repairs"] >= 1


def test_an_explanation_is_that_of_the_command_line(served: Served) -> None:
    """The same JSON as `numalign explain --output json`, with the revision beside it."""
    served.add(pod("never", "20", annotations=FAIL))
    (uid,) = [each["uid"] for each in get(served, "api/pods")["pods"]]
    found = get(served, f"api/pods/{uid}/explanation")
    assert found["verdict"] == "refused"
    assert found["summary"].startswith("default/never is refused")
    assert found["remedies"]


def test_a_page_that_cannot_be_served_costs_no_other_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One change turns the page on and sets the policy: the page's error is told, the policy is in force."""

    def wrong(*_: object) -> None:
        raise RecursionError("nested too deep")

    with Served(tmp_path, page={"enabled": False}) as served:
        monkeypatch.setattr("agent.observe.page.server.PageServer.__init__", wrong)
        served.configure(page={"port": 0}, topologyManagerPolicy="single-numa-node")
        engine = served.node.engine
        patience.until(lambda: engine.snapshot.node.rules.topology.policy is Policy.SINGLE_NUMA_NODE, "the policy")
        assert "nested too deep" in caplog.text
        monkeypatch.undo()
        patience.until(lambda: served.url != "", "the page")


def test_a_source_that_stumbles_costs_no_other_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that nobody expected where the source of pods takes what changed: told, and the policy is in force."""

    def wrong(_: object) -> None:
        raise RecursionError("nested too deep")

    with Served(tmp_path) as served:
        monkeypatch.setattr("agent.app.standalone.folder_pods.FolderPods.configured", wrong)
        rules = served.node.engine.snapshot.node.rules
        served.configure(topologyManagerPolicy="single-numa-node")
        patience.until(lambda: served.node.engine.snapshot.node.rules is not rules, "the policy")
        assert served.node.engine.snapshot.node.rules.topology.policy is Policy.SINGLE_NUMA_NODE
        assert "nested too deep" in caplog.text


def test_what_cannot_be_shown_of_one_pod_is_an_answer(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody expected costs one page: its reader is told why, and the others are served."""

    def wrong(*_: object) -> None:
        raise RecursionError("nested too deep")

    served.add(pod("first", "2"))
    (uid,) = [each["uid"] for each in get(served, "api/pods")["pods"]]
    monkeypatch.setattr("agent.app.page.values.explanation_value", wrong)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{served.url}api/pods/{uid}/explanation", timeout=60)
    with caught.value:
        assert caught.value.code == 500
        assert "nested too deep" in json.loads(caught.value.read())["error"]
    assert get(served, "api/pods")["pods"]


def refused(url: str) -> int:
    """The status of a page that is not served."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url, timeout=5)
    with caught.value:
        return caught.value.code


def test_s20_the_page_is_on_loopback_and_never_on_the_metrics_port(tmp_path: Path) -> None:
    """S20: pod names have a port of their own, which listens on loopback unless somebody says otherwise."""
    assert parse({})[0].page.address == "127.0.0.1"
    with Served(tmp_path, metrics=True) as served:
        served.add(pod("secret-project", "2"))
        assert served.url.startswith("http://127.0.0.1:")
        metrics = f"http://{served.node.address}/"
        for path in ("", "api/node", "api/pods", "api/events", "api/picture.svg"):
            assert refused(metrics + path) == 404
        with urllib.request.urlopen(metrics + "metrics", timeout=5) as answer:
            assert b"secret-project" not in answer.read()
        assert refused(served.url + "metrics") == 404


def test_the_same_drawing_everywhere(served: Served, tmp_path: Path) -> None:
    """`state --output svg` of the saved ledger is what the page shows, title, style and table of pods aside."""
    served.add(pod("first", "2"))
    with urllib.request.urlopen(f"{served.url}api/picture.svg", timeout=10) as answer:
        shown = answer.read().decode()
    done = CliRunner().invoke(
        group, ["state", "--output", "svg", "--root", "two-sockets", "--state-dir", str(tmp_path / "state"),
                "--config", str(tmp_path / "config.yaml")],
    )  # fmt: skip
    assert (done.exit_code, done.output) == (0, shown)
    wrong = CliRunner().invoke(
        group, ["state", "--output", "svg", "--root", "chiplets", "--state-dir", str(tmp_path / "state")]
    )
    assert isinstance(wrong.exception, SettingsError)
    assert "--root" in str(wrong.exception)


def test_a_page_of_another_machine_has_its_name(tmp_path: Path) -> None:
    """With --root and no --node-name the heading is the machine's: this host is not what is shown."""
    with Served(tmp_path, named=False) as served:
        assert get(served, "api/node")["node"] == "two-sockets"


def test_why_a_pod_is_refused_is_what_explain_says_first(served: Served) -> None:
    """The numbers, and not what a policy means in general."""
    served.add(pod("never", "20", annotations=FAIL))
    (found,) = get(served, "api/pods")["pods"]
    told = get(served, f"api/pods/{found['uid']}/explanation")
    assert found["why"] == "no NUMA node of this machine has 20 CPUs, even when empty: the largest has 16"
    assert found["why"] in told["summary"]
