"""The examples of deploy/examples on a node: each pod goes where its comment says, or is refused for its reason.

Their images are replaced by the lab's, and what an init container runs by `true`; all else is as in the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from agent.model.idset import IdSet
from tests.lab import agent
from tests.lab.cluster import Lab, Object
from tests.lab.places import ROOT
from tests.lab.report import record

FOLDER = ROOT / "deploy" / "examples"
NICS = {"0", "2"}
"""NUMA nodes that the guest has network controllers on."""
PAGES = "/sys/devices/system/node/node*/hugepages/hugepages-*/nr_hugepages"


@dataclass(frozen=True)
class Expected:
    """What the lab's machine (16 CPUs, four nodes of 1Gi) makes of an example.

    Attributes:
        cpus: container -> how many exclusive CPUs it has; None where it does not run.
        refused: the kubelet's reason in the pod's status.
        says: what its condition says.
    """

    cpus: dict[str, int] | None = None
    refused: str = ""
    says: str = ""


EXPECTED = {
    "trader": Expected({"engine": 1}),
    "gateway": Expected({"packets": 2}),
    # Five CPUs are more than a node of four has, and one node has memory enough: no hint is preferred by both, which
    # `restricted` refuses; the configuration lets the pod run on the shared pool.
    "model": Expected({}, says="Resources cannot be allocated with Topology locality"),
    "packetdump": Expected(refused="OutOfhugepages-2Mi"),  # the guest has none
    "shop": Expected({}),
    "report": Expected({}),
    "solver": Expected(refused="OutOfcpu"),  # the kubelet is asked first, and has 16
    "simulation": Expected(refused="OutOfmemory"),
    "legacy": Expected({}),
    "router": Expected(says="even an empty node would refuse it"),
}


def examples() -> Iterator[Object]:
    """Every pod of the folder, in the order of the files; its other files are for `simulate`."""
    for path in [*sorted((FOLDER / "pods").iterdir()), FOLDER / "router.yaml"]:
        yield from (body for body in yaml.safe_load_all(path.read_text()) if body)


def test_every_example_is_expected() -> None:
    """No example without an expectation, no expectation without an example."""
    assert [each["metadata"]["name"] for each in examples()] == list(EXPECTED)


def runnable(body: Object) -> Object:
    """The same pod with programs that the lab has."""
    body = json.loads(json.dumps(body))
    spec = body["spec"]
    for each in (*spec.get("initContainers", ()), *spec["containers"]):
        del each["image"]
    for each in spec.get("initContainers", ()):
        if each.get("restartPolicy") != "Always":
            each["command"] = ["/bin/true"]
    return body


@pytest.fixture(scope="module")
def configured(alone: Lab) -> Iterator[Lab]:
    """The node with the configuration of the examples."""
    lab = alone
    lab.clear(lab.numalign)
    lab.numalign.run(f"for f in {PAGES}; do echo 0 >$f; done; systemctl restart kubelet")
    lab.numalign.wait_serving()
    words = yaml.safe_load((FOLDER / "config.yaml").read_text())
    # The file leaves evictionHard to its default, which the lab's own settings, below these, do not.
    agent.configure(lab.numalign, {**words, "evictionHard": {"memory.available": "100Mi"}})
    assert "old settings stay" not in agent.log(lab.numalign, 20)
    yield lab
    lab.clear(lab.numalign)
    agent.configure(lab.numalign, {})


@pytest.mark.parametrize("body", list(examples()), ids=lambda each: each["metadata"]["name"])
def test_an_example_does_what_its_comment_says(configured: Lab, body: Object) -> None:
    """Alone on the node: as many CPUs as it says, on as few nodes, in books and kernel; or its reason."""
    lab, node, name = configured, configured.numalign, body["metadata"]["name"]
    expected = EXPECTED[name]
    made = lab.create(runnable(body), node)
    try:
        if expected.refused:
            status = lab.wait_refused(name)["status"]
            assert status["reason"] == expected.refused, status
        if expected.says:
            assert expected.says in _condition(lab.wait_pod(name, _condition))
        if expected.cpus is not None:
            lab.wait_running(name)
            lab.wait_enforced(node, name)
            _holds(lab, name, expected)
    finally:
        lab.delete(name)
        lab.wait_gone(made)
    record("examples that did what they say", len(EXPECTED))


def _condition(body: Object) -> str:
    conditions = body["status"].get("conditions", ())
    return "".join(each["message"] for each in conditions if each["type"] == "numalign.io/Aligned")


def _holds(lab: Lab, name: str, expected: Expected) -> None:
    node = lab.numalign
    books, kernel = lab.assigned(node).get(name, {}), lab.kernel(node)[name]
    own = {container: IdSet.parse(sets.cpus) for container, sets in books.items() if sets.cpus}
    running = {container: cpus for container, cpus in own.items() if container in kernel}
    assert {container: len(cpus) for container, cpus in running.items()} == expected.cpus
    for container, sets in kernel.items():
        others = IdSet.from_ids({cpu for each, cpus in own.items() if each != container for cpu in cpus})
        assert not IdSet.parse(sets.cpus) & others, (container, sets)
    if name == "gateway":
        told = json.loads(lab.pod(name)["metadata"]["annotations"]["numalign.io/assignment"])
        assert kernel["packets"].mems in NICS, told
