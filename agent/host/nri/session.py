"""One connection to the runtime: register, be configured and synchronized, then answer until it ends.

Used by `plugin`. Reads and writes happen in the event loop; handlers run one after the other in a worker thread, so a
slow one delays no read. An answer that is not ready in time is given without the handler (an empty adjustment): the
runtime would otherwise drop us after its own timeout, and the cgroup path mends what was missed (safety.md S9).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass

from google.protobuf.message import Message

from agent.errors import RuntimeLinkError, SandboxRefused
from agent.host.nri import mux, nri_pb2, translate, ttrpc
from agent.host.nri.runtimes import reads_policies
from agent.host.nri.values import NO_ADJUSTMENT, NriHandler, RuntimeContainer, Sandbox
from agent.model.rules import NriFailurePolicy
from agent.node.fault_isolation import sentence
from agent.operation import operation

SERVICE_PLUGIN = "nri.pkg.api.v1alpha1.Plugin"
SERVICE_RUNTIME = "nri.pkg.api.v1alpha1.Runtime"
ANSWER_WITHIN = 0.15
"""Seconds a handler may take; with reading and writing the runtime gets its answer within 200 ms."""
SYNCHRONIZE_WITHIN = 1.5
"""Seconds for the first picture of the node; the runtime's own limit is 2 s by default."""
SYNCHRONIZED_WITHIN = 30.0
"""Seconds after the registration until a runtime has synchronized us; each one that works does so within two."""
ASK_WITHIN = 5.0
RUNTIME_WAITS = 2.0
"""Seconds that a runtime waits for an answer, where it does not say otherwise."""
LOOK = 0.5
"""Seconds between two looks whether this thread is run at all."""
MOST_STALLS, STALLS_WITHIN = 3, 300.0
"""A connection with so many stalls in so many seconds, each as long as the runtime waits, is ended by us."""
MOST_QUEUED = 16
"""Requests that are read before they are answered; the runtime sends one after the other."""
MOST_SYNCHRONIZED = 50_000
"""Pods and containers that the runtime may say it has."""
READ_SIZE = 1 << 16

_EVENTS = (
    nri_pb2.RUN_POD_SANDBOX,
    nri_pb2.REMOVE_POD_SANDBOX,
    nri_pb2.CREATE_CONTAINER,
    nri_pb2.UPDATE_CONTAINER,
    nri_pb2.REMOVE_CONTAINER,
)
"""Those that an answer or the books depend on: a late answer to any of them keeps a container waiting."""
_POLICIES = {
    NriFailurePolicy.DROP: None,
    NriFailurePolicy.KEEP_CONNECTED: nri_pb2.FailurePolicy(keep_connected=True),
    NriFailurePolicy.FAIL_REQUEST: nri_pb2.FailurePolicy(keep_connected=True, fail_request=True),
}
"""fail_request alone would guard one container: the runtime drops the plugin then, and starts the next without it."""
EVENT_MASK = sum(1 << (event - 1) for event in _EVENTS)
_STATE_EVENTS = {
    nri_pb2.REMOVE_POD_SANDBOX: "RemovePodSandbox",
    nri_pb2.STOP_POD_SANDBOX: "StopPodSandbox",
    nri_pb2.RUN_POD_SANDBOX: "RunPodSandbox",
    nri_pb2.POST_CREATE_CONTAINER: "PostCreateContainer",
    nri_pb2.START_CONTAINER: "StartContainer",
    nri_pb2.POST_START_CONTAINER: "PostStartContainer",
    nri_pb2.POST_UPDATE_CONTAINER: "PostUpdateContainer",
    nri_pb2.REMOVE_CONTAINER: "RemoveContainer",
}

_log = logging.getLogger(__name__)

Count = Callable[[str, str, float], None]
"""Called for each request: method, outcome ("ok", "refused", "late", "error", "malformed", "unknown"), seconds."""


@dataclass(frozen=True, slots=True)
class Identity:
    """How we register: plugins are called by ascending index ("00" to "99")."""

    name: str = "numalign"
    index: str = "90"
    answer_within: float = ANSWER_WITHIN  # seconds
    failure_policy: NriFailurePolicy = NriFailurePolicy.DROP


