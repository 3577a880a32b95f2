"""`numalign ungate`: takes our gate from every pod, with the rights of its caller (safety rule S23).

    1  the switch is removed, and where that is asked for the binding of the admission policy: no pod is gated later
    2  nominations of pods with our gate are cleared, and those that we left on released pods
    3  our gate is lifted from every pod, whatever else it waits for
    4  all is looked at again; what is left is named

Each request can be sent again: a second run does what the first could not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from agent.errors import KubeError, MalformedError
from agent.forecast.gate.values import TAKEN_BACK
from agent.kube.client import JSON, STRATEGIC
from agent.kube.gate.patches import release_patch, status_patch
from agent.kube.gate.switch import LABEL, PART, SWITCH
from agent.kube.gate.unbound_pods import UnboundBody, UnreadablePod, unbound
from agent.kube.gate.writer import path_of
from agent.kube.objects.listing import ListItem
from agent.kube.objects.pod_stream import read
from agent.model.fields import mapping_of

PASSES = 5
"""How often the pods are looked at, while some are left."""
BETWEEN = 1.0
"""Seconds between two looks: the API server needs a moment to notice that the switch is gone."""
NOT_FOUND = 404
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"

Raw = Mapping[str, Any]
T = TypeVar("T")


class UngateApi(Protocol):
    """The API server, with the caller's rights: `agent.kube.caller.Caller`."""

    def pages(
        self, path: str, keep: Callable[[ListItem], T | None], **query: str
    ) -> Iterator[tuple[list[T], int | None]]:
        """See `Caller.pages`."""

    def send(self, method: str, path: str, body: object = None, kind: str = JSON) -> dict[str, Any]:
        """See `Caller.send`."""


@dataclass(slots=True)
class Ungated:
    """What was done, and what is left.

    Attributes:
        switches: ConfigMaps and bindings that were removed.
        cleared: nominations that were cleared.
        lifted: gates that were lifted.
        left: what is left -> why, one sentence each.
    """

    switches: list[str] = field(default_factory=list)
    cleared: int = 0
    lifted: int = 0
    left: dict[str, str] = field(default_factory=dict)


def ungate(
    api: UngateApi, namespace: str = "", *, policy: bool = False, sleep: Callable[[float], None] = time.sleep
) -> Ungated:
    """Take our gate from every pod.

    Args:
        api: of the cluster.
        namespace: of the switch; "" for any.
        policy: remove the binding of the admission policy, too.
        sleep: waits between two looks.

    Raises:
        KubeError: pods cannot be listed.
    """
    done = Ungated()
    if policy:
        _remove(api, POLICIES, f"{LABEL}={PART}", done)
    switches = f"/api/v1/namespaces/{namespace}/configmaps" if namespace else "/api/v1/configmaps"
    _remove(api, switches, SWITCH, done)
    stuck = dict[str, str]()
    for number in range(PASSES):
        found = _pods(api)
        if not found and (number or not done.switches):
            break
        stuck = {_key(each): why for each in found if (why := _free(api, each, done))}
        sleep(BETWEEN)
    for each in _pods(api):
        why = stuck.get(_key(each), "its gate or its nomination is there again")
        done.left[f"pod {_key(each)}"] = why
    if policy:  # without the binding a switch turns nothing on
        for name in _names(api, POLICIES, f"{LABEL}={PART}", done):
            done.left[f"binding {name}"] = "it is there again: remove what makes it, and run this once more"
        return done
    for name in _names(api, switches, SWITCH, done):
        done.left[f"ConfigMap {name}"] = (
            "it is there again: a gatekeeper runs; scale its Deployment to 0, and run this once more"
        )
    return done


def _pods(api: UngateApi) -> list[UnboundBody | UnreadablePod]:
    """List the pods that have our gate, or a nomination that we left."""
    found = list[UnboundBody | UnreadablePod]()
    pages: Iterator[tuple[list[UnboundBody | UnreadablePod], int | None]]
    pages = api.pages("/api/v1/pods", _read, fieldSelector="spec.nodeName=")
    for page, _ in pages:
        found += page
    return [*{_key(each): each for each in found}.values()]


def _read(item: ListItem) -> UnboundBody | UnreadablePod | None:
    try:
        found = unbound(mapping_of(read(item.raw)), False) if item.whole else None  # noqa: FBT003 - a `Reader`
    except (ValueError, MalformedError):
        return None
    if isinstance(found, UnboundBody):
        pod = found.pod
        ours = bool(pod.nominated) and not pod.nominated_by_another
        return found if pod.gated or ours else None
    return found if found is not None and found.gated else None


def _free(api: UngateApi, found: UnboundBody | UnreadablePod, done: Ungated) -> str:
    """Clear and lift; return why that failed, "" where it did not."""
    nominated = found.pod.nominated if isinstance(found, UnboundBody) else "unknown"
    version = found.pod.version if isinstance(found, UnboundBody) else found.version
    gated = found.pod.gated if isinstance(found, UnboundBody) else found.gated
    path = path_of(_key(found))
    refused = list[str]()
    if nominated:
        patch = status_patch(
            found.uid, "" if gated else version, nominated="", condition=TAKEN_BACK, since=time.time()
        )
        done.cleared += _sent(api, f"{path}/status", patch, refused)
    if gated:
        done.lifted += _sent(api, path, release_patch(found.uid, "", {}), refused)
    return "; ".join(refused)


def _sent(api: UngateApi, path: str, patch: object, refused: list[str]) -> bool:
    """Send a patch, and note why it was refused; return whether it was carried out."""
    try:
        api.send("PATCH", path, patch, STRATEGIC)
    except KubeError as error:
        refused += [] if error.status == NOT_FOUND else [str(error)]
        return False
    return True


def _key(found: UnboundBody | UnreadablePod) -> str:
    return found.pod.pod.key if isinstance(found, UnboundBody) else found.key


def _remove(api: UngateApi, path: str, selector: str, done: Ungated) -> None:
    for name in _names(api, path, selector, done):
        space, _, own = name.rpartition("/")
        target = f"/api/v1/namespaces/{space}/configmaps/{own}" if space else f"{path}/{own}"
        try:
            api.send("DELETE", target)
            done.switches.append(name)
        except KubeError as error:
            if error.status != NOT_FOUND:
                done.left[name] = str(error)


def _names(api: UngateApi, path: str, selector: str, done: Ungated) -> list[str]:
    """Return "namespace/name", or the name, of what a selector finds; a kind that is not served has none."""

    def name(item: ListItem) -> str | None:
        metadata = mapping_of(mapping_of(read(item.raw)).get("metadata"))
        space, own = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
        return f"{space}/{own}" if space else own or None

    try:
        return [each for page, _ in api.pages(path, name, labelSelector=selector) for each in page]
    except KubeError as error:
        if error.status != NOT_FOUND:
            done.left[path] = f"it cannot be listed: {error}"
        return []
