"""Finding 33: a request for a path that is none is answered, and leaves no traceback in the log."""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import Any

import pytest

from agent.observe.page.server import PageServer


class Nothing:
    """A source with nothing to show."""

    def look(self) -> int:
        return 1

    def node(self, seen: int) -> dict[str, Any]:
        return {"seen": seen}

    def pods(self, seen: int) -> list[dict[str, Any]]:
        return [{"seen": seen}]

    def explanation(self, seen: int, uid: str) -> dict[str, Any] | None:
        return {"uid": uid, "seen": seen}

    def picture(self, seen: int, *, full: bool, bare: bool) -> str:
        return f"{seen}{full}{bare}"


@pytest.mark.parametrize("path", ["//[", "//[::1", "http://[", "//[x]/"])
def test_finding_33_a_path_that_is_none_is_400(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """The page says so with a status; the log has no fault of ours."""
    page = PageServer("127.0.0.1", 0, Nothing())
    port = int(page.address.rstrip("/").rpartition(":")[2])
    with (
        caplog.at_level(logging.INFO), contextlib.closing(page),
        socket.create_connection(("127.0.0.1", port), timeout=60) as client,
    ):  # fmt: skip
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert client.recv(100).split()[1] in (b"400", b"404")
    assert not [record for record in caplog.records if record.exc_info]
