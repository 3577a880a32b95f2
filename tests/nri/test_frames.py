"""The NRI wire format, without a runtime: any cutting of the bytes, any nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import RuntimeLinkError
from agent.host.nri import mux, nri_pb2, ttrpc
from agent.host.nri.plugin import Plugin
from agent.host.nri.session import Identity
from tests import patience
from tests.examples import examples
from tests.nri.handlers import Recorder
from tests.patience import PATIENCE

PATIENT = Identity(answer_within=30.0)
"""A busy test machine must not decide what a handler may answer; the deadline has its own test."""

PAYLOADS = st.lists(st.tuples(st.integers(1, 3), st.binary(max_size=40)), max_size=6)


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The same bytes in pieces."""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        yield data[start:end]


@given(frames=PAYLOADS, cuts=st.lists(st.integers(0, 400), max_size=8))
def test_frames_survive_any_cutting(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    """However the socket cuts the bytes, the same frames come out in the same order."""
    data = b"".join(mux.frame(connection, payload) for connection, payload in frames)
    reader = mux.Demultiplexer()
    assert [each for piece in pieces(data, cuts) for each in reader.feed(piece)] == frames


@given(payloads=st.lists(st.binary(max_size=60), max_size=5), cuts=st.lists(st.integers(0, 400), max_size=8))
def test_messages_survive_any_cutting(payloads: list[bytes], cuts: list[int]) -> None:
    """However frames cut a connection's bytes, the same ttrpc messages come out."""
    data = b"".join(
        ttrpc.pack(stream, ttrpc.MessageKind.RESPONSE, nri_pb2.Response(payload=payload))
        for stream, payload in enumerate(payloads)
    )
    reader = ttrpc.FrameReader()
    found = [each for piece in pieces(data, cuts) for each in reader.feed(piece)]
    assert [nri_pb2.Response.FromString(each.payload).payload for each in found] == payloads
    assert [each.stream for each in found] == list(range(len(payloads)))


@given(data=st.binary(max_size=300))
def test_nonsense_is_a_named_error_or_nothing(data: bytes) -> None:
    """Random bytes never raise anything but RuntimeLinkError, and never make the reader wait for gigabytes."""
    for reader in (mux.Demultiplexer(), ttrpc.FrameReader()):
        with contextlib.suppress(RuntimeLinkError):  # the one error that is allowed
            reader.feed(data)


def test_a_payload_beyond_the_limit_is_cut_into_frames() -> None:
    """No frame is longer than the runtime accepts."""
    data = mux.frame(1, b"x" * (mux.MAX_PAYLOAD + 5))
    frames = mux.Demultiplexer().feed(data)
    assert [len(payload) for _, payload in frames] == [mux.MAX_PAYLOAD, 5]


def test_a_message_beyond_the_limit_is_refused_before_it_is_sent() -> None:
    """The runtime would end the connection; we say it ourselves."""
    with pytest.raises(RuntimeLinkError, match="more than"):
        ttrpc.pack(1, ttrpc.MessageKind.RESPONSE, nri_pb2.Response(payload=b"x" * (ttrpc.MAX_MESSAGE + 1)))


class Nonsense:
    """A runtime that answers the registration, then sends a request made of nonsense, and hears the answer."""

    def __init__(self, socket: Path, parts: list[bytes]) -> None:
        self.parts, self.answers, self.connections = parts, list[nri_pb2.Response](), 0
        self._socket = socket
        self._serving = set[asyncio.Task[None] | None]()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_unix_server(self._client, self._socket)
        self._ready.set()
        await self._stop.wait()
        server.close()
        while asyncio.all_tasks() - {asyncio.current_task()}:
            for each in filter(
                None, self._serving
            ):  # of who has begun: who is cancelled before leaves its connection open
                each.cancel()
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)  # their transports close

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writer = writer
        self._serving.add(asyncio.current_task())
        try:
            frames, registering, answers = mux.Demultiplexer(), ttrpc.FrameReader(), ttrpc.FrameReader()
            while data := await reader.read(1 << 16):
                for connection, payload in frames.feed(data):
                    if connection == mux.RUNTIME_SERVICE:
                        for message in registering.feed(payload):
                            writer.write(mux.frame(2, ttrpc.response(message.stream, nri_pb2.Empty())))
                            writer.write(b"".join(self.parts))
                    else:
                        self.answers += [
                            nri_pb2.Response.FromString(message.payload) for message in answers.feed(payload)
                        ]
        except OSError:
            pass
        finally:
            writer.transport.abort()  # megabytes of nonsense may be left, and nobody reads them

    def send(self, data: bytes) -> None:
        """Say something more on the newest connection."""
        self._loop.call_soon_threadsafe(self._writer.write, data)

    def stop(self) -> None:
        """End the server."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)


def quick() -> Iterator[float]:
    """Reconnect soon."""
    while True:
        yield 0.01


def ask(stream: int, service: str, method: str, payload: bytes) -> bytes:
    """A request as the runtime would send it, its payload anything."""
    body = nri_pb2.Request(service=service, method=method, payload=payload)
    return mux.frame(1, ttrpc.pack(stream, ttrpc.MessageKind.REQUEST, body))


def test_malformed_requests_are_answered_open_and_counted(tmp_path: Path) -> None:
    """Undecodable payloads and missing parts fail no pod: the answer changes nothing; unknown methods are named.

    Finding 30.
    """
    plugin_service = "nri.pkg.api.v1alpha1.Plugin"
    good = nri_pb2.PodRequest(pod=nri_pb2.PodSandbox(id="s", uid="u")).SerializeToString()
    parts = [
        ask(1, plugin_service, "NoSuchMethod", b""),
        ask(3, "some.other.Service", "RunPodSandbox", good),
        ask(5, plugin_service, "RunPodSandbox", b"\xff\xff\xff"),
        ask(7, plugin_service, "CreateContainer", good),
        mux.frame(1, ttrpc.HEADER.pack(3, 9, ttrpc.MessageKind.REQUEST, 0) + b"\xff\xff\xff"),
        mux.frame(9, b"a connection that we do not know"),
        ask(11, plugin_service, "RunPodSandbox", good),
    ]
    server, handler = Nonsense(tmp_path / "s", parts), Recorder()
    outcomes: list[str] = []
    plugin = Plugin(
        str(tmp_path / "s"), handler, delays=quick, identity=PATIENT, count=lambda _m, how, _s: outcomes.append(how)
    )
    plugin.start()
    patience.until(lambda: len(server.answers) >= 6, "six answers")
    codes = [answer.status.code for answer in server.answers]
    assert codes == [12, 12, 0, 0, 0, 0]
    assert "NoSuchMethod" in server.answers[0].status.message
    assert [answer.payload for answer in server.answers[2:]] == [b""] * 4
    assert outcomes[:6] == ["unknown", "unknown", "malformed", "malformed", "malformed", "ok"]
    assert [name for name, _ in handler.seen] == ["run"]
    assert plugin.stop(PATIENCE)
    server.stop()


def test_the_older_form_of_an_event_names_its_pod_or_its_container(tmp_path: Path) -> None:
    """StateChange: without a container it is the pod's; a container without an id would be looked for in vain."""
    pod = nri_pb2.PodSandbox(id="s", uid="u")
    whole = nri_pb2.StateChangeEvent(event=nri_pb2.STOP_POD_SANDBOX, pod=pod)
    part = nri_pb2.StateChangeEvent(event=nri_pb2.REMOVE_CONTAINER, pod=pod, container=nri_pb2.Container(id="c"))
    parts = [
        ask(stream, "nri.pkg.api.v1alpha1.Plugin", "StateChange", event.SerializeToString())
        for stream, event in ((1, whole), (3, part))
    ]
    server, handler = Nonsense(tmp_path / "s", parts), Recorder()
    plugin = Plugin(str(tmp_path / "s"), handler, delays=quick, identity=PATIENT)
    plugin.start()
    patience.until(lambda: len(server.answers) >= 2, "two answers")
    assert handler.seen == [("StopPodSandbox", "s"), ("RemoveContainer", "c")]
    assert plugin.stop(PATIENCE)
    server.stop()


