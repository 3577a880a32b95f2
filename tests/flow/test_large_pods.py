"""How large, how deep and how many pods are costs the agent little memory; and a part of a list is no list."""

from __future__ import annotations

import functools
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import BadPodError, KubeError, MalformedError
from agent.kube.client import KubeClient, pod_list
from agent.kube.objects.pod_objects import SeenPod, identity, seen
from agent.kube.objects.pod_stream import Lines, PodList, read
from agent.kube.objects.read_fields import MOST, brief
from agent.kube.pod_report import annotated_grant, softened
from agent.kube.publishing.cleanup import ended
from agent.kube.publishing.refusal_limiter import owner_of
from agent.model.podspec import MAX_CONTAINERS
from tests.flow.cluster_node import ClusterNode, StandInApi
from tests.hostile import objects
from tests.hostile.kinds import DEEP, LITERALS, Object
from tests.hostile.objects import KINDS, Hostile
from tests.matrix.agents import Programs
from tests.matrix.api_objects import bound
from tests.matrix.conftest import Make, make  # noqa: F401 - a fixture
from tests.matrix.node import Node

LARGEST_KIB = 128 * 1024
"""Half of the chart's limit."""
PODS = 110
"""The kubelet's default of pods on a node."""
ANNOTATIONS = 262_144
"""Bytes that the API takes of a pod's annotations; a control character is one of them, and six in JSON."""
BEGINNING = b'{"metadata":{"name":"evil","namespace":"n","uid":"u"},"spec":{"containers":[{"name":"c","ports":['
BOMBS = {
    "many small parts": BEGINNING + b",".join([b'{"name":"a"}'] * 270_000) + b"]}]}}",
    "one long text": BEGINNING + b'{"name":"a","value":"' + b"\\u0001" * 1_400_000 + b'"}]}]}}',
    "a number of 5000 digits": BEGINNING + b'{"name":' + b"9" * 5000 + b"}]}]}}",
}
"""Within what etcd takes of a pod, which is stored in fewer bytes than JSON has."""


def fat(number: int) -> dict[str, str]:
    """Annotations of a hostile pod: control characters up to the API's limit, of which numalign's name some."""
    keys = ["example.com/a", "numalign.io/policy", "numalign.io/assignment", "numalign.io/cpus"]
    size = ANNOTATIONS // len(keys) - 64
    return dict.fromkeys(keys, "\u0001" * size) | {"example.com/number": str(number)}


@contextmanager
def alone(folder: Path) -> Iterator[Node]:
    """A node without pods or agent."""
    with Node(folder, Programs(), nri=False, podresources=False) as made:
        yield made


def fatten(made: Node, number: int) -> None:
    """A hostile pod, new or changed."""
    name = f"hostile/evil-{number}"
    if made.api.get("pods", name):
        made.api.change("pods", name, lambda body: body["metadata"]["annotations"].update({"example.com/b": "again"}))
    else:
        made.create(name, cpu="", annotations=fat(number))


def bomb(made: Node) -> None:
    """A pod of 270,000 parts, which are 4 MiB of JSON and twenty times that in memory."""
    spec = {"containers": [{"name": "c", "env": [{"name": "a"}] * 270_000}]}
    made.create("hostile/bomb", cpu="", spec=spec)


def pinned_and_told(made: Node, name: str) -> None:
    """The agent pins an innocent pod, says so, and has not ended."""
    agent = made.agent
    assert agent is not None
    made.wait(lambda: made.told(name).aligned or not agent.alive, f"{name} is told")
    assert agent.alive, f"the agent ended\n{made.words()[-3000:]}"
    assert made.held(name)


def test_a_list_of_hostile_pods_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """They are there when the agent starts: it stays below the bar, and an innocent pod is pinned and told.

    Finding 3.
    """
    with alone(tmp_path) as made:
        for number in range(PODS):
            fatten(made, number)
        bomb(made)
        made.create("db")
        made.start(ready=False)
        pinned_and_told(made, "db")
        assert made.figure("VmHWM") <= LARGEST_KIB


