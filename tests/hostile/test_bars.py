"""The bars beside hostile pods, counted and not timed: see deploy/docs/dev/hostile-tenants.md."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from urllib.parse import quote

import pytest

from agent.errors import MalformedError
from tests import scraped
from tests.hostile.asking import taken
from tests.hostile.claims import FOLLOWING
from tests.hostile.kinds import Object, resources
from tests.hostile.objects import HUGE, LARGEST, SPACE, plain, whole
from tests.hostile.rounds import SEED, arriving, bring, fitting
from tests.matrix.api_objects import bound
from tests.matrix.conftest import Make
from tests.matrix.node import Node
from tests.patience import until

pytestmark = pytest.mark.timeout(1200)  # for machines that do much else: each step has a limit of its own
CROWD = 110
"""The kubelet's own bound of pods on a node."""
LARGEST_KIB = 100 * 1024
HELD, RUNNING = 3000, 40
PER_POD, PER_MINUTE = 4, 30
MOST_PER_100 = 1 << 20


def whole_and_live(node: Node) -> None:
    """No thread ended, nothing was put aside, and the peak of memory is below the bar."""
    node.page("/healthz")  # raises where it is not 200
    assert node.agent is not None
    assert node.agent.alive
    assert "Traceback" not in node.words()
    assert [each.name for each in node.state.glob("checkpoint*") if each.suffix != ".lock"] == [node.checkpoint.name]
    assert node.figure("VmHWM") <= LARGEST_KIB


def pinned(node: Node, name: str) -> None:
    """An innocent pod comes: it has CPUs of its own, is told so, and the kernel says the same."""
    assert node.run(name) is not None
    node.wait(lambda: node.told(name).aligned or node.told(name).refused, f"the word on {name}")
    assert node.told(name).aligned, node.words()[-3000:]
    node.wait(lambda: node.kernel(name) == node.held(name) != "", f"the CPUs of {name}")
    assert node.told(name).cpus == {"c": node.held(name)}, "its annotation"


def read(node: Node) -> int:
    """Every page beside hostile pods: metrics, machine, pods, picture, each explanation; how many of the last.

    An explanation of what is too odd to be shown is refused with a status, and ends no thread.
    """
    explained = 0
    for address in sorted(ports(node)):
        pages = ["/metrics", "/api/node", "/api/picture.svg", "/api/picture.svg?full=1"]
        pods = _get(address, "/api/pods")
        if pods:
            pages += [f"/api/pods/{quote(each['uid'], safe='')}/explanation" for each in json.loads(pods)["pods"]]
        answers = {page: _get(address, page) for page in pages}
        explained += sum("explanation" in page and bool(answer) for page, answer in answers.items())
        assert answers["/metrics"] or answers["/api/node"], f"neither page of {address}"
    return explained


def _told_of(node: Node) -> list[str]:
    return [each["involvedObject"]["name"] for each in node.api.events]


def _get(address: str, path: str) -> str:
    """A page, "" where it is not served there."""
    status, text = scraped.page(address, path)
    assert status < HTTPStatus.INTERNAL_SERVER_ERROR, f"{path}: {status}"
    return text if status < HTTPStatus.BAD_REQUEST else ""


@pytest.mark.parametrize("everything", [False, True], ids=["taken", "whatever"])
def test_hostile_110_pods_cost_an_innocent_one_nothing(make: Make, *, everything: bool) -> None:
    """Beside 110 of what a server takes, or of anything: pinned, told, small; so after a restart, ports occupied."""
    node, began = make(settings={"page": {"port": 0}, **FOLLOWING}), time.monotonic()
    node.start()
    kinds, most = ((), HUGE) if everything else (taken(), LARGEST)
    bring(node, fitting(whole(SEED + everything, CROWD, kinds, most=most)))
    pinned(node, "db")
    assert everything or read(node) > CROWD // 2
    whole_and_live(node)
    assert node.checkpoint.stat().st_size <= MOST_PER_100 * (CROWD + 1) / 100
    before = node.pinned()
    node.restart()
    node.turns()
    with held(ports(node), HELD):
        pinned(node, "web")
        whole_and_live(node)
    assert {key: cpus for key, cpus in node.pinned().items() if key in before} == before
    node.create("asks", annotations={"numalign.io/policy": "sideways"})
    node.wait(lambda: "asks" in _told_of(node), "an innocent's Event")
    node.judge()
    events = Counter(each["involvedObject"].get("uid") for each in node.api.events)
    assert max(events.values(), default=0) <= 2 * PER_POD, "of two agents"
    assert len(node.api.events) <= PER_MINUTE * (2 + (time.monotonic() - began) / 60), "of two agents, of any minute"


def named(node: Node, body: Object) -> None:
    """Its author wrote spec.nodeName, and asks for most of the node; no scheduler bound it."""
    resources(body, cpu="12", memory="8Mi")
    node.api.put("pods", {**body, "spec": {**body["spec"], "nodeName": node.name}, "status": {"phase": "Pending"}})