def test_a_runtime_that_ends_before_it_answers_is_told_as_closed(tmp_path: Path) -> None:
    """It restarts amid our registration: we come back at once, and the log does not blame it for slow answers."""
    handler = Recorder()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        plugin = Plugin(str(tmp_path / "s"), handler, delays=quick, identity=PATIENT)
        plugin.start()
        runtime, _ = listening.accept()
        assert runtime.recv(1 << 16)
        runtime.close()
        patience.until(lambda: handler.seen, "that the connection ended")
        assert handler.seen[0] == ("disconnected", "NRI: the runtime closed the connection")
        assert plugin.stop(PATIENCE)


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_runtime_that_speaks_nonsense_is_left_and_tried_again(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Random bytes after the registration, whole or cut off, end the session at worst; the plugin comes back."""
    noise = random.Random(seed)
    parts = [noise.randbytes(noise.randrange(200)) for _ in range(noise.randrange(4))]
    parts.append(b"\xff" * (5 << 20))  # impossible, also behind a frame that is plausible by chance
    folder = tmp_path_factory.mktemp("nonsense")
    server = Nonsense(folder / "s", parts)
    plugin = Plugin(str(folder / "s"), Recorder(), delays=quick, identity=PATIENT)
    plugin.start()
    patience.until(lambda: server.connections >= 2, "the second connection")
    assert plugin.stop(PATIENCE)
    server.stop()
    assert server.connections >= 2
