"""A machine that changes under a running agent: heard, read again, told; the ledger is carried over."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.app import setup
from agent.app.service import machine_watch
from agent.app.service.machine_watch import SHOWN, MachineWatch, second_opinion
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import HostError
from agent.host.checkpoint import Checkpoint
from agent.host.machines import open_machine
from agent.host.udev import Hotplug, Uevent
from agent.model.machine import Machine
from tests.flow.serving import serving, write
from tests.flow.world import container
from tests.patience import PATIENCE, until

WHOLE = "2 sockets x 1 node x 4 cores x 1 thread"


class Announcer(Hotplug):
    """A source of events that a test speaks through."""

    def __init__(self) -> None:
        self._mine, self._theirs = socket.socketpair()
        self._waiting: list[Uevent] = []

    def say(self, *events: Uevent) -> None:
        """The kernel says something."""
        self._waiting += events
        self._theirs.send(b"." * len(events))

    def fileno(self) -> int:
        """See Hotplug."""
        return self._mine.fileno()

    def drain(self) -> tuple[Uevent, ...]:
        """See Hotplug."""
        self._mine.recv(1)
        return (self._waiting.pop(0),)

    def close(self) -> None:
        """Both ends."""
        self._mine.close()
        self._theirs.close()


@pytest.fixture
def announcer() -> Iterator[Announcer]:
    """One, closed in the end."""
    found = Announcer()
    yield found
    found.close()


def test_a_burst_of_events_is_one_reason_to_read_again(
    announcer: Announcer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four CPUs that go at once wake the agent one time, and the log says which."""
    woken = threading.Event()
    monkeypatch.setattr(machine_watch, "LONGEST", PATIENCE)
    watch = MachineWatch(None, woken.set, pytest.fail, listen=lambda: announcer)
    announcer.say(*(Uevent("offline", "cpu", f"/devices/system/cpu/cpu{cpu}") for cpu in range(4)))
    with caplog.at_level(logging.INFO, "numalign"):
        watch.start()
        assert woken.wait(PATIENCE)
        watch.stop()
    (facts,) = (each.facts for each in caplog.records if hasattr(each, "facts"))
    assert (watch.seen, facts["events"]) == (1, 4)
    assert "offline cpu0" in facts["what"]


@pytest.mark.parametrize(("count", "last"), [(SHOWN, f"cpu{SHOWN - 1}"), (SHOWN + 2, " and 2 more")])
def test_events_are_named_up_to_a_bound(
    announcer: Announcer, caplog: pytest.LogCaptureFixture, count: int, last: str
) -> None:
    """A storm makes one line that ends with how many it leaves out, and says nothing of more where all are named."""
    woken = threading.Event()
    watch = MachineWatch(None, woken.set, pytest.fail, listen=lambda: announcer)
    watch.start()
    with caplog.at_level(logging.INFO, "numalign"):
        announcer.say(*(Uevent("offline", "cpu", f"/devices/system/cpu/cpu{cpu}") for cpu in range(count)))
        assert woken.wait(PATIENCE)
        watch.stop()
    assert any(str(getattr(each, "facts", {}).get("what", "")).endswith(last) for each in caplog.records)


def test_without_events_the_machine_is_read_now_and_then() -> None:
    """No libudev, no netlink: told once with the remedy, and the clock is reason enough."""

    def refused() -> Hotplug:
        raise HostError("libudev", "cannot be loaded; install libudev1")

    told: list[str] = []
    woken = threading.Event()
    watch = MachineWatch(None, woken.set, told.append, listen=refused, again=0.02)
    watch.start()
    assert woken.wait(PATIENCE)
    watch.stop()
    assert watch.seen
    assert len(told) == 1
    assert "install libudev1" in told[0]


def test_a_recorded_machine_is_not_watched() -> None:
    """Events are of this machine: with --root nothing is opened."""
    watch = MachineWatch("synthetic:" + WHOLE, pytest.fail, pytest.fail, listen=lambda: pytest.fail("opened"))
    watch.start()
    watch.stop()
    assert watch.seen == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may ask the kernel for a synthetic event")
