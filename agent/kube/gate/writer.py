"""Sends what `agent.forecast.gate` wants done, and makes an event of the API server's answer. Thread-safe.

A nomination is two patches, and nothing is waited for between them: the second names the version that the answer to
the first has. The lease is asked before each request, so that a replica that lost it writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from agent.errors import KubeError
from agent.forecast.gate.events import (
    Answer,
    ClearNomination,
    Effect,
    LiftUndecided,
    LookedUp,
    LookUp,
    Nominate,
    PatchAnswered,
    Release,
)
from agent.forecast.gate.values import TAKEN_BACK
from agent.kube.client import STRATEGIC, KubeClient
from agent.kube.gate.patches import release_patch, status_patch
from agent.kube.pod_report import CONDITION, refuses
from agent.model.fields import mapping_of, mappings_in

MANAGER = "numalign-gatekeeper"
NOT_FOUND, CONFLICT = 404, 409
Json = Mapping[str, Any]


class NotLeadingError(Exception):
    """The lease is not held: nothing was sent."""


class GateWriter:
    """Carries effects out.

    Args:
        client: of the API.
        affinity_of: a pod's spec.affinity.nodeAffinity by uid, as the watch showed it last.
        leads: tells whether this replica may write.
        between: called after a nomination and before its release; tests end the process there.
        wall: seconds since the epoch.
    """

    def __init__(
        self, client: KubeClient, affinity_of: Callable[[str], Json], leads: Callable[[], bool] = lambda: True, *,
        between: Callable[[], None] = lambda: None, wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._client, self._affinity_of, self._leads = client, affinity_of, leads
        self._between, self._wall = between, wall

    def carry_out(self, effect: Effect) -> PatchAnswered | LookedUp | None:
        """Send an effect's requests; None where a look-up got no answer.

        Raises:
            NotLeadingError: the lease is lost.
        """
        if isinstance(effect, LookUp):
            return self._found(effect)
        if isinstance(effect, Nominate):
            return self._nominated(effect)
        if isinstance(effect, Release | LiftUndecided):
            answer, version = self._released(effect, effect.version)
            return PatchAnswered(effect, answer, version=version)
        if isinstance(effect, ClearNomination):
            body = status_patch(effect.uid, effect.version, nominated="", condition=TAKEN_BACK, since=self._wall())
        else:
            body = status_patch(effect.uid, effect.version, condition=effect.condition, since=effect.since)
        answer, version = self._patch(effect.key, body, "/status")
        return PatchAnswered(effect, answer, version=version)

    def _nominated(self, effect: Nominate) -> PatchAnswered:
        body = status_patch(
            effect.uid, effect.version, nominated=effect.node, condition=effect.condition, since=self._wall()
        )
        answer, version = self._patch(effect.key, body, "/status")
        if answer is not Answer.DONE:
            return PatchAnswered(effect, answer)
        self._between()
        answer, newer = self._released(effect.release, version)
        return PatchAnswered(effect, answer, nominated=True, version=newer or version)

    def _released(self, effect: Release | LiftUndecided, version: str) -> tuple[Answer, str]:
        if isinstance(effect, LiftUndecided):
            return self._patch(effect.key, release_patch(effect.uid, version, {}))
        affinity = self._affinity_of(effect.uid)
        body = release_patch(effect.uid, version, affinity, not_in=effect.not_in, prefer=effect.prefer)
        return self._patch(effect.key, body)

    def _patch(self, key: str, body: Json, part: str = "") -> tuple[Answer, str]:
        if not self._leads():
            raise NotLeadingError
        try:
            found = self._client.call(
                "PATCH", f"{path_of(key)}{part}", body, kind=STRATEGIC, query=(("fieldManager", MANAGER),),
                verb=f"PATCH pods{part}", brief=True,
            )  # fmt: skip
        except KubeError as error:
            return answer_of(error), ""
        return Answer.DONE, str(mapping_of(found.get("metadata")).get("resourceVersion") or "")

    def _found(self, effect: LookUp) -> LookedUp | None:
        if not self._leads():
            raise NotLeadingError
        namespace, _, name = effect.key.partition("/")
        try:
            body = self._client.pod(namespace, name)
        except KubeError as error:
            return LookedUp(effect.uid, gone=True) if error.status == NOT_FOUND else None
        metadata, spec, status = (mapping_of(body.get(part)) for part in ("metadata", "spec", "status"))
        if metadata.get("uid") != effect.uid:
            return LookedUp(effect.uid, gone=True)
        own = [each for each in mappings_in(status.get("conditions")) if each.get("type") == CONDITION]
        refused = any(refuses(each.get("status"), each.get("reason")) for each in own)
        undecided = not own and status.get("phase") == "Pending"
        return LookedUp(effect.uid, str(spec.get("nodeName") or ""), refused=refused, undecided=undecided)


def path_of(key: str) -> str:
    """Return the path of a pod."""
    namespace, _, name = key.partition("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def answer_of(error: KubeError) -> Answer:
    """Return what a refusal means for the pod."""
    return {CONFLICT: Answer.CONFLICT, NOT_FOUND: Answer.GONE}.get(error.status, Answer.FAILED)
