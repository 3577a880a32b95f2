"""Looks up what a gated pod refers to: defaults of its namespace, volume claims, clocks and size of its owner.

Each object is read by a GET when a pod needs it, and kept for a few seconds: pods of one owner share an answer. What
may not be read counts as absent, and the rules of nomination then leave the pod to NotIn alone.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from agent.errors import KubeError, MalformedError
from agent.forecast.gate.values import Gang, OwnerClock, UnboundPod, VolumeClaim
from agent.forecast.placing import Requirement, Term, placing_of
from agent.kube.client import KubeClient
from agent.kube.gate.unbound_pods import UnboundBody
from agent.kube.watch.namespaces import Namespaces
from agent.model.fields import Field, mapping_of, mappings_in, plain, seconds_of
from agent.model.notes import bounded
from agent.model.object_ids import owners_of

SHORT, LONG = 5.0, 30.0
"""Seconds that an answer is kept: of a Job or a claim that is not bound, and of the rest."""
MOST, MOST_CLAIMS = 2000, 20
"""Answers that are kept; volume claims of a pod that are looked up: of one with more none is, and R2 says so."""
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
"""The name of an object. The API server takes any text for a claim's or an owner's: as a path it could be a watch."""
NOT_FOUND, FORBIDDEN = 404, 403
NEVER = float("inf")
ENDLESS = 2**31 - 1
"""The progressDeadlineSeconds of a Deployment that means none."""
DEADLINE = 600

Raw = Mapping[str, Any]


class References:
    """Looks up; for one thread.

    Args:
        client: of the API.
        clock: seconds, monotonic.
        wall: seconds since the epoch.
    """

    def __init__(
        self, client: KubeClient, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._client, self._clock, self._wall = client, clock, wall
        self._namespaces = Namespaces(client.get, clock)
        self._kept: OrderedDict[str, tuple[float, Raw | None]] = OrderedDict()

    def whole(self, body: UnboundBody) -> tuple[UnboundPod, float]:
        """Return the pod with all that it refers to, and the seconds after which it is to be looked up again.

        Raises:
            KubeError: the API server gave no good answer; the pod is to be looked up again soon.
        """
        pod = body.pod.pod
        defaults = self._namespaces.annotations(pod.namespace)
        if defaults:
            pod = replace(pod, annotations=bounded({**defaults, **pod.annotations}))
        names = body.claims if len(body.claims) <= MOST_CLAIMS else ()
        claims = tuple(self._claim(pod.namespace, name) for name in names)
        clocks, gang = self._owner(body)
        again = SHORT if gang or not all(each.bound or each.waits for each in claims) else NEVER
        again = min(again, LONG if clocks else NEVER)
        return replace(body.pod, pod=pod, claims=claims, clocks=clocks, gang=body.pod.gang or gang), again

    def _owner(self, body: UnboundBody) -> tuple[tuple[OwnerClock, ...], Gang | None]:
        owner = body.owner
        space, _, name = owner.key.partition("/") if owner else ("", "", "")
        if owner is not None and owner.kind == "Job":
            return self._job(space, name)
        if owner is None or owner.kind != "ReplicaSet":
            return (), None
        found = self._get(f"/apis/apps/v1/namespaces/{space}/replicasets", name, LONG)
        above = owners_of(mapping_of((found or {}).get("metadata")), space)
        key = next((each.key for each in above if each.kind == "Deployment"), "")
        return tuple(self._deployment(space, key.partition("/")[2])) if key else (), None

    def _job(self, space: str, name: str) -> tuple[tuple[OwnerClock, ...], Gang | None]:
        found = self._get(f"/apis/batch/v1/namespaces/{space}/jobs", name, SHORT)
        spec, status = (mapping_of((found or {}).get(part)) for part in ("spec", "status"))
        clocks = []
        deadline, started = _number(spec.get("activeDeadlineSeconds")), seconds_of(status.get("startTime"))
        if deadline is not None:
            what = f"activeDeadlineSeconds of Job {space}/{name}"
            clocks.append(OwnerClock(what, (self._wall() if started is None else started) + deadline))
        parallel, completions = _number(spec.get("parallelism")) or 1, _number(spec.get("completions"))
        ended, ready = _number(status.get("succeeded")) or 0, _number(status.get("ready")) or 0
        wanted = parallel if completions is None else min(parallel, completions - ended)
        gang = Gang(f"{space}/Job/{name}", max(1, wanted - ready)) if parallel > 1 else None
        return tuple(clocks), gang

    def _deployment(self, space: str, name: str) -> Iterator[OwnerClock]:
        found = self._get(f"/apis/apps/v1/namespaces/{space}/deployments", name, LONG)
        spec, status = (mapping_of((found or {}).get(part)) for part in ("spec", "status"))
        deadline = _number(spec.get("progressDeadlineSeconds")) or DEADLINE
        for each in mappings_in(status.get("conditions"), MOST):
            moved = seconds_of(each.get("lastUpdateTime"))
            runs = each.get("status") == "True" and each.get("reason") != "NewReplicaSetAvailable"
            if each.get("type") == "Progressing" and runs and moved is not None and deadline < ENDLESS:
                yield OwnerClock(f"progressDeadlineSeconds of Deployment {space}/{name}", moved + deadline)

    def _claim(self, space: str, name: str) -> VolumeClaim:
        found = self._get(f"/api/v1/namespaces/{space}/persistentvolumeclaims", name, SHORT)
        if found is None:
            return VolumeClaim(plain(name), exists=False, bound=False)
        spec = mapping_of(found.get("spec"))
        volume = spec.get("volumeName")
        if volume and mapping_of(found.get("status")).get("phase") == "Bound":
            body = self._get("/api/v1/persistentvolumes", volume, LONG)
            affinity = mapping_of(mapping_of(mapping_of(body or {}).get("spec")).get("nodeAffinity"))
            return VolumeClaim(plain(name), bound=body is not None, terms=_terms(affinity.get("required")))
        body = self._get("/apis/storage.k8s.io/v1/storageclasses", spec.get("storageClassName"), LONG) or {}
        waits = body.get("volumeBindingMode") == "WaitForFirstConsumer"
        return VolumeClaim(plain(name), bound=False, waits=waits, terms=_topologies(body.get("allowedTopologies")))

    def _get(self, folder: str, name: object, lasts: float) -> Raw | None:
        """Read an object; None where it is not there, may not be read, or cannot have that name."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            return None
        path = f"{folder}/{name}"
        until, found = self._kept.get(path, (0.0, None))
        if self._clock() < until:
            return found
        try:
            found = self._client.get(path)
        except KubeError as error:
            if error.status not in (NOT_FOUND, FORBIDDEN):
                raise
            found = None
        self._kept[path] = (self._clock() + lasts, found)
        self._kept.move_to_end(path)
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return found


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= ENDLESS else None


def _terms(required: object) -> tuple[Term, ...] | None:
    """Return the node rules of a volume; one that cannot be read lets it go nowhere."""
    if not required:
        return None
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    try:
        return placing_of(Field({"affinity": affinity})).terms
    except MalformedError:
        return ()


def _topologies(allowed: object) -> tuple[Term, ...] | None:
    """Return the node rules of a storage class."""
    found = [
        Term(tuple(
            Requirement(str(each.get("key")), "In", tuple(map(str, each.get("values") or ())))
            for each in mappings_in(term.get("matchLabelExpressions"), MOST)
        ))
        for term in mappings_in(allowed, MOST)
    ]  # fmt: skip
    return tuple(found) or None
