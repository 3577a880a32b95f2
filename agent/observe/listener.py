"""The HTTP server under both of ours: the small one for probes and metrics, and the node page's."""

from __future__ import annotations

import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from agent.observe.logs import LOG


class Listener(ThreadingHTTPServer):
    """A thread per connection, on an IPv4 or IPv6 address.

    Args:
        address: host and port; port 0 takes a free one.
        handler: of requests.
        failed: for the log, when a fault of ours ends a request.

    Raises:
        OSError: it cannot be listened on.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], failed: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._failed = failed
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """HTTPServer's own asks DNS for the name of its address, which may not answer yet."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as socketserver has it
        """A client that went away is no event; anything else goes to the log, not between its lines."""
        del request, client_address
        if not isinstance(sys.exception(), OSError):
            LOG.exception(self._failed)
