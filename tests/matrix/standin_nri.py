"""A stand-in for the runtime's NRI: registers a plugin, synchronizes it, asks it about sandboxes and containers.

A Python peer, because the one of containerd's own Go code (tests/peers/nri) costs a process per node; that one proves
that frames and messages are right (tests/nri).

    runtime = Runtime(socket);  runtime.fault("slow");  runtime.run_sandbox(...);  runtime.create(...)

    away    the socket is gone and the connection dropped
    slow    Synchronize comes seconds late, and so does each request
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from agent.host.nri import mux, ttrpc
from agent.host.nri import nri_pb2 as pb
from tests.matrix.loop import Loop

SERVICE = "nri.pkg.api.v1alpha1.Plugin"
REQUEST_TIMEOUT = 2.0
"""Seconds that containerd waits for a plugin by default; one that is late is dropped."""
SLOW = 1.0
RUNNING = pb.CONTAINER_RUNNING


class NriRefusedError(Exception):
    """The plugin refused; the text is its own."""


@dataclass
class Record:
    """A container as the runtime has it on record."""

    uid: str
    pod: str
    namespace: str
    name: str
    cpus: str = ""
    mems: str = ""


@dataclass(eq=False)
class _Peer:
    """One connected plugin."""

    writer: asyncio.StreamWriter
    next: int = 1
    waiting: dict[int, asyncio.Future[pb.Response]] = field(default_factory=dict)

    async def ask(self, method: str, message: Message) -> pb.Response:
        stream, self.next = self.next, self.next + 2
        future: asyncio.Future[pb.Response] = asyncio.get_running_loop().create_future()
        self.waiting[stream] = future
        self.writer.write(mux.frame(1, ttrpc.request(stream, SERVICE, method, message, REQUEST_TIMEOUT)))
        return await asyncio.wait_for(future, REQUEST_TIMEOUT)

    def answered(self, message: ttrpc.Raw) -> None:
        future = self.waiting.pop(message.stream, None)
        if future is not None and not future.done():
            future.set_result(pb.Response.FromString(message.payload))

    def gone(self) -> None:
        """The connection ended: nobody waits any more."""
        for each in self.waiting.values():
            if not each.done():
                each.cancel()
        self.writer.close()


class Runtime:
    """The runtime of one node; containers outlive its restarts.

    Args:
        socket: where it listens.
        update: told to carry out what a plugin wants changed of a running container: (id, cpus, mems), "" for as is.
    """

    def __init__(self, socket: Path, update: Callable[[str, str, str], None]) -> None:
        self.socket, self._update = socket, update
        self.containers: dict[str, Record] = {}
        self.faulty = ""
        self.synchronized = 0
        """How often a plugin was synchronized."""
        self._peer: _Peer | None = None
        self._server: asyncio.Server | None = None
        self._one = asyncio.Lock()
        self._loop = Loop.shared()
        self._loop.run(self._open())

    # ---- faults

    @property
    def connected(self) -> bool:
        return self._peer is not None

    def fault(self, name: str) -> None:
        """Begin a fault: "away", "slow", or "silent": it takes a plugin in and synchronizes it never."""
        assert name in ("away", "slow", "silent"), name
        self.faulty = name
        if name == "away":
            self._loop.run(self._shut())
        elif name == "silent":
            self.restart()

    def calm(self) -> None:
        was, self.faulty = self.faulty, ""
        if was == "away":
            self._loop.run(self._open())
        elif was == "silent":
            self.restart()

    def restart(self) -> None:
        """The runtime's process is started anew: the connection drops, containers run on, plugins come back."""
        self._loop.run(self._shut())
        if self.faulty != "away":
            self._loop.run(self._open())

    def close(self) -> None:
        self._loop.run(self._shut())

    # ---- what the runtime asks

    def run_sandbox(self, uid: str, namespace: str, name: str) -> None:
        """A pod's sandbox is about to run. Raises NriRefusedError with the plugin's own sentence."""
        self._ask("RunPodSandbox", pb.ContainerRequest(pod=_sandbox(Record(uid, name, namespace, ""))))

    def create(self, number: str, record: Record) -> None:
        """A container is about to be made: what the plugin wants of it goes on the record."""
        answer = self._ask(
            "CreateContainer", _about(number, record), lambda: self.containers.update({number: record})
        )
        if answer is not None:
            made = pb.CreateContainerResponse.FromString(answer.payload)
            record.cpus = made.adjust.linux.resources.cpu.cpus
            record.mems = made.adjust.linux.resources.cpu.mems

    def remove(self, number: str) -> None:
        record = self.containers.pop(number, None)
        if record is not None:
            self._ask("RemoveContainer", _about(number, record))

    def forget(self) -> None:
        """The node was rebooted: nothing runs."""
        self.containers.clear()

    def _ask(self, method: str, message: Message, first: Callable[[], None] = lambda: None) -> pb.Response | None:
        return self._loop.run(self._request(method, message, first))  # type: ignore[no-any-return]  # as annotated

    async def _request(self, method: str, message: Message, first: Callable[[], None]) -> pb.Response | None:
        """The plugin's answer; None where there is none, or it is late: then it is dropped, as containerd does.

        One at a time, as there: what happens while a plugin is introduced waits until it is.
        """
        async with self._one:
            first()
            peer = self._peer
            if peer is None:
                return None
            if self.faulty == "slow":
                await asyncio.sleep(SLOW)
            try:
                answer = await peer.ask(method, message)
            except (TimeoutError, OSError, asyncio.CancelledError):
                peer.writer.close()
                return None
        if answer.status.code:
            raise NriRefusedError(answer.status.message)
        return answer

    # ---- the connection

    async def _open(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self.socket))

    async def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self.socket.unlink(missing_ok=True)
        if self._peer is not None:
            self._peer.writer.close()
            self._peer = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer, frames = _Peer(writer), mux.Demultiplexer()
        readers = {1: ttrpc.FrameReader(), 2: ttrpc.FrameReader()}
        introduced: list[asyncio.Task[None]] = []
        with contextlib.suppress(OSError):  # the agent ended
            while data := await reader.read(1 << 16):
                for connection, payload in frames.feed(data):
                    for message in readers[connection].feed(payload):
                        if connection == 1:
                            peer.answered(message)
                        elif message.kind == ttrpc.MessageKind.REQUEST:
                            writer.write(mux.frame(2, ttrpc.response(message.stream, pb.Empty())))
                            introduced.append(asyncio.create_task(self._introduce(peer)))
        for task in introduced:
            task.cancel()
        peer.gone()
        if self._peer is peer:
            self._peer = None

    async def _introduce(self, peer: _Peer) -> None:
        """Configure, then Synchronize; what the plugin wants changed is carried out. One that is late is dropped."""
        try:
            await peer.ask("Configure", pb.ConfigureRequest(runtime_name="stand-in", runtime_version="1"))
            if self.faulty == "silent":
                return
            if self.faulty == "slow":
                await asyncio.sleep(3 * SLOW)
            async with self._one:
                everything = pb.SynchronizeRequest()
                pods = {each.uid: each for each in self.containers.values()}
                everything.pods.extend(_sandbox(each) for each in pods.values())
                everything.containers.extend(_container(number, each) for number, each in self.containers.items())
                answer = await peer.ask("Synchronize", everything)
                changes = pb.SynchronizeResponse.FromString(answer.payload)
                await asyncio.get_running_loop().run_in_executor(None, self._carry_out, changes)
                self._peer = peer
                self.synchronized += 1
        except (TimeoutError, OSError):
            peer.writer.close()

    def _carry_out(self, changes: Any) -> None:  # noqa: ANN401 - generated code has no types here
        for each in changes.update:
            cpu = each.linux.resources.cpu
            record = self.containers.get(each.container_id)
            if record is not None:
                record.cpus, record.mems = cpu.cpus or record.cpus, cpu.mems or record.mems
                self._update(each.container_id, cpu.cpus, cpu.mems)


def _about(number: str, record: Record) -> pb.ContainerRequest:
    return pb.ContainerRequest(pod=_sandbox(record), container=_container(number, record))


def _sandbox(of: Record) -> pb.PodSandbox:
    return pb.PodSandbox(id=f"sandbox-{of.uid}", name=of.pod, uid=of.uid, namespace=of.namespace)


def _container(number: str, record: Record) -> pb.Container:
    container = pb.Container(id=number, pod_sandbox_id=f"sandbox-{record.uid}", name=record.name, state=RUNNING)
    container.linux.resources.cpu.cpus = record.cpus
    container.linux.resources.cpu.mems = record.mems
    return container
