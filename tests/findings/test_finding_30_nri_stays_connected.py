"""A message of the runtime that cannot be read, or a fault of ours, fails no pod and leaves the link as it is.

Finding 30.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.host.nri import mux, nri_pb2
from agent.host.nri.plugin import Plugin
from agent.host.nri.values import Adjustment, RuntimeContainer, Sandbox
from tests.flow.serving import eventually
from tests.nri.handlers import Recorder
from tests.nri.test_frames import PATIENT, Nonsense, ask, quick
from tests.patience import PATIENCE

SERVICE = "nri.pkg.api.v1alpha1.Plugin"
GOOD = nri_pb2.PodRequest(pod=nri_pb2.PodSandbox(id="s", uid="u")).SerializeToString()
EMPTY = nri_pb2.SynchronizeRequest().SerializeToString()


class Failing(Recorder):
    """Cannot take in what runs."""

    def synchronize(
        self, sandboxes: tuple[Sandbox, ...], containers: tuple[RuntimeContainer, ...]
    ) -> Mapping[str, Adjustment]:
        raise ZeroDivisionError("of a kind that nobody expects")


@pytest.mark.parametrize(("handler", "picture"), [(Failing(), EMPTY), (Recorder(), b"\xff\xff\xff")])
def test_finding_30_a_picture_that_cannot_be_taken_in_leaves_us_connected(
    tmp_path: Path, handler: Recorder, picture: bytes
) -> None:
    """The runtime counts us in and asks us of the next pod: so we are connected, and we answer."""
    parts = [ask(1, SERVICE, "Synchronize", picture), ask(3, SERVICE, "RunPodSandbox", GOOD)]
    server = Nonsense(tmp_path / "s", parts)
    plugin = Plugin(str(tmp_path / "s"), handler, delays=quick, identity=PATIENT)
    plugin.start()
    eventually(lambda: len(server.answers) == 2)
    assert [answer.status.code for answer in server.answers] == [0, 0]
    assert plugin.connected
    assert handler.names() == ["run"]
    assert plugin.stop(PATIENCE)
    server.stop()


def test_finding_30_a_fault_in_the_handlers_last_word_ends_no_thread(tmp_path: Path) -> None:
    """The runtime goes away, and even telling that goes wrong: the plugin connects again."""

    class Mute(Recorder):
        def disconnected(self, why: str) -> None:
            raise ZeroDivisionError(why)

    server = Nonsense(tmp_path / "s", [mux.HEADER.pack(1, 1 << 31)])
    plugin = Plugin(str(tmp_path / "s"), Mute(), delays=quick, identity=PATIENT)
    plugin.start()
    eventually(lambda: server.connections > 2)
    assert plugin.stop(PATIENCE)
    server.stop()
