"""Single requests to the API server: everything that the agent writes, and the few objects that it reads by itself.

Used by `publish`, `topology_crd` and `agent.app`. Only the transport of the official client is used, without its
generated models: they cost 22 MiB and half a second on every node and give nothing to an agent that writes JSON
patches. No retries here: the queue above knows what is still worth sending.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import urllib3
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration

from agent import __version__
from agent.errors import KubeError, MalformedError
from agent.kube.access import Access
from agent.kube.listing import CHUNK
from agent.kube.piecewise import PodList, read

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json"
BRIEF = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""An answer without spec and status, where the caller does not read them: half the bytes of every write.
https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches"""
CONNECT_SECONDS, READ_SECONDS = 3.0, 10.0
MANAGER = "numalign"
UNREACHABLE = 0
"""The status of a KubeError when there was no answer at all."""

Count = Callable[[str, int, float], None]
"""Told of every request: verb, HTTP status (0: no answer), seconds."""

Body = Mapping[str, Any]


class KubeClient:
    """Requests with this node's token. Thread-safe, as urllib3's pool is."""

    def __init__(self, access: Access, node: str, count: Count = lambda _verb, _status, _seconds: None) -> None:
        configuration = Configuration()
        configuration.host = access.server
        configuration.ssl_ca_cert = str(access.ca)
        configuration.assert_hostname = None if access.check_name else False  # True would be taken for a name
        configuration.retries = 0
        self._access, self._count = access, count
        self._api = ApiClient(configuration)
        self._api.user_agent = f"numalign/{__version__} node/{node}"

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = JSON,
        query: Sequence[tuple[str, str]] = (),
        verb: str = "",
        brief: bool = False,
        pods: bool = False,
    ) -> dict[str, Any]:
        """One request; the JSON answer.

        Args:
            method: HTTP method.
            path: from "/api" or "/apis".
            body: JSON-able body, None for none.
            kind: content type of the body.
            query: query parameters.
            verb: what to count it as, the method where empty.
            brief: of the object in the answer only the metadata is wanted.
            pods: the answer is a list of pods: of each no more is kept than is read of it.

        Raises:
            KubeError: with the HTTP status, or UNREACHABLE when there was no answer; the text is the server's own.
        """
        headers = {"Accept": BRIEF if brief else JSON, "Authorization": f"Bearer {self._access.token}"}
        if body is not None:
            headers["Content-Type"] = kind
        began, status = time.monotonic(), UNREACHABLE
        text: Any = b""
        found: Callable[[], Any] = dict
        try:
            _, url, sent, data, _ = self._api.param_serialize(
                method, path, query_params=list(query), header_params=headers, body=body
            )
            answer = self._api.call_api(
                method, url, header_params=sent, body=data, _request_timeout=(CONNECT_SECONDS, READ_SECONDS)
            )
            status = answer.status
            if pods and _taken(status):
                found = _listed(answer.response).whole
            else:
                answer.read()  # type: ignore[no-untyped-call] # the client's wrapper of urllib3's response has no types
                text = answer.data
                found = partial(read, text) if text else dict
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeError(UNREACHABLE, f"{method} {path}: no answer: {str(error)[:300]}") from error
        except MalformedError as error:
            raise KubeError(status, f"{method} {path}: {error}") from error
        finally:
            self._count(verb or method, status, time.monotonic() - began)
        return _json(status, found, text, f"{method} {path}")

    def get(self, path: str, *, query: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Read one object or list."""
        return self.call("GET", path, query=query)

    def pod(self, namespace: str, name: str) -> dict[str, Any]:
        """Read one pod."""
        return self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def patch_pod(self, namespace: str, name: str, uid: str, patch: Body) -> dict[str, Any]:
        """Merge a patch into a pod, if it is still the one with that uid (409 otherwise)."""
        metadata = {**patch.get("metadata", {}), "uid": uid}
        return self.call(
            "PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", {**patch, "metadata": metadata}, kind=MERGE,
            query=(("fieldManager", MANAGER),), verb="PATCH pods", brief=True,
        )  # fmt: skip

    def evict(self, namespace: str, name: str, uid: str) -> None:
        """Ask for the eviction of a pod; 429 means that a disruption budget forbids it now."""
        body = {
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }  # fmt: skip
        self.call("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body, verb="POST pods/eviction")

    def delete_pod(self, namespace: str, name: str, uid: str, version: str | None = None) -> None:
        """Delete a pod, if it is still the one with that uid, as it was with that resourceVersion (409 otherwise)."""
        wanted = {"uid": uid, **({"resourceVersion": version} if version else {})}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": wanted}
        self.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", body, verb="DELETE pods", brief=True)

    def create_event(self, namespace: str, event: Body) -> None:
        """Record an Event."""
        self.call("POST", f"/api/v1/namespaces/{namespace}/events", event, verb="POST events", brief=True)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()  # type: ignore[no-untyped-call] # the client ships no types


def _taken(status: int) -> bool:
    return 200 <= status < 300  # noqa: PLR2004 - HTTP's success codes


def _listed(response: urllib3.BaseHTTPResponse) -> PodList:
    found = PodList()
    for data in response.stream(CHUNK, decode_content=True):
        found.feed(data)
    return found


def _json(status: int, found: Callable[[], Any], text: bytes | str, what: str) -> dict[str, Any]:
    """The answer's object, or the server's refusal as an error."""
    try:
        answer = found()
    except ValueError:
        answer = None
    if not _taken(status):
        message = answer.get("message") if isinstance(answer, dict) else None
        raise KubeError(status, f"{what}: {str(message or text)[:500]}")
    if not isinstance(answer, dict):
        raise KubeError(status, f"{what}: the answer is no JSON object")
    return answer
