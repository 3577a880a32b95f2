"""Single requests to the API server: everything that the agent writes, and all reads besides the watch.

The transport is urllib3's, as the official client's is. That client costs 12 MiB on every node, 34 with its models,
and gives nothing to an agent that writes JSON patches; the commands use it (`agent.kube.caller`). Nothing is retried
here: the publisher's queue knows what is still worth sending.

Variables of the environment (HTTPS_PROXY, NO_PROXY and the like) count here as little as in the watch, which does not
read them: the API server is reached directly, as a node agent must work when a proxy does not.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import urllib3

from agent import __version__
from agent.errors import KubeError, MalformedError
from agent.kube.access import ApiAccess
from agent.kube.objects.listing import CHUNK, HEAD, LARGEST
from agent.kube.objects.pod_stream import PodList, pod, read
from agent.model.fields import shortened

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json"
BRIEF = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""An answer without spec and status, where the caller does not read them: half the bytes of every write.
https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches"""
CONNECTIONS = 8
"""Connections to the API server that are kept open; a thread uses one at a time."""
CONNECT_SECONDS, READ_SECONDS = 3.0, 10.0
MANAGER = "numalign"
UNREACHABLE = 0
"""The status of a KubeError without an answer."""

Count = Callable[[str, int, float], None]
"""Counts a request: verb, HTTP status (0: no answer), seconds."""

Body = Mapping[str, Any]
Response = urllib3.BaseHTTPResponse
Reader = Callable[[Response], Any]
"""Reads the answer of a request that succeeded."""


