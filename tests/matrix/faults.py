"""The two sets of faults: what befalls the node (rows), and what is wrong around it meanwhile (columns).

Each fault begins and ends. A row begins while its column is on, and both end together; what a node must bear in
between, and how it is judged, is the same for every pair (`tests.matrix.pairs`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.model.idset import CpuSet
from tests.fixtures.checkpoints.older import as_0_1_0
from tests.matrix.node import Node

Work = Callable[[Node], None]
PAGES = 2500
"""Huge pages of 2 Mi on each NUMA node of 8 Gi: more than half of its memory."""
SKEW = 300.0
CROWD = 300
CPU, MEMORY = "CPU", "memory"
"""What changes of the machine."""
MOST = 10
"""Looks of the agent at its node (a reconcile, or a word of the kernel's) after which what is wrong is a fault."""


def nothing(_node: Node) -> None:
    """Nothing to do."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        name: in the table.
        begin, end: make it and undo it.
        amid: what it does while life goes on, after the first things happened under both faults.
        what: in a few words, for the table.
        settings, skew: of the node from its start.
        telling: the API takes what the agent tells meanwhile.
        keeping: the node lets the agent put back what systemd or the kernel took.
        cluster: pods can be created meanwhile.
        beside: of a row: names of the columns that it is tried with; none for all of them.
    """

    name: str
    what: str
    begin: Work = nothing
    end: Work = nothing
    amid: Work = nothing
    settings: Mapping[str, Any] = field(default_factory=dict)
    skew: float = 0.0
    telling: bool = True
    keeping: bool = True
    cluster: bool = True
    beside: tuple[str, ...] = ()


# ---- rows


def _killed(node: Node) -> None:
    node.kill()
    node.start()


def _die(node: Node) -> None:
    """Within the next effects, another place for every other fault that is on."""
    digest = hashlib.sha256(f"{node.api.faulty} {node.folder.name}".encode()).digest()
    node.die_after(1 + digest[0] % 6)


def _oom(node: Node) -> None:
    """Where nothing made it write until now, it ends all the same; and the next start ends at its first effect."""
    assert node.agent is not None
    if node.agent.alive:
        node.kill()
    node.die_after(1)
    node.start()
    node.die_after(0)
    node.ensure()


def _rebooted(node: Node) -> None:
    node.reboot()
    node.start()
    if node.api.faulty not in ("away", "errors"):  # the kubelet knows its pods from the API
        node.kubelet.boot()


def _booted(node: Node) -> None:
    if node.kubelet.down:
        node.kubelet.boot()


def _lost(node: Node) -> None:
    node.kill()
    node.lose()
    node.start()


def _older(node: Node) -> None:
    """The agent before this one was 0.1.0: its files are the very ones that it would have left."""
    node.kill()
    as_0_1_0(node.state, node.api.all("pods"))
    node.start()


def _kubelet_restarted(node: Node) -> None:
    if node.devices is not None and node.devices.serving:
        node.devices.stop()
        node.devices.start()
    node.kubelet.say_again()


def _offline(node: Node) -> None:
    last = max(CpuSet.parse(node.kernel("db")))
    node.change_machine(CPU, f"offline {last}")


def _online(node: Node) -> None:
    node.change_machine(CPU, "")


def _pages(node: Node) -> None:
    node.change_machine("huge pages", f"{PAGES} 2Mi pages per node")
    size = f"{2 * PAGES * 2}Mi"
    node.take({"hugepages-2Mi": size}, {"hugepages-2Mi": size, "memory": f"{15 * 1024 - 2 * PAGES * 2}Mi"})


def _proxied(node: Node) -> None:
    node.environment = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), "http://127.0.0.1:9")
    node.restart()


def _restarted(node: Node) -> None:
    node.restart()


