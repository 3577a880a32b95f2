"""How large a pod is, and how deep its fields are nested, costs the agent little: it reads the others, too."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import BadPodError
from agent.kube.objects.pod_objects import SeenPod, seen
from agent.kube.objects.pod_stream import Lines, PodList, read
from agent.kube.objects.read_fields import MOST, brief
from agent.kube.pod_report import annotated_grant, softened
from agent.kube.publishing.cleanup import ended
from agent.kube.publishing.refusal_limiter import owner_of
from agent.model.podspec import MAX_CONTAINERS
from tests.hostile import objects
from tests.hostile.kinds import DEEP, LITERALS, Object
from tests.hostile.objects import KINDS, Hostile
from tests.matrix.api_objects import bound
from tests.matrix.conftest import Make, agents, make  # noqa: F401 - fixtures
from tests.matrix.node import Node

LARGEST_KIB = 128 * 1024


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
def test_hostile_a_brief_pod_is_judged_as_the_whole(number: int) -> None:
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


def test_hostile_a_list_is_read_however_it_is_cut() -> None:
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
def test_hostile_lists_of_every_shape_are_read(text: bytes, items: object) -> None:
    """Byte by byte."""
    found = PodList()
    for number in range(len(text)):
        found.feed(text[number : number + 1])
    assert found.whole()["items"] == items


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b'{"items":[{', b'{"items":[{}', b'{"items":[' + b'{"a":' * 5000, b"\xff", b'{"items":[7,null]}'],
)
def test_hostile_a_list_that_ends_early_is_no_list(text: bytes) -> None:
    """It is never taken for one with fewer pods: those that are missing would count as gone."""
    found = PodList()
    with pytest.raises(ValueError, match=r"\w"):  # noqa: PT012 - either may tell
        found.feed(text)
        found.whole()


def test_hostile_deep_answers_are_read_without_their_depth() -> None:
    """Of any answer; a text that ends within an object is refused."""
    text = f'{{"a":{{"b":"]\\"}}"}},"deep":{LITERALS["<<deep>>"]},"c":[1]}}'.encode()
    assert {name: value for name, value in read(text).items() if name != "deep"} == {"a": {"b": ']"}'}, "c": [1]}
    with pytest.raises(ValueError, match=r"ends within|Expecting"):  # Python 3.14's library reads so deep a text
        read(text[: len(text) - DEEP])


def test_hostile_lines_of_a_watch_are_passed_on_whole() -> None:
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


def figure(node: Node, name: str) -> int:
    """A number of /proc/<pid>/status of the agent."""
    assert node.agent is not None
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{node.agent.pid}/status").read_text("ascii"), re.MULTILINE)
    assert found, name
    return int(found[1])


def test_hostile_a_deep_pod_hides_no_other(make: Make) -> None:  # noqa: F811 - the fixture
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


def test_hostile_pods_of_a_mebibyte_are_not_kept(make: Make) -> None:  # noqa: F811 - the fixture
    """40 pods of 0.7 MiB each, in the watch and in a list: the agent's peak stays below 128 MiB."""
    node = make()
    node.start()
    bring(node, "labels-10000", 40)
    node.run("db")
    node.wait(lambda: node.told("db").aligned, "the word on db")
    assert figure(node, "VmHWM") <= LARGEST_KIB
    node.restart()
    node.run("web")
    node.wait(lambda: node.told("web").aligned, "the word on web")
    assert figure(node, "VmHWM") <= LARGEST_KIB
