"""Namespaces' annotations: asked once and while, an old answer while the API is away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agent.errors import KubeError
from agent.kube.watch.namespaces import AGAIN, TTL, Namespaces


class Api:
    """Answers, counts, and can be away."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.status = 0
        self.notes: dict[str, str] = {"numalign.io/policy": "none", "other": "x"}

    def get(self, path: str) -> Mapping[str, Any]:
        self.asked.append(path)
        if self.status:
            raise KubeError(self.status, "no")
        return {"metadata": {"annotations": dict(self.notes)}}


def test_asked_once_within_the_time() -> None:
    """Only our annotations are kept; a second question costs nothing until the time is over."""
    api, now = Api(), [0.0]
    known = Namespaces(api.get, lambda: now[0])
    assert known.annotations("a") == known.annotations("a") == {"numalign.io/policy": "none"}
    assert api.asked == ["/api/v1/namespaces/a"]
    now[0] = TTL + 1
    api.notes["numalign.io/policy"] = "restricted"
    assert known.annotations("a") == {"numalign.io/policy": "restricted"}


def test_an_old_answer_serves_while_the_api_is_away() -> None:
    """A failure is not asked for again at once, and costs nobody what was known."""
    api, now = Api(), [0.0]
    known = Namespaces(api.get, lambda: now[0])
    known.annotations("a")
    now[0], api.status = TTL + 1, 503
    assert known.annotations("a") == known.annotations("a") == {"numalign.io/policy": "none"}
    assert len(api.asked) == 2
    with pytest.raises(KubeError):
        known.annotations("b")
    now[0], api.status = now[0] + AGAIN, 404
    assert known.annotations("b") == {}