ROWS = (
    Fault("agent killed", "SIGKILL, and the next start at once", _killed),
    Fault("agent OOM-killed", "SIGKILL in the middle of an effect, and again at the next start's first",
          _die, amid=_oom),
    Fault("node rebooted", "no process, no cgroup; then all pods in new containers", _rebooted, _booted,
          keeping=False),
    Fault("checkpoint lost", "the file is gone before the next start", _lost),
    Fault("older checkpoint", "the state folder is one that 0.1.0 left", _older),
    Fault("disk full", "ENOSPC below the state folder", lambda node: node.disk("ENOSPC"), lambda node: node.disk("")),
    Fault("disk read-only", "EROFS there", lambda node: node.disk("EROFS"), lambda node: node.disk("")),
    Fault("containerd restarted", "NRI drops and comes back",
          lambda node: node.runtime.restart() if node.runtime else None),
    Fault("kubelet restarted", "podresources drops, every status is written again", _kubelet_restarted),
    Fault("daemon-reload", "every cpuset is its parent's", lambda node: node.kubelet.daemon_reload()),
    Fault("CPU offline", "one of a container's own", _offline, _online),
    Fault("reserved CPU offline", "one of reservedSystemCPUs",
          lambda node: node.change_machine(CPU, "offline 8"), _online),
    Fault("huge pages late", "more than half of the memory, while pods run", _pages,
          settings={"memoryManagerPolicy": "Static"}),
    Fault("clock behind", "the node's, by 5 minutes; the agent starts anew", _restarted, skew=SKEW),
    Fault("clock ahead", "the node's, by 5 minutes; the agent starts anew", _restarted, skew=-SKEW),
    Fault("proxy set", "the agent starts anew, and its environment names a proxy that does not answer", _proxied),
    Fault("state folder hangs", "no write below it returns", lambda node: node.disk("HANG"),
          lambda node: node.disk(""), telling=False,
          beside=("NRI away", "NRI slow", "NRI unsynchronised", "watch stale", "memory differs")),
)  # fmt: skip


# ---- columns


def _api(name: str, what: str, fault: str, *, telling: bool = True, cluster: bool = True) -> Fault:
    return Fault(
        name, what, lambda node: node.api.fault(fault), lambda node: node.api.calm(), telling=telling, cluster=cluster
    )  # fmt: skip


def _nri(name: str, what: str, fault: str) -> Fault:
    return Fault(
        name, what, lambda node: node.runtime.fault(fault) if node.runtime else None,
        lambda node: node.runtime.calm() if node.runtime else None,
    )  # fmt: skip


def _less(node: Node) -> None:
    """The agent starts again; then a container of a pod that has CPUs starts again, and a pod comes that shares."""
    node.change_machine(MEMORY, "8188M per node")
    node.turns(4)
    if not node.hangs:  # a start waits for its first save
        node.ensure()
        node.restart()
        node.wait(lambda: node.runtime is None or node.runtime.connected, "NRI")
        node.wait(lambda: node.listed, "a list of pods")
    if not {"space/db", "space/web"} <= node.kubelet.pods.keys():
        return
    node.kubelet.restart("space/web", "c")
    node.run("guest", cpu="500m")
    since = node.journal.file.stat().st_size
    if not node.hangs:
        node.wait(lambda: not _strayed(node), lambda: f"CPUs to be kept: {_strayed(node)}")
        assert node.looks(since) <= MOST, f"CPUs were kept after {node.looks(since)} looks of the agent"


def _strayed(node: Node) -> str:
    """What runs where the saved ledger has it not, "" for nothing."""
    both = CpuSet.parse(node.kernel("db")) & CpuSet.parse(node.kernel("guest"))
    if both:
        return f"a pod that came runs on CPUs {both} of another"
    runs, saved = node.kernel("web"), node.held("web")
    return "" if runs == saved else f"web started again on CPUs {runs} instead of {saved}"


def _no_devices(node: Node) -> None:
    assert node.devices is not None
    node.devices.stop()
    node.devices.given["space", "gpu"] = {"c": {"vendor.com/gpu": ["gpu-1"]}}
    body = node.create("gpu", cpu="1", resources={"vendor.com/gpu": "1"})
    node.kubelet.run(f"{body['metadata']['namespace']}/gpu")


def _devices(node: Node) -> None:
    assert node.devices is not None
    node.devices.start()


def _ended(node: Node) -> None:
    if "space/db" in node.kubelet.pods:  # a reboot ended it before
        node.kubelet.end("space/db")