def mirrored(node: Node, body: Object) -> None:
    """The same, and it says that it is the mirror of a static pod: two of a hash, each."""
    digest = f"{int(body['metadata']['name'].rpartition('-')[2]) // 8:032x}"
    marks = {"config.hash": digest, "config.mirror": digest, "config.source": "file"}
    body["metadata"]["annotations"] |= {f"kubernetes.io/{key}": value for key, value in marks.items()}
    named(node, body)


def resized(node: Node, body: Object) -> None:
    """Known with a tenth of a CPU, and resized up and down before it has a container; no kubelet follows that."""
    resources(body, cpu="100m", memory="8Mi")
    node.api.put("pods", bound(body, node.name))
    node.wait(lambda: node.told(_key(body)).status, f"a word on {_key(body)}")
    for cpu in ("12", "64", "9223372036854775807", "1m", "12"):
        node.api.change("pods", _key(body), lambda each, cpu=cpu: resources(each, cpu=cpu, memory="8Mi"))  # type: ignore[misc] # bound here


def replaced(node: Node, body: Object) -> None:
    """A Job's pods, each with most of the node, that come and go."""
    resources(body, cpu="12", memory="8Mi")
    for number in range(4):
        uid = f"{body['metadata']['uid']}-{number}"
        node.api.put("pods", bound({**body, "metadata": {**body["metadata"], "uid": uid}}, node.name))
        if number % 2:
            node.api.change("pods", _key(body), lambda each: each["status"].update(phase="Failed"))
        node.api.remove("pods", _key(body))


def _key(body: Object) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def test_hostile_110_pods_that_are_named_mirrored_resized_or_replaced_hold_nothing(make: Make) -> None:
    """A real agent keeps its bars; innocent pods before, beside and after a restart have CPUs, and they alone."""
    node = make(settings=FOLLOWING)
    node.start()
    pinned(node, "db")
    node.api.put("namespaces", {"metadata": {"name": SPACE}})
    kinds = (named, mirrored, resized, replaced)
    for number in range(CROWD):
        kinds[number % len(kinds)](node, plain(f"evil-{number}"))

    def assigned() -> Mapping[str, object]:
        ledger = node.ledger()
        return ledger.cpus.assigned if ledger else {}

    def alone(*names: str) -> None:
        mine = {node.uid(name) for name in names}
        node.wait(lambda: {*assigned()} == mine, lambda: str(assigned()))

    node.create("last", cpu="")
    node.wait(lambda: node.told("last").status, node.words)  # events come in order: all before it have come
    alone("db")  # and the agent has followed that the last of them went
    pinned(node, "web")
    alone("db", "web")
    whole_and_live(node)
    node.restart()
    node.turns()
    pinned(node, "batch")
    alone("db", "web", "batch")
    node.judge()
    whole_and_live(node)


def test_hostile_pods_that_run_move_nobody(make: Make) -> None:
    """Their containers are created, named and told of like anybody's, and named anew to an agent that starts."""
    node, ran = make(settings=FOLLOWING), 0
    node.start()
    pinned(node, "db")
    for pod in arriving(node, fitting(whole(SEED, RUNNING, taken(), most=LARGEST))):
        with contextlib.suppress(MalformedError, ValueError, OSError):  # a runtime would not make it either
            ran += node.kubelet.run(pod.key)
    assert ran > RUNNING // 2
    before = node.kernel("db")
    node.restart()
    node.turns()
    pinned(node, "web")
    assert node.kernel("db") == before
    node.judge()
    whole_and_live(node)


def ports(node: Node) -> set[str]:
    """Every address at which the agent of now listens."""
    agent = node.agent
    assert agent is not None

    def found() -> set[str]:
        return set(re.findall(r"serving (?:metrics|the node page).*?(127\.0\.0\.1:\d+)", agent.words()))

    until(lambda: len(found()) == 2, node.words)
    return found()


@contextlib.contextmanager
def held(addresses: Iterable[str], count: int) -> Iterator[list[socket.socket]]:
    """Connections that said one byte each, so many to each address."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * count + 1000:
        pytest.skip("this process may not open so many connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * count + 1000), hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        found = []
        for address in sorted(addresses):
            host, _, port = address.rpartition(":")
            for _ in range(count):
                found.append(stack.enter_context(socket.create_connection((host, int(port)), timeout=60)))
                with contextlib.suppress(OSError):  # the server may have closed it
                    found[-1].sendall(b"G")
        yield found


def test_hostile_3000_connections_to_every_port_hold_nobody_up(make: Make) -> None:
    """Metrics and page, each with 3,000 connections that say one byte: probes are answered, a pod is told."""
    node = make(settings={"page": {"port": 0}})
    node.start()
    with held(ports(node), HELD):
        pinned(node, "db")
        whole_and_live(node)