def test_hostile_pods_of_a_watch_are_read_in_bounded_memory(tmp_path: Path) -> None:
    """They arrive, and change, while the agent runs (finding 3)."""
    with alone(tmp_path) as made:
        made.start(ready=False)
        made.create("first")
        pinned_and_told(made, "first")
        for _ in range(2):
            for number in range(PODS):
                fatten(made, number)
        bomb(made)
        made.create("db")
        pinned_and_told(made, "db")
        assert made.figure("VmHWM") <= LARGEST_KIB


@pytest.mark.parametrize("name", BOMBS)
def test_a_pod_of_too_many_parts_is_not_parsed(name: str) -> None:
    """It is known by its names and refused with a sentence, in a list and in a watch; its neighbour is read.

    Finding 3.
    """
    good = b'{"metadata":{"name":"db","namespace":"n","uid":"v"},"spec":{"containers":[{"name":"c"}]}}'
    text, found = b'{"metadata":{"resourceVersion":"7"},"items":[' + BOMBS[name] + b"," + good + b"]}", PodList()
    for at in range(0, len(text), 1 << 16):
        found.feed(text[at : at + (1 << 16)])
    lines, stream = Lines(), b"".join(b'{"type":"ADDED","object":' + each + b"}\n" for each in (BOMBS[name], good))
    heard = b"".join(lines.feed(stream[at : at + (1 << 16)]) for at in range(0, len(stream), 1 << 16))
    events = [json.loads(line)["object"] for line in heard.splitlines()]
    for evil, other in (found.whole()["items"], events):
        assert identity(evil) == ("u", "n/evil")
        with pytest.raises(MalformedError, match="more than 4 MiB of JSON, or too many parts"):
            seen(evil)
        assert seen(other).pod.name == "db"


NO_LIST: dict[str, Any] = {
    "status": {"kind": "Status", "status": "Failure", "message": "etcd is away"},
    "nothing": {},
    "page": {"kind": "PodList", "metadata": {"continue": "more"}, "items": []},
    "not a list": {"kind": "PodList", "items": {"a": 1}},
}
"""Answers of status 200 that do not hold all pods."""


@pytest.mark.parametrize("name", NO_LIST)
def test_s13_what_is_not_all_of_a_list_is_an_error(name: str, tmp_path: Path) -> None:
    """For the start's client, and for the reader of kopf's lists: it never counts as a node with fewer pods.

    Finding 3.
    """
    found = PodList()
    with pytest.raises(MalformedError):  # noqa: PT012 - either may tell
        found.feed(json.dumps(NO_LIST[name]).encode())
        found.whole()

    class Odd(StandInApi):
        def answer(self, path: str) -> tuple[int, dict[str, Any] | bytes]:
            return (200, NO_LIST[name]) if path == "/api/v1/pods" else super().answer(path)

    with Odd() as api:
        client = KubeClient(ClusterNode(tmp_path).options(api.url).access, "n1")
        with pytest.raises(KubeError):
            client.call("GET", "/api/v1/pods", reader=pod_list)
        client.close()


PEAK = 12 << 20
"""Bytes: the text twice, as bytes and as it is decoded, and what is built of it. Without a bound it was 90 MiB."""
ROOM = {"metadata": {"name": "evil", "uid": "u", "labels": {f"l{number}": "x" * 63 for number in range(9_000)}}}


@contextmanager
def answering(folder: Path, status: int, body: bytes) -> Iterator[KubeClient]:
    """A client of a server that has one answer."""

    class One(StandInApi):
        def answer(self, path: str) -> tuple[int, dict[str, Any] | bytes]:
            return status, body

    with One() as api:
        client = KubeClient(ClusterNode(folder).options(api.url).access, "n1")
        yield client
        client.close()