def _heard(node: Node) -> None:
    """The agent knows that it ended; until then nothing is tried."""
    if "space/db" in node.kubelet.pods:
        node.ensure()
        ended = 'numalign_pods{state="ended"}'
        node.wait(lambda: node.metric(ended), "the agent to know of a pod that left the API")


def _resized(cpu: str) -> Work:
    def work(node: Node) -> None:
        if "space/db" in node.kubelet.pods:
            node.resize("db", cpu)
            node.kubelet.resize("space/db", "c")

    return work


def _garbage(node: Node) -> None:
    notes = {
        "numalign.io/devices": "x=" + "1" * 5000, "numalign.io/policy": "\x01" * 2000, "numalign.io/scope": "pod,pod",
        "numalign.io/on-misalignment": "{" * 3000, "numalign.io/cpu-options": "=" * 1000,
        "numalign.io/align": "\u202e",
        "numalign.io/assignment": '{"containers":{"c":{"cpus":"0-15"}}}', "numalign.io/cpus": "0-15",
        **{f"numalign.io/unknown-{number}": "[" * 100 for number in range(400)},
    }  # fmt: skip
    node.run("garbage", cpu="1", annotations=notes)


def _crowd(node: Node) -> None:
    for number in range(CROWD):
        node.create(f"crowd-{number:03}", cpu="")


def _other_space(node: Node) -> None:
    node.api.fault("namespaces")
    node.run("other/db", cpu="1")


COLUMNS = (
    _api("API away", "every connection is cut", "away", telling=False, cluster=False),
    _api("API slow", "12 s a request", "slow", telling=False),
    _api("API errors", "429, 500 and 422 in turn", "errors", telling=False, cluster=False),
    _api("watch stale", "silent watches, old lists, then 410", "stale"),
    _nri("NRI away", "no socket", "away"),
    _nri("NRI unsynchronised", "the runtime takes the agent in, and never synchronises it", "silent"),
    _nri("NRI slow", "Synchronize after 3 s, every request a second late", "slow"),
    Fault("podresources away", "no socket, while a pod with a device comes", _no_devices, _devices),
    Fault("resize in flight", "the spec asks for 3 CPUs in place of 2; the kubelet has not said yes",
          lambda node: node.resize("db", "3"), lambda node: node.kubelet.resize("space/db", "c")),
    Fault("resize without room", "the kubelet gave 12 CPUs in place of 2, and so many are not free",
          _resized("12"), _resized("2")),
    Fault("pod force-deleted", "out of the API, its processes run on",
          lambda node: node.force_delete("db"), _ended, amid=_heard),
    Fault("garbage annotations", "400 unknown keys, 5000 digits, control characters", _garbage),
    Fault("300 pods arrive", "at once", _crowd),
    Fault("namespace read fails", "500, while a pod of a new namespace comes", _other_space,
          lambda node: node.api.calm()),
    Fault("memory differs", "each NUMA node has 4 MiB less than when the ledger was saved; the agent starts anew",
          end=lambda node: node.change_machine(MEMORY, ""), amid=_less),
    Fault("kernel refuses writes", "EBUSY for every one of the agent's", lambda node: node.refuse("EBUSY"),
          lambda node: node.refuse(""), keeping=False),
)  # fmt: skip

KILLED = Fault("agent killed", "SIGKILL, and the next start at once", amid=_killed)
"""As a column: beside every other row, after its fault began."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two faults at once.

    Attributes:
        row, column: which.
    """

    row: Fault
    column: Fault

    @property
    def name(self) -> str:
        return f"{self.row.name} x {self.column.name}"

    @property
    def waits(self) -> bool:
        return self.column.name == "API slow"


def pairs() -> tuple[Pair, ...]:
    """All of them, and a kill beside each other row; those that take longest come first."""
    found = [
        Pair(row, column) for row in ROWS for column in (*COLUMNS, KILLED)
        if row.name != column.name and (not row.beside or column.name in row.beside)
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda pair: pair.column.name not in ("API slow", "300 pods arrive")))


def named(name: str) -> Pair:
    """A pair by its name."""
    return next(pair for pair in pairs() if pair.name == name)