class KubeClient:
    """Requests with this node's token. Thread-safe, as urllib3's pool is."""

    def __init__(self, access: ApiAccess, node: str, count: Count = lambda _verb, _status, _seconds: None) -> None:
        self._access, self._count = access, count
        self._pool = urllib3.PoolManager(
            maxsize=CONNECTIONS, retries=False, cert_reqs="CERT_REQUIRED", ca_certs=str(access.ca),
            assert_hostname=None if access.check_name else False,  # True would be taken for a name
        )  # fmt: skip
        self._agent = f"numalign/{__version__} node/{node}"

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
        reader: Reader | None = None,
        within: tuple[float, float] = (CONNECT_SECONDS, READ_SECONDS),
    ) -> dict[str, Any]:
        """Send one request; return the JSON answer, of LARGEST bytes at most.

        Args:
            method: HTTP method.
            path: from "/api" or "/apis".
            body: JSON-able body, None for none.
            kind: content type of the body.
            query: query parameters.
            verb: the name that it is counted by; "" for the method.
            brief: ask for the metadata of the object alone.
            reader: for an answer that may be larger, of which a part is kept: `pod_list`, `one_pod`, `unread`.
            within: seconds to connect, and of silence.

        Raises:
            KubeError: with the HTTP status, or UNREACHABLE when there was no answer; the text is the server's own.
        """
        headers = {
            "Accept": BRIEF if brief else JSON, "Authorization": f"Bearer {self._access.token}",
            "User-Agent": self._agent,
        }  # fmt: skip
        if body is not None:
            headers["Content-Type"] = kind
        data = None if body is None else json.dumps(body)
        url = f"{self._access.server}{path}{'?' if query else ''}{urlencode(query)}"
        began, status, found = time.monotonic(), UNREACHABLE, None
        patience = urllib3.Timeout(connect=within[0], read=within[1])  # by position the first is the sum of both
        what = f"{method} {path}"
        try:
            answer = self._pool.request(
                method, url, body=data, headers=headers, timeout=patience, preload_content=False,
            )  # fmt: skip
            status = answer.status
            if not _taken(status):
                raise KubeError(status, f"{what}: {refusal(answer)}")
            found = (reader or _object)(answer)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeError(UNREACHABLE, f"{what}: {silence(error, within)}") from error
        except MalformedError as error:
            raise KubeError(status, f"{what}: {error}") from error
        finally:
            self._count(verb or method, status, time.monotonic() - began)
        if not isinstance(found, dict):
            raise KubeError(status, f"{what}: the answer is no JSON object")
        return found

    def get(self, path: str, *, query: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Read one object or list."""
        return self.call("GET", path, query=query)

    def pod(self, namespace: str, name: str) -> dict[str, Any]:
        """Read one pod; the answer has the fields of `objects.read_fields` alone."""
        return self.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}", reader=one_pod)

    def patch_pod(self, namespace: str, name: str, uid: str, patch: Body) -> dict[str, Any]:
        """Merge a patch into a pod, if it still has that uid (409 otherwise)."""
        metadata = {**patch.get("metadata", {}), "uid": uid}
        return self.call(
            "PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", {**patch, "metadata": metadata}, kind=MERGE,
            query=(("fieldManager", MANAGER),), verb="PATCH pods", brief=True, reader=unread,
        )  # fmt: skip

    def evict(self, namespace: str, name: str, uid: str) -> None:
        """Evict a pod; status 429 means that a disruption budget forbids it now."""
        body = {
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }  # fmt: skip
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        self.call("POST", path, body, verb="POST pods/eviction", reader=unread)

    def delete_pod(self, namespace: str, name: str, uid: str, version: str | None = None) -> None:
        """Delete a pod, if it still has that uid and that resourceVersion (409 otherwise)."""
        wanted = {"uid": uid, **({"resourceVersion": version} if version else {})}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": wanted}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self.call("DELETE", path, body, verb="DELETE pods", brief=True, reader=unread)

    def create_event(self, namespace: str, event: Body) -> None:
        """Record an Event."""
        path = f"/api/v1/namespaces/{namespace}/events"
        self.call("POST", path, event, verb="POST events", brief=True, reader=unread)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()


def silence(error: Exception, within: tuple[float, float]) -> str:
    """Return why there was no answer: the cause, without the client's text around it."""
    reason = getattr(error, "reason", None)
    reason = reason if isinstance(reason, Exception) else error
    if isinstance(reason, urllib3.exceptions.ReadTimeoutError):
        return f"nothing came for {within[1]:g} s"
    if type(reason) is urllib3.exceptions.ConnectTimeoutError:  # a refused connection is a kind of it
        return f"no connection within {within[0]:g} s"
    cause = getattr(reason, "original_error", None) or reason
    return f"no answer: {type(reason).__name__}: {shortened(str(cause).rpartition('): ')[2], 300)}"


def _taken(status: int) -> bool:
    return 200 <= status < 300  # noqa: PLR2004 - HTTP's success codes


def pod_list(response: Response, keep: Callable[[Any], Any] = lambda body: body) -> dict[str, Any]:
    """Read a list of pods; each is reduced to the fields of `objects.read_fields`, then by `keep`."""
    found = PodList(keep)
    for data in _chunks(response):
        found.feed(data)
    return found.whole()


def one_pod(response: Response) -> Any:  # noqa: ANN401 - JSON
    """Read one pod, reduced as a pod of a list is."""
    text, whole = _text(response)
    return pod(text, whole=whole)


def unread(response: Response) -> dict[str, Any]:
    """Discard the answer: it is not needed, and a tenant may have made it large."""
    for _ in _chunks(response):
        pass
    return {}


def _object(response: Response) -> Any:  # noqa: ANN401 - JSON
    text, whole = _text(response)
    if not whole:
        raise MalformedError(f"the answer has more than {LARGEST} bytes")
    try:
        return read(text) if text else {}
    except ValueError:
        return None


def refusal(response: Response) -> str:
    """Return the server's message for a refused request, of 500 characters at most."""
    text, _ = _text(response)
    with contextlib.suppress(ValueError):  # no JSON: its text is shown
        found = read(text)
        if isinstance(found, dict) and found.get("message"):
            return str(found["message"])[:500]
    return text.decode("utf-8", "replace")[:500]


def _text(response: Response) -> tuple[bytes, bool]:
    """Return an answer and True; of one larger than LARGEST the first HEAD bytes and False."""
    found, whole = bytearray(), True
    for data in _chunks(response):
        whole = whole and len(found) + len(data) <= LARGEST
        found += data if whole else b""
    return (bytes(found), True) if whole else (bytes(found[:HEAD]), False)


def _chunks(response: Response) -> Iterator[bytes]:
    return response.stream(CHUNK, decode_content=True)
