"""ttrpc messages: requests and responses over one connection (containerd/ttrpc, PROTOCOL.md). Used by `session`.

A message is: payload length u32, stream id u32, both big-endian, type u8, flags u8, then the payload, a protobuf
Request or Response. The side that asks uses odd stream ids.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from agent.errors import RuntimeLinkError
from agent.host.nri import nri_pb2

HEADER = struct.Struct(">IIBB")
MAX_MESSAGE = 4 << 20

Decoded = TypeVar("Decoded", bound=Message)


class MessageKind(IntEnum):
    """Message types; streaming data is not used by NRI."""

    REQUEST = 1
    RESPONSE = 2
    DATA = 3


class Code(IntEnum):
    """The gRPC status codes that we answer with."""

    OK = 0
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13


@dataclass(frozen=True, slots=True)
class Raw:
    """One message, payload undecoded."""

    stream: int
    kind: int
    payload: bytes


class FrameReader:
    """Turns the bytes of one connection into messages; keeps what is incomplete."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Raw]:
        """Add bytes; returns the messages that are complete now. Raises RuntimeLinkError on an impossible length."""
        self._pending += data
        messages: list[Raw] = []
        at = 0
        while len(self._pending) - at >= HEADER.size:
            length, stream, kind, _flags = HEADER.unpack_from(self._pending, at)
            if length > MAX_MESSAGE:
                raise RuntimeLinkError(f"ttrpc: a message claims {length} bytes, more than {MAX_MESSAGE}")
            end = at + HEADER.size + length
            if len(self._pending) < end:
                break
            messages.append(Raw(stream, kind, bytes(self._pending[at + HEADER.size : end])))
            at = end
        del self._pending[:at]
        return messages


def pack(stream: int, kind: MessageKind, message: Message) -> bytes:
    """One message as bytes; raises RuntimeLinkError when it is too long for the protocol."""
    payload = message.SerializeToString()
    if len(payload) > MAX_MESSAGE:
        raise RuntimeLinkError(f"ttrpc: a message of {len(payload)} bytes is more than {MAX_MESSAGE}")
    return HEADER.pack(len(payload), stream, kind, 0) + payload


def request(stream: int, service: str, method: str, message: Message, timeout: float) -> bytes:
    """A request as bytes; `timeout` in seconds."""
    body = nri_pb2.Request(
        service=service, method=method, payload=message.SerializeToString(), timeout_nano=int(timeout * 1e9)
    )
    return pack(stream, MessageKind.REQUEST, body)


def response(stream: int, message: Message) -> bytes:
    """A successful response as bytes."""
    body = nri_pb2.Response(status=nri_pb2.Status(code=Code.OK), payload=message.SerializeToString())
    return pack(stream, MessageKind.RESPONSE, body)


def failure(stream: int, code: Code, text: str) -> bytes:
    """Make a response that refuses a request; the runtime passes `text` on to its caller."""
    return pack(stream, MessageKind.RESPONSE, nri_pb2.Response(status=nri_pb2.Status(code=code, message=text)))


def decode(into: Decoded, payload: bytes, what: str) -> Decoded:
    """Fill a protobuf message; raises RuntimeLinkError naming what it should have been."""
    try:
        into.ParseFromString(payload)
    except DecodeError as error:
        raise RuntimeLinkError(f"NRI: {what} is no valid message ({error})") from error
    return into
