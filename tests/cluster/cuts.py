"""A relay between an agent and the API server, whose connections can be cut, as load balancers do now and then."""

from __future__ import annotations

import contextlib
import socket
import threading


class Cuts:
    """Listens on loopback and passes bytes on to a port of loopback."""

    def __init__(self, to: int) -> None:
        self._to, self._open = to, set[socket.socket]()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.server = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """End every connection; how many."""
        with self._lock:
            ends, self._open = self._open, set()
        for each in ends:
            with contextlib.suppress(OSError):  # the other end closed it meanwhile
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        return len(ends) // 2

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the other end closed it meanwhile
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._to), 5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the other end closed it meanwhile
            while data := one.recv(1 << 16):
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):  # the other end closed it meanwhile
                each.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._open.discard(each)
            each.close()
