"""What the log says of writes: each refusal once, until it changes."""

from __future__ import annotations

import logging

import pytest

from agent.model.cgroup import VANISHED, Cause, Write, Written
from agent.observe import event_log
from agent.observe.event_log import EventLog
from agent.observe.metrics import Metrics

OWN = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope"


def told(
    reporter: EventLog, caplog: pytest.LogCaptureFixture, error: str, value: str = "0-3", path: str = OWN
) -> bool:
    """Whether one more result of a write is warned of."""
    caplog.clear()
    reporter.written((Written(Write(path, "cpuset.cpus", value, "0-7", Cause.POOL), "0-7", "0-7", error),))
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == [
        f"not written: {error}"
    ]


def test_a_refusal_is_said_once_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    """The same again is not; another value, error or cgroup is, and the same after the kernel took one."""
    metrics = Metrics()
    reporter = EventLog(metrics)
    assert told(reporter, caplog, "EPERM")
    assert not told(reporter, caplog, "EPERM")
    assert told(reporter, caplog, "EPERM", value="0-5")
    assert told(reporter, caplog, "EBUSY", value="0-5")
    assert told(reporter, caplog, "EPERM", path=f"{OWN}x")
    assert not told(reporter, caplog, "EBUSY", value="0-5")
    assert not told(reporter, caplog, "", value="0-5")
    assert told(reporter, caplog, "EBUSY", value="0-5")
    page = metrics.page({})
    assert b'cause="pool",file="cpuset.cpus",result="EPERM"} 4.0' in page, "every one is counted"


def test_a_cgroup_that_went_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    """That it vanished is no warning, and one of its name that comes later is told of anew."""
    reporter = EventLog(Metrics())
    assert told(reporter, caplog, "EPERM")
    assert not told(reporter, caplog, VANISHED)
    assert told(reporter, caplog, "EPERM")


def test_only_so_many_are_remembered(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was refused longest ago goes first."""
    monkeypatch.setattr(event_log, "_MOST", 2)
    reporter = EventLog(Metrics())
    for path in ("/a", "/b", "/c"):
        assert told(reporter, caplog, "EPERM", path=path)
    assert not told(reporter, caplog, "EPERM", path="/b")
    assert told(reporter, caplog, "EPERM", path="/a")


def test_an_emptied_slice_is_said_once_and_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """As systemd does every minute on a node without BestEffort pods; what is undone under processes is warned of."""
    metrics = Metrics()
    reporter = EventLog(metrics)

    def levels(old: str, cause: Cause) -> list[int]:
        caplog.clear()
        write = Write("/kubepods.slice/kubepods-besteffort.slice", "cpuset.cpus", "0-3", old, cause)
        reporter.written((Written(write, "0-3", "0-3", ""),))
        repaired = [each for each in caplog.records if each.getMessage() == "repaired"]
        causes.extend(vars(each)["facts"]["cause"] for each in repaired)
        return [each.levelno for each in repaired]

    causes: list[str] = []
    caplog.set_level(logging.DEBUG)
    assert levels("", Cause.DRIFT_EMPTIED) == [logging.INFO]
    assert levels("", Cause.DRIFT_EMPTIED) == [logging.DEBUG]
    assert levels("", Cause.DRIFT_UNDONE) == [logging.WARNING]
    assert levels("", Cause.DRIFT_UNDONE) == [logging.WARNING]
    assert levels("0-7", Cause.DRIFT_RESET) == [logging.WARNING]
    assert levels("1", Cause.DRIFT_FOREIGN) == [logging.WARNING]
    told = ["drift-emptied", "drift-emptied", "drift-undone", "drift-undone", "drift-reset", "drift-foreign"]
    assert causes == told, "as the metric has them"
    page = metrics.page({})
    assert b'cause="drift-emptied",file="cpuset.cpus",result="ok"} 2.0' in page, "every one is counted"
    assert b'cause="drift-reset",file="cpuset.cpus",result="ok"} 1.0' in page, "the alert counts this one"
