"""What a container has, read from a guest's cgroups: both versions, both drivers. No guest is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.lab import reading
from tests.lab.needs import PromiseError
from tests.lab.node import Plan
from tests.lab.reading import Sets
from tests.referee.guest_node import GuestNode
from tests.referee.running import ANY, SHARED, Has

UID, BOUND, FREE = "aaaaaaaa-0000-4000-8000-000000000000", "b" * 64, "f" * 64
STATES = [
    {"name": name, "state": {"running": {}}, "containerID": f"containerd://{number}"}
    for name, number in (("bound", BOUND), ("free", FREE))
]
POD = {"metadata": {"name": "p", "uid": UID}, "status": {"containerStatuses": STATES}}
SLICE = f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
PLACES = {"systemd": (SLICE, "cri-containerd-{}.scope"), "cgroupfs": (f"kubepods/pod{UID}", "{}")}
V2 = ("cpuset.cpus.effective", "cpuset.mems.effective")
V1 = ("cpuset.effective_cpus", "cpuset.effective_mems")


def told(place: str, cgroups: int, cpus: str, mems: str, own: str) -> str:
    """What grep prints of one cgroup."""
    names = dict(zip(V2 if cgroups == 2 else V1, (cpus, mems), strict=True)) | {"cpuset.mems": own}
    names |= {"cpu.max": "200000 100000"} if cgroups == 2 else {}
    return "".join(f"{place}/{name}:{text}\n" for name, text in names.items())


@pytest.mark.parametrize("driver", ["systemd", "cgroupfs"])
@pytest.mark.parametrize("cgroups", [2, 1])
def test_sets_and_quotas_are_read_in_every_layout(monkeypatch: pytest.MonkeyPatch, cgroups: int, driver: str) -> None:
    """One with CPUs and a node of its own, one that shares: v1 says "all nodes" where v2 says nothing, no quota."""
    parent, name = PLACES[driver]
    text = told(parent, cgroups, "0-15", "0-3", "" if cgroups == 2 else "0-3")
    text += told(f"{parent}/{name.format(BOUND)}", cgroups, "2-3", "1", "1")
    text += told(f"{parent}/{name.format(FREE)}", cgroups, "0-1,4-15", "0-3", "" if cgroups == 2 else "0-3")
    asked = list[str]()

    def run(command: str) -> str:
        asked.append(command)
        return text

    monkeypatch.setattr(reading, "books", lambda _: {UID: {"bound": Sets("2-3", "1")}})
    monkeypatch.setattr(reading, "shared", lambda _: "0-1,4-15")
    where: Any = SimpleNamespace(
        lab=SimpleNamespace(pod=lambda _: POD),
        node=SimpleNamespace(name="numalign", run=run, plan=Plan(cgroups=cgroups, driver=driver)),
    )
    sequence: Any = SimpleNamespace(config={})
    monkeypatch.setattr(GuestNode, "shared", lambda _: "0-1,4-15")
    node = GuestNode(where, sequence, pods={"p": POD})
    quota = "200000" if cgroups == 2 else None
    assert node.look("p") == {"bound": Has("2-3", "1", quota), "free": Has(SHARED, ANY, quota)}
    assert node._pod_quota(POD) == quota  # noqa: SLF001 - told with a pod that runs, which is a guest's
    assert all(each.startswith(f"cd {reading.TREE[cgroups]} && ") for each in asked)
    assert all(f"--include={name}" in asked[0] for name in (V2 if cgroups == 2 else V1))


LATE_LINE = (
    "2026-11-28T06:12:26.85Z stderr F WARNING [d0de] NRI: container {} of pod {} starts without its sets: "
    "the answer took longer than 0.15 s"
)
UNDECIDED = "NRI: container init of pod default/p starts without its sets: numalign has not decided on the pod yet"


def init_told(monkeypatch: pytest.MonkeyPatch, lines: list[str], late: set[str]) -> Has:
    """What the referee takes for the sets of one that printed CPU 3 and node 0, and was granted others."""
    pod: Any = {
        "metadata": {"name": "p", "uid": UID},
        "status": {"initContainerStatuses": [{"name": "init", "state": {"terminated": {"message": "3\n0"}}}]},
    }
    monkeypatch.setattr(reading, "books", lambda _: {UID: {"init": Sets("2-3", "1")}})
    monkeypatch.setattr(GuestNode, "shared", lambda _: "0-1,4-15")
    where: Any = SimpleNamespace(
        lab=None, node=SimpleNamespace(name="numalign", run=lambda _: "\n".join(lines)), pins=False, late=late
    )
    sequence: Any = SimpleNamespace(config={})
    return GuestNode(where, sequence)._told(pod)["init"]  # noqa: SLF001 - told with a pod that runs


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([], Has("3", "0"), id="in time: what it printed"),
        pytest.param([LATE_LINE.format("init", "default/p")], Has("2-3", "1"), id="late: what it was granted"),
        pytest.param(
            [LATE_LINE.format(*each) for each in (("init", "default/q"), ("init", "other/p"), ("app", "default/p"))],
            Has("3", "0"), id="others were late",
        ),
        pytest.param([UNDECIDED], Has("3", "0"), id="the agent had not decided: what it printed"),
    ],
)  # fmt: skip
def test_only_an_init_container_that_the_agent_says_was_late_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], expected: Has
) -> None:
    """Its first act cannot show the sets that it was to have; everybody else's first act is the answer."""
    assert init_told(monkeypatch, lines, set()) == expected


def test_an_agent_that_is_late_for_many_init_containers_breaks_its_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few may be an emulated machine's; what comes again and again is the agent's own."""
    with pytest.raises(PromiseError, match="init containers started without their sets: a, b, c, init of p"):
        init_told(monkeypatch, [LATE_LINE.format("init", "default/p")], {"a", "b", "c"})
