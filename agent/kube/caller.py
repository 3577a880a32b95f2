"""Requests with the rights of the user of a command: a kubeconfig, or a pod's service account. Mostly lists.

The kubeconfig is read by the official client, with its credential plugins. A list comes page by page (limit and
continue), each page object by object: of what is not kept, one object is in memory at a time.
https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from kubernetes import config
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration

from agent import __version__
from agent.errors import KubeError, MalformedError, SettingsError
from agent.kube.access import header_text
from agent.kube.client import JSON, UNREACHABLE, refusal, silence
from agent.kube.objects.listing import CHUNK, Items, ListItem
from agent.kube.objects.pod_stream import read

PAGE = 500
"""Objects of a page."""
GONE = 410
ATTEMPTS = 3
"""How often a list is tried in all: it starts again when its continue token has expired."""
AUTHORIZATION = "authorization"
WITHIN = (10.0, 60.0)
"""Seconds to connect, and of silence: a page of a busy server takes its time."""

T = TypeVar("T")


class Caller:
    """Lists objects.

    Args:
        kubeconfig: file; None for kubectl's own choice ($KUBECONFIG, ~/.kube/config), or the pod's service account.
        context: of the kubeconfig; "" for its current one.
        page: objects of a page.

    Raises:
        SettingsError: there is no such file or context, or it cannot be used.
    """

    def __init__(self, kubeconfig: Path | None = None, context: str = "", page: int = PAGE) -> None:
        found = Configuration()
        try:
            _load(found, kubeconfig, context)
        except Exception as error:  # noqa: BLE001 - whatever is in the file ends in one sentence
            why = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
            raise SettingsError(
                "--context" if context else "--kubeconfig",
                f"no cluster can be asked: {why.rstrip('.')}; `kubectl config get-contexts` lists what there is",
            ) from None
        found.retries = 0
        self._api, self._page = ApiClient(found), page
        self._api.user_agent = f"numalign/{__version__} fleet"

    def pages(
        self, path: str, keep: Callable[[ListItem], T | None], **query: str
    ) -> Iterator[tuple[list[T], int | None]]:
        """Read a list; yield, per page, what `keep` makes of each object, and how many objects are left.

        The number is None where the server does not send it. A list that has to start again yields objects twice: the
        last one counts.

        Raises:
            KubeError: the server refused, or there was no whole answer.
        """
        for attempt in range(1, ATTEMPTS + 1):
            token = ""
            try:
                while True:
                    asked = {**query, "limit": str(self._page), **({"continue": token} if token else {})}
                    found, metadata = self._page_of(path, asked, keep)
                    left, token = metadata.get("remainingItemCount"), str(metadata.get("continue") or "")
                    yield found, left if isinstance(left, int) else None if token else 0
                    if not token:
                        return
            except KubeError as error:
                if error.status != GONE or attempt == ATTEMPTS:
                    raise

    def send(self, method: str, path: str, body: object = None, kind: str = JSON) -> dict[str, Any]:
        """Send one request that changes something; return the answer's JSON object.

        Raises:
            KubeError: the server refused, or there was no answer.
        """
        found = self._answer(method, path, {}, body, kind, lambda answer: answer.data)
        try:
            made = read(found) if found else {}
        except ValueError:
            made = {}
        return made if isinstance(made, dict) else {}

    def _answer(
        self, method: str, path: str, query: dict[str, str], body: object, kind: str,
        reader: Callable[[urllib3.BaseHTTPResponse], T],
    ) -> T:  # fmt: skip
        """Send a request, and read the answer where it is a good one; raises KubeError."""
        what, status = f"{method} {path}", UNREACHABLE
        try:
            _, url, headers, _, _ = self._api.param_serialize(
                method, path, query_params=list(query.items()), header_params={"Accept": JSON},
                auth_settings=["BearerToken"],
            )  # fmt: skip
            headers = {key: header_text(value) if key.lower() == AUTHORIZATION else value
                       for key, value in headers.items()}  # fmt: skip
            if body is not None:
                headers["Content-Type"] = kind
            answer = self._api.call_api(
                method, url, header_params=headers, body=body, _request_timeout=WITHIN
            ).response  # fmt: skip
            status = answer.status
            if not 200 <= status < 300:  # noqa: PLR2004 - HTTP's success codes
                raise KubeError(status, f"{what}: {refusal(answer)}")
            return reader(answer)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeError(UNREACHABLE, f"{what}: {silence(error, WITHIN)}") from error
        except MalformedError as error:
            raise KubeError(status, f"{what}: {error}") from error

    def _page_of(
        self, path: str, query: dict[str, str], keep: Callable[[ListItem], T | None]
    ) -> tuple[list[T], dict[str, Any]]:
        def page(answer: urllib3.BaseHTTPResponse) -> tuple[list[T], Any]:
            items, found = Items(part=True), list[T]()
            for data in answer.stream(CHUNK, decode_content=True):
                found += [kept for each in items.feed(data) if (kept := keep(each)) is not None]
            return found, items.close().get("metadata")

        found, metadata = self._answer("GET", path, query, None, JSON, page)
        return found, metadata if isinstance(metadata, dict) else {}

    def close(self) -> None:
        """Close the connections."""
        self._api.close()  # type: ignore[no-untyped-call] # the client ships no types


def _load(found: Configuration, kubeconfig: Path | None, context: str) -> None:
    if kubeconfig is not None and not kubeconfig.is_file():
        raise ValueError(f"{kubeconfig} is no file")
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call] # the client ships no types
            None if kubeconfig is None else str(kubeconfig), context or None, found, persist_config=False
        )
    except config.ConfigException as error:
        if kubeconfig is not None or context:
            raise
        try:
            config.load_incluster_config(found)  # type: ignore[no-untyped-call] # as above
        except config.ConfigException:
            raise error from None
