"""Whatever a manifest holds, `pod_from` gives a pod or a BadPodError: never another exception."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from agent.errors import BadPodError
from agent.model.pod import Pod, Qos
from agent.model.podspec import pod_from
from tests.examples import examples
from tests.world.documents import bodies


def _read(body: dict[str, Any]) -> Pod | BadPodError:
    try:
        return pod_from(body)
    except BadPodError as error:
        return error


@settings(max_examples=examples(200), deadline=None)
@given(bodies)
def test_any_body_is_a_pod_or_a_bad_pod(body: dict[str, Any]) -> None:
    """No input ends in a traceback, and what passes is normal: unique names, nothing negative, one app container."""
    pod = _read(body)
    if isinstance(pod, BadPodError):
        assert pod.field
        assert len(str(pod)) < 400
        assert str(pod).isprintable()
        return
    assert len({c.name for c in pod.containers}) == len(pod.containers) > 0
    assert all(milli >= 0 for c in pod.containers for part in (c.requests, c.limits) for milli in part.values())
    assert pod.qos in Qos
    assert all(name.startswith("numalign.io/") for name in pod.annotations)
