"""Frames of several byte streams over one socket (containerd/nri, pkg/net/multiplex). Used by `session`.

A frame is: connection id u32, payload length u32, both big-endian, then the payload. Connection 1 carries the
runtime's requests to the plugin, connection 2 the plugin's requests to the runtime. A payload is a piece of a byte
stream: a ttrpc message may span frames.
"""

from __future__ import annotations

import struct

from agent.errors import RuntimeLinkError

PLUGIN_SERVICE = 1
RUNTIME_SERVICE = 2
HEADER = struct.Struct(">II")
MAX_PAYLOAD = 10 + (4 << 20)
"""The largest payload the runtime's side accepts: one ttrpc header and its largest message."""


class Demultiplexer:
    """Turns bytes from the socket into (connection id, payload) pairs; keeps what is incomplete."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Add bytes; returns the frames that are complete now. Raises RuntimeLinkError on an impossible length."""
        self._pending += data
        frames: list[tuple[int, bytes]] = []
        at = 0
        while len(self._pending) - at >= HEADER.size:
            connection, length = HEADER.unpack_from(self._pending, at)
            if length > MAX_PAYLOAD:
                raise RuntimeLinkError(
                    f"NRI: a frame of connection {connection} claims {length} bytes, more than {MAX_PAYLOAD}"
                )
            end = at + HEADER.size + length
            if len(self._pending) < end:
                break
            frames.append((connection, bytes(self._pending[at + HEADER.size : end])))
            at = end
        del self._pending[:at]
        return frames


def frame(connection: int, payload: bytes) -> bytes:
    """Bytes for the socket; a payload longer than a frame may be is cut into several."""
    pieces = [payload[at : at + MAX_PAYLOAD] for at in range(0, len(payload), MAX_PAYLOAD)] or [b""]
    return b"".join(HEADER.pack(connection, len(piece)) + piece for piece in pieces)