class Session:
    """One registered connection. `serve` returns when the runtime ends it, and raises when the runtime errs."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handler: NriHandler,
        worker: Executor,
        identity: Identity = Identity(),
        count: Count = lambda _method, _outcome, _seconds: None,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._handler = handler
        self._worker = worker
        self._identity = identity
        self._count = count
        self._frames = mux.Demultiplexer()
        self._requests, self._responses = ttrpc.FrameReader(), ttrpc.FrameReader()
        self._waiting: dict[int, asyncio.Future[nri_pb2.Response]] = {}
        self._next_stream = 1
        self._queue: asyncio.Queue[ttrpc.Raw] = asyncio.Queue(MOST_QUEUED)
        self._pods: list[nri_pb2.PodSandbox] = []
        self._containers: list[nri_pb2.Container] = []
        self._whole = True
        self._runtime_waits = RUNTIME_WAITS
        self.synchronized = asyncio.Event()
        self.starved = False
        """We ended it, since this thread was not run for as long as the runtime waits, `MOST_STALLS` times."""

    async def serve(self) -> None:
        """Register and answer until the connection ends."""
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read())
            answering = tasks.create_task(self._answer_all())
            try:
                await self._ask(
                    "RegisterPlugin",
                    nri_pb2.RegisterPluginRequest(plugin_name=self._identity.name, plugin_idx=self._identity.index),
                )
                watching = [tasks.create_task(self._expect()), tasks.create_task(self._count_stalls())]
                try:
                    await reading
                finally:
                    for task in watching:
                        task.cancel()
            finally:
                answering.cancel()
                reading.cancel()

    async def _expect(self) -> None:
        """Report a runtime that registers the agent and then sends no request."""
        try:
            await asyncio.wait_for(self.synchronized.wait(), SYNCHRONIZED_WITHIN)
        except TimeoutError:
            await self._call(self._identity.answer_within, lambda: self._handler.unsynchronized(SYNCHRONIZED_WITHIN))

    async def _count_stalls(self) -> None:
        """End a connection that the runtime keeps although the answers are late (`NriFailurePolicy`)."""
        stalls = list[float]()
        while len(stalls) < MOST_STALLS:
            began = time.monotonic()
            await asyncio.sleep(LOOK)
            now = time.monotonic()
            if now - began >= LOOK + self._runtime_waits:
                stalls = [each for each in stalls if now - each < STALLS_WITHIN] + [now]
        self.starved = True
        raise RuntimeLinkError(
            f"NRI: the agent got no CPU for {self._runtime_waits:g} s, {MOST_STALLS} times in {STALLS_WITHIN:g} s: "
            "it ends the connection, so that no container waits for it"
        )

    async def _ask(self, method: str, message: Message) -> nri_pb2.Response:
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        future: asyncio.Future[nri_pb2.Response] = asyncio.get_running_loop().create_future()
        self._waiting[stream] = future
        try:
            await self._write(
                mux.RUNTIME_SERVICE, ttrpc.request(stream, SERVICE_RUNTIME, method, message, ASK_WITHIN)
            )
            answer = await asyncio.wait_for(future, ASK_WITHIN)
        except TimeoutError as error:
            raise RuntimeLinkError(f"NRI: the runtime did not answer {method} within {ASK_WITHIN:g} s") from error
        finally:
            self._waiting.pop(stream, None)
        if answer.status.code:
            raise RuntimeLinkError(f"NRI: the runtime refused {method}: {answer.status.message}")
        return answer

    async def _write(self, connection: int, data: bytes) -> None:
        self._writer.write(mux.frame(connection, data))
        await self._writer.drain()

    async def _read(self) -> None:
        while data := await self._reader.read(READ_SIZE):
            for connection, payload in self._frames.feed(data):
                if connection == mux.PLUGIN_SERVICE:
                    for message in self._requests.feed(payload):
                        await self._queue.put(message)
                elif connection == mux.RUNTIME_SERVICE:
                    for message in self._responses.feed(payload):
                        self._resolve(message)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RuntimeLinkError("NRI: the runtime closed the connection"))

    def _resolve(self, message: ttrpc.Raw) -> None:
        future = self._waiting.get(message.stream)
        if message.kind != ttrpc.MessageKind.RESPONSE or future is None or future.done():
            return  # an answer to a question that timed out
        future.set_result(ttrpc.decode(nri_pb2.Response(), message.payload, "a response"))

    async def _answer_all(self) -> None:
        while True:
            message = await self._queue.get()
            if message.kind == ttrpc.MessageKind.REQUEST:
                await self._write(mux.PLUGIN_SERVICE, await self._answer(message))

    async def _answer(self, message: ttrpc.Raw) -> bytes:
        began, method, outcome = time.monotonic(), "?", "ok"
        try:
            request = ttrpc.decode(nri_pb2.Request(), message.payload, "a request")
            method = request.method if request.method in _METHODS else "?"
            if request.service != SERVICE_PLUGIN or method == "?":
                outcome = "unknown"
                return ttrpc.failure(
                    message.stream, ttrpc.Code.UNIMPLEMENTED, f"numalign does not serve {request.method[:80]}"
                )
            with operation(f"NRI {method}", level=logging.DEBUG):
                answer, outcome = await _METHODS[method](self, request)
            return ttrpc.response(message.stream, answer)
        except SandboxRefused as refusal:
            outcome = "refused"
            return ttrpc.failure(message.stream, ttrpc.Code.ABORTED, str(refusal))
        except Exception as error:  # noqa: BLE001 - see below
            # Neither a message that we cannot read nor a bug of ours may fail the pods of this node: said loudly, the
            # runtime goes on without us, and the cgroup path mends what was missed.
            outcome = "malformed" if isinstance(error, RuntimeLinkError) else "error"
            _log.error("NRI %s: answering without a change: %s", method, sentence(error), exc_info=error)
            return ttrpc.response(message.stream, nri_pb2.Empty())
        finally:
            self._count(method, outcome, time.monotonic() - began)

    async def _call(self, within: float, call: Callable[[], object]) -> tuple[object, str]:
        """Run a handler in the worker; (its value, "ok"), or (None, "late") when it is not ready in time."""
        future = asyncio.get_running_loop().run_in_executor(self._worker, copy_context().run, call)
        done, _ = await asyncio.wait({future}, timeout=within)
        if done:
            return future.result(), "ok"
        future.add_done_callback(_swallow)
        return None, "late"

    async def _configure(self, request: nri_pb2.Request) -> tuple[Message, str]:
        asked = ttrpc.decode(nri_pb2.ConfigureRequest(), request.payload, "ConfigureRequest")
        self._runtime_waits = asked.request_timeout / 1000 if asked.request_timeout > 0 else RUNTIME_WAITS
        await self._call(
            self._identity.answer_within, lambda: self._handler.configured(asked.runtime_name, asked.runtime_version)
        )
        wish = self._identity.failure_policy
        if wish is NriFailurePolicy.FAIL_REQUEST and not reads_policies(asked.NRI_version):
            _log.warning(
                "NRI: nri.failurePolicy fail-request is not in force: this runtime has NRI %s, and it needs 0.12.5",
                asked.NRI_version[:64] or "of an unknown version",
            )
        policy = _POLICIES[wish]
        return nri_pb2.ConfigureResponse(events=EVENT_MASK, failure_policy=policy), "ok"

    async def _synchronize(self, request: nri_pb2.Request) -> tuple[Message, str]:
        more = False
        try:
            more = self._take_in(request)
            if more:
                return nri_pb2.SynchronizeResponse(more=True), "ok"
            sandboxes = tuple(translate.sandbox(pod) for pod in self._pods)
            containers = tuple(translate.container(each) for each in self._containers)
            changes, outcome = await self._call(
                SYNCHRONIZE_WITHIN, lambda: translate.updates(self._handler.synchronize(sandboxes, containers))
            )
        finally:
            if not more:  # in any case the runtime counts the agent in, and asks it of each container from now on
                self._pods, self._containers = [], []
                self.synchronized.set()
        return nri_pb2.SynchronizeResponse(update=changes if isinstance(changes, list) else ()), outcome

    def _take_in(self, request: nri_pb2.Request) -> bool:
        """Read one part of a Synchronize request; return True if more follow. A list without a part is refused."""
        whole, self._whole = self._whole, False
        chunk = ttrpc.decode(nri_pb2.SynchronizeRequest(), request.payload, "SynchronizeRequest")
        if len(self._pods) + len(self._containers) > MOST_SYNCHRONIZED:
            raise RuntimeLinkError(f"NRI: the runtime names more than {MOST_SYNCHRONIZED} pods and containers")
        if not (whole or chunk.more):
            raise RuntimeLinkError("NRI: a part of what runs could not be read")
        self._pods += chunk.pods
        self._containers += chunk.containers
        self._whole = whole
        return chunk.more

    async def _run_sandbox(self, request: nri_pb2.Request) -> tuple[Message, str]:
        pod, _ = _subject(request)
        _, outcome = await self._call(self._identity.answer_within, lambda: self._handler.run_sandbox(pod))
        return nri_pb2.Empty(), outcome

    async def _create(self, request: nri_pb2.Request) -> tuple[Message, str]:
        pod, container = _subject(request)
        if container is None:
            raise RuntimeLinkError("NRI: CreateContainer without a container")
        change, outcome = await self._call(
            self._identity.answer_within,
            lambda: translate.adjustment(self._handler.create_container(pod, container)),
        )
        if outcome == "late":
            _log.warning(
                "NRI: container %s of pod %s/%s starts without its sets: the answer took longer than %g s",
                container.name, pod.namespace, pod.name, self._identity.answer_within,
            )  # fmt: skip
        answer = nri_pb2.CreateContainerResponse()
        if isinstance(change, nri_pb2.ContainerAdjustment) and change != translate.adjustment(NO_ADJUSTMENT):
            answer.adjust.CopyFrom(change)
        return answer, outcome

    async def _update(self, request: nri_pb2.Request) -> tuple[Message, str]:
        pod, container = _subject(request)
        if container is None:
            raise RuntimeLinkError("NRI: UpdateContainer without a container")
        change, outcome = await self._call(
            self._identity.answer_within,
            lambda: translate.updates({container.id: self._handler.update_container(pod, container)}),
        )
        return nri_pb2.UpdateContainerResponse(update=change if isinstance(change, list) else ()), outcome

    async def _event(self, request: nri_pb2.Request) -> tuple[Message, str]:
        name, (pod, container) = request.method, _subject(request)
        _, outcome = await self._call(self._identity.answer_within, lambda: self._handler.event(name, pod, container))
        return nri_pb2.Empty(), outcome

    async def _state_change(self, request: nri_pb2.Request) -> tuple[Message, str]:
        """The older form of most events: one request that names the event."""
        change = ttrpc.decode(nri_pb2.StateChangeEvent(), request.payload, "StateChangeEvent")
        name = _STATE_EVENTS.get(change.event, "")
        pod = translate.sandbox(change.pod)
        container = translate.container(change.container) if change.HasField("container") else None
        if name == "RunPodSandbox":
            _, outcome = await self._call(self._identity.answer_within, lambda: self._handler.run_sandbox(pod))
        elif name:
            _, outcome = await self._call(
                self._identity.answer_within, lambda: self._handler.event(name, pod, container)
            )
        else:
            outcome = "unknown"
        return nri_pb2.Empty(), outcome

    async def _shutdown(self, _request: nri_pb2.Request) -> tuple[Message, str]:
        return nri_pb2.Empty(), "ok"


_METHODS = {
    "Configure": Session._configure,  # noqa: SLF001 - the table of this class's own methods
    "Synchronize": Session._synchronize,  # noqa: SLF001 - as above
    "Shutdown": Session._shutdown,  # noqa: SLF001 - as above
    "RunPodSandbox": Session._run_sandbox,  # noqa: SLF001 - as above
    "CreateContainer": Session._create,  # noqa: SLF001 - as above
    "UpdateContainer": Session._update,  # noqa: SLF001 - as above
    "StateChange": Session._state_change,  # noqa: SLF001 - as above
    **dict.fromkeys(
        (
            "UpdatePodSandbox", "PostUpdatePodSandbox", "StopPodSandbox", "RemovePodSandbox", "PostCreateContainer",
            "StartContainer", "PostStartContainer", "PostUpdateContainer", "StopContainer", "RemoveContainer",
        ),
        Session._event,  # noqa: SLF001 - as above
    ),
}  # fmt: skip


def _subject(request: nri_pb2.Request) -> tuple[Sandbox, RuntimeContainer | None]:
    """The pod, and the container if any, that a request is about; pod requests carry the first field only."""
    asked = ttrpc.decode(nri_pb2.ContainerRequest(), request.payload, request.method)
    return translate.sandbox(asked.pod), translate.container(asked.container) if asked.HasField("container") else None


def _swallow(future: asyncio.Future[object]) -> None:
    """Take note of a late handler's fault, so that it is not lost."""
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.warning("a late NRI handler ended with: %s", error)