@pytest.mark.skipif(not Path("/sys/devices/system/cpu/cpu0/uevent").exists(), reason="no live sysfs")
def test_the_kernels_own_event_arrives() -> None:
    """The real netlink socket, an event that the kernel sends: a reason to read again within a second."""
    woken = threading.Event()
    told: list[str] = []
    watch = MachineWatch(None, woken.set, told.append)
    watch.start()
    try:
        if told:
            pytest.skip(told[0])
        try:
            Path("/sys/devices/system/cpu/cpu0/uevent").write_text("change\n", encoding="ascii")
        except OSError as error:
            pytest.skip(f"/sys is read-only here: {error}")
        assert woken.wait(PATIENCE)
    finally:
        watch.stop()


def test_a_machine_that_changed_is_read_again_and_told(
    tmp_path: Path, announcer: Announcer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A CPU and memory go after an event: digest changes, the ledger is carried over, each change is one sentence."""
    machine = [parse_synthetic(WHOLE + ", 16G per node")]
    monkeypatch.setattr(setup, "machine_at", lambda _root: machine[0])
    monkeypatch.setattr(
        machine_watch.MachineWatch.__init__, "__kwdefaults__", {"listen": lambda: announcer, "again": 300.0}
    )
    monkeypatch.setattr(
        "agent.app.service.service.second_opinion", lambda _machine, _root: ("udev counts another way",)
    )
    with caplog.at_level(logging.INFO, "numalign"), serving(tmp_path, root=None, processes=False) as node:
        write(tmp_path / "pods", "db", container(cpu="2"))
        until(lambda: node.held() == {"db": "1-2"})
        before = node.node.engine.ledger.machine
        machine[0] = parse_synthetic(WHOLE + ", 8G per node, offline 6")
        announcer.say(Uevent("offline", "cpu", "/devices/system/cpu/cpu6"))
        until(lambda: node.node.engine.ledger.machine != before)
        assert node.held() == {"db": "1-2"}
        assert node.node.engine.ledger.machine == machine[0].digest
        saved = Checkpoint(tmp_path / "state" / "checkpoint.json").load()
        assert saved is not None
        assert saved.ledger == node.node.engine.ledger
    said = [each.getMessage() for each in caplog.records]
    assert "machine: CPUs 6 are offline now" in said
    assert any(each.startswith("machine: the memory of NUMA node 0 shrank") for each in said)
    assert said.count("cross-check: udev counts another way") == 2


def test_second_opinions_are_of_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is not this one is told apart by psutil; without libudev that is said; --root asks nobody."""
    odd = parse_synthetic("2 sockets x 8 nodes x 32 cores x 2 threads, 512G per node")

    def missing(_devices: object) -> tuple[str, ...]:
        raise HostError("libudev", "cannot be loaded")

    monkeypatch.setattr("agent.host.udev.cross_check", missing)
    found = second_opinion(odd, None)
    assert any("the kernel counts" in each for each in found)
    assert any("libudev" in each for each in found)
    assert second_opinion(open_machine("two-sockets"), "two-sockets") == ()


@pytest.mark.parametrize("times", [1, 3])
def test_new_settings_are_followed_after_a_moment_of_blindness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The file changes while the machine cannot be read: both are in force as soon as it can be (finding 11)."""
    config, wrong = tmp_path / "c.yaml", list(range(times))
    config.write_text("cpuManagerReconcilePeriod: 1s\nreservedSystemCPUs: '0'\n")

    def opened(root: str | None) -> Machine:
        if wrong:
            wrong.pop()
            raise HostError("/sys/devices/system/cpu", "changes while it is read")
        return open_machine(root)

    with serving(tmp_path, config=config) as running:
        monkeypatch.setattr(setup, "machine_at", opened)
        config.write_text("cpuManagerReconcilePeriod: 1s\nreservedSystemCPUs: '0-1'\n")
        until(lambda: str(running.node.engine.node.reserved) == "0-1")
        assert wrong == []
