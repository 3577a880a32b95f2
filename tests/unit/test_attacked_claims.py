"""Faults around claims and the summary that cost somebody else something."""

from __future__ import annotations

from typing import Any, cast

import pytest

from agent.app.cluster import summary
from agent.app.cluster.claim_lookup import ClaimLookup
from agent.app.cluster.summary import SummaryText
from agent.engine.dry_run import DryRun
from agent.kube.objects.pod_objects import SeenPod
from agent.model.claims import Claims
from agent.model.pod import Pod, Qos
from agent.settings import parse
from tests.world.nodes import managers_of

SMALL = "1 socket x 2 nodes x 4 cores, 4G per node"


def test_a_summary_that_cannot_be_made_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topology loop gets no summary, and no fault; when it can be made again, it is."""
    settings = parse({"fleet": {"publish": True}})[0]
    made, run = SummaryText(lambda: settings), DryRun(managers_of(SMALL, {}))
    assert made.of(run.state, enforcing=True)
    with monkeypatch.context() as broken:

        def fail(*_: object, **__: object) -> None:
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

        broken.setattr(summary, "summarize", fail)
        assert made.of(run.state, enforcing=True) == ""
    assert made.of(run.state, enforcing=True)


def test_pods_with_claims_that_ended_leave_room_for_others() -> None:
    """A thousand finished pods that nobody deleted do not keep the next one's claims from being looked up."""
    body = {"spec": {"resourceClaims": [{"name": "x", "resourceClaimName": "gpu"}],
                     "containers": [{"name": "main", "resources": {"claims": [{"name": "x"}]}}]}}  # fmt: skip
    told: list[str] = []

    class Api:
        def call(self, _method: str, path: str, *_: object, **__: object) -> dict[str, Any]:
            return {"items": []} if "slices" in path else {"status": {"allocation": {"devices": {"results": []}}}}

    class Engine:
        def claims_known(self, uid: str, _claims: Claims) -> None:
            told.append(uid)

    machine = managers_of(SMALL, {}).machine
    lookup = ClaimLookup(cast("Any", Api()), "n", Engine(), lambda: machine, enabled=lambda: True)

    def seen(uid: str, *, ended: bool = False) -> None:
        pod = Pod(uid, uid, "shop", (), Qos.BURSTABLE)
        lookup.pod_known(
            body, SeenPod(pod=pod, ended=ended, started=False, deleting=False, containers={}, api_uid=uid)
        )
        while not lookup._news.empty():
            lookup.heard(*lookup._news.get())
        lookup.work()

    lookup._begun = True
    for number in range(1000):
        seen(f"{number}")
        seen(f"{number}", ended=True)
    seen("next")
    assert told[-1] == "next"