def peak(work: Callable[[], object]) -> int:
    """Bytes that Python's objects took at most meanwhile."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", BOMBS)
def test_one_pod_of_too_many_parts_is_not_parsed(name: str, tmp_path: Path) -> None:
    """It is known by its names, and refused with the sentence that the list has for it (finding 3)."""
    with answering(tmp_path, 200, BOMBS[name]) as client:
        found = client.pod("n", "evil")
        assert identity(found) == ("u", "n/evil")
        with pytest.raises(MalformedError, match="more than 4 MiB of JSON, or too many parts"):
            seen(found)


def test_a_deep_pod_of_all_letters_costs_little(tmp_path: Path) -> None:
    """One that a server takes: nested 2,000 deep, full of control characters, and of letters of four bytes.

    Finding 3.
    """
    kinds = ("value-control", "arguments-large", "fields-written-deep")
    pod = objects.make(1, 90, kinds)
    with answering(tmp_path, 200, objects.written(pod.body)) as client:
        assert seen(client.pod("n", "evil")).pod.name == pod.name
        assert peak(lambda: client.pod("n", "evil")) <= PEAK


def test_the_answer_to_a_write_is_not_kept(tmp_path: Path) -> None:
    """A patch's answer has the pod's labels; nobody reads it (finding 3)."""
    with answering(tmp_path, 200, json.dumps(ROOM).encode()) as client:
        assert client.patch_pod("n", "evil", "u", {}) == {}
        assert peak(lambda: client.patch_pod("n", "evil", "u", {})) <= 1 << 20


@pytest.mark.parametrize("status", [200, 422])
def test_an_answer_without_end_is_an_error(status: int, tmp_path: Path) -> None:
    """Of whatever else is asked, and of a refusal: no more than its beginning is kept (finding 3)."""
    with answering(tmp_path, status, b'{"message":"' + b"x" * (12 << 20) + b'"}') as client:

        def ask() -> None:
            with pytest.raises(KubeError) as caught:
                client.get("/api/v1/namespaces/n")
            assert caught.value.status == status
            assert len(str(caught.value)) < 1000

        assert peak(ask) <= PEAK


def judged(body: Object) -> SeenPod | str:
    """What becomes of a body: the pod, or why it is none."""
    try:
        found = seen(body)
    except BadPodError as error:
        return str(error)
    return replace(found, containers=dict(list(found.containers.items())[:MAX_CONTAINERS]))


@functools.cache
def everyone() -> tuple[Hostile, ...]:
    """A pod of each kind, and forty with several."""
    return (*objects.alone(3), *objects.whole(3, 40))


@pytest.mark.parametrize("number", range(len(KINDS) + 40))
def test_a_brief_pod_is_judged_as_the_whole(number: int) -> None:
    """Whatever is left out changes nothing that is read, and leaving out twice leaves out nothing more."""
    pod = everyone()[number]
    body: Object = {**pod.body, "metadata": {**pod.body["metadata"], "resourceVersion": "1"}}
    short = brief(body)
    assert brief(short) == short
    assert len(json.dumps(short)) <= MOST
    expected = judged(body)
    if isinstance(expected, str):  # what is refused is refused; the sentence counts what is left
        assert isinstance(judged(short), str)
        return
    assert judged(short) == expected
    assert owner_of(short)[:1000] == owner_of(body)[:1000]
    assert (ended(short), softened(short)) == (ended(body), softened(body))
    assert annotated_grant(short) == annotated_grant(body)


def test_a_list_is_read_however_it_is_cut() -> None:
    """In pieces of any size, with texts of any kind, and with one that Python before 3.14 cannot read at once."""
    bodies = [pod.body for pod in objects.alone(5) if "half-a-letter" not in pod.kinds[0]]
    text = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":['
    text += b",".join(map(objects.written, bodies)) + b"]}\n"
    found = PodList()
    for at in range(0, len(text), 61_231):
        found.feed(text[at : at + 61_231])
    listed = found.whole()
    assert listed["metadata"] == {"resourceVersion": "7"}
    assert listed["items"] == [brief(body) for body in bodies]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (b'{"kind":"PodList","items":[]}', []), (b'{"items" : [ {"a":1} , {} ] , "kind":"x"}', [{}, {}]),
        (b'{"kind":"PodList","items":null}', None),
    ],
)  # fmt: skip
def test_lists_of_every_shape_are_read(text: bytes, items: object) -> None:
    """Byte by byte."""
    found = PodList()
    for number in range(len(text)):
        found.feed(text[number : number + 1])
    assert found.whole()["items"] == items


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b'{"items":[{', b'{"items":[{}', b'{"items":[' + b'{"a":' * 5000, b"\xff", b'{"items":[7,null]}'],
)
def test_a_list_that_ends_early_is_no_list(text: bytes) -> None:
    """It is never taken for one with fewer pods: those that are missing would count as gone."""
    found = PodList()
    with pytest.raises(ValueError, match=r"\w"):  # noqa: PT012 - either may tell
        found.feed(text)
        found.whole()


def test_deep_answers_are_read_without_their_depth() -> None:
    """Of any answer; a text that ends within an object is refused."""
    text = f'{{"a":{{"b":"]\\"}}"}},"deep":{LITERALS["<<deep>>"]},"c":[1]}}'.encode()
    assert {name: value for name, value in read(text).items() if name != "deep"} == {"a": {"b": ']"}'}, "c": [1]}
    with pytest.raises(ValueError, match=r"ends within|Expecting"):  # Python 3.14's library reads so deep a text
        read(text[: len(text) - DEEP])


def test_lines_of_a_watch_are_passed_on_whole() -> None:
    """Short ones as they came, long ones brief; an error of the server is left alone."""
    small = b'{"type":"ADDED","object":{"metadata":{"name":"a"},"x":1}}'
    error = json.dumps({"type": "ERROR", "object": {"code": 410, "message": "x" * 9000}}).encode()
    large = [b'{"type":"ADDED","object":' + objects.written(pod.body) + b"}" for pod in objects.alone(5)
             if "half-a-letter" not in pod.kinds[0]]  # fmt: skip
    text = b"\n".join((small, *large, error, small)) + b"\n"
    lines = Lines()
    found = b"".join(lines.feed(text[at : at + 7919]) for at in range(0, len(text), 7919)).splitlines()
    assert (found[0], found[-2], found[-1]) == (small, error, small)
    assert len(found) == len(large) + 3
    assert max(map(len, found)) <= MOST
    assert lines.rest() == b""


def bring(node: Node, kind: str, count: int) -> None:
    """Pods of one kind, in the API."""
    node.api.literals = LITERALS
    node.api.put("namespaces", {"metadata": {"name": objects.SPACE}})
    for number in range(count):
        body = objects.make(1, number, (kind,)).body
        node.api.put("pods", bound(body, node.name))


def test_a_deep_pod_hides_no_other(make: Make) -> None:  # noqa: F811 - the fixture
    """One pod whose managedFields are nested 2,000 deep: the others are read in the watch, and in the next list."""
    node = make()
    node.start()
    bring(node, "fields-written-deep", 1)
    node.run("db")
    node.settle()
    node.restart()
    node.run("web")
    node.settle()
    assert node.told("db").aligned
    assert node.told("web").aligned
    node.judge()


def test_pods_of_a_mebibyte_are_not_kept(make: Make) -> None:  # noqa: F811 - the fixture
    """40 pods of 0.7 MiB each, in the watch and in a list: the agent's peak stays below 128 MiB."""
    node = make()
    node.start()
    bring(node, "labels-10000", 40)
    node.run("db")
    node.wait(lambda: node.told("db").aligned, "the word on db")
    assert node.figure("VmHWM") <= LARGEST_KIB
    node.restart()
    node.run("web")
    node.wait(lambda: node.told("web").aligned, "the word on web")
    assert node.figure("VmHWM") <= LARGEST_KIB
