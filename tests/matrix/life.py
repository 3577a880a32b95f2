"""One life of the real agent, in a process forked for it, as `numalign run` runs it.

What the test wants of the process itself is left in small files beside the tree (`journal.beside`):

    die      a number: SIGKILL before so many effects from now, as the OOM killer comes in the middle of something
    disk     the name of an errno: every write below the state folder fails with it (ENOSPC, EROFS), or hangs (HANG)
    refuse   the name of an errno: the kernel refuses every write of the agent with it
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import faulthandler
import io
import json
import os
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

from agent.app.cluster import find_pod
from agent.app.cluster.build import ClusterOptions, cluster_node
from agent.app.cluster.start import FIND_WITHIN
from agent.app.service.edges import Sockets
from agent.errors import NumalignError
from agent.host.cgroups import Cgroups
from agent.kube.access import ApiAccess
from agent.model.ledgerjson import MIXED
from agent.observe import logs
from agent.observe.logs import LOG
from tests.matrix.journal import Journal, beside, install

CHECKPOINT = "checkpoint.json"


def live(order: dict[str, Any]) -> int:
    """Serve until SIGTERM; the exit code as `numalign run` has it."""
    faulthandler.enable()
    os.environ.update(order.get("environment", {}))
    logs.setup("text", order.get("level", "info"))
    tree, state = Path(order["tree"]), Path(order["state"])
    install("agent")
    journal, steps = Journal(tree), Steps(tree)
    find_pod.FIND_WITHIN = order.get("find_within", FIND_WITHIN)  # type: ignore[attr-defined]  # imported there
    _hook_disk(beside(tree, "disk"), state)
    _hook_effects(journal, steps)
    account = Path(order["account"])
    options = ClusterOptions(
        node_name=order["node"], access=ApiAccess(order["server"], account / "ca.crt", account / "token"),
        state=state, config=Path(order["config"]), root=order["machine"], cgroup_root=str(tree),
        host=Path(order["host"]), kubelet_dir=Path(order["host"]), metrics_address="127.0.0.1:0",
        own_uid=order["own_uid"], own_namespace="numalign-system",
        sockets=Sockets(nri=order["nri"], podresources=order["podresources"]),
    )  # fmt: skip
    journal.mark("started")
    try:
        with cluster_node(options, steps=steps) as node:

            def end(_number: int, _frame: FrameType | None) -> None:
                node.stop()

            signal.signal(signal.SIGTERM, end)
            node.serve(started=lambda: LOG.info("serving", extra={"facts": {"node": options.node_name}}))
    except NumalignError as error:
        LOG.error("%s", error)
        return 3
    return 0


class Steps:
    """Told between every two effects; dies where it was told to."""

    def __init__(self, tree: Path) -> None:
        self._file = beside(tree, "die")

    def __call__(self, _name: str) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError):  # nobody is to die
            left = int(self._file.read_text("ascii")) - 1
            if left <= 0:
                self._file.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            self._file.write_text(str(left), "ascii")


def _hook_effects(journal: Journal, steps: Steps) -> None:
    """The save in its parts, and what became of it; and each look at the tree."""
    replace, fsync, observe = os.replace, os.fsync, Cgroups.observe

    def replaced(source: Any, target: Any, **named: Any) -> None:  # noqa: ANN401 - as os.replace takes them
        if Path(target).name != CHECKPOINT:
            replace(source, target, **named)
            return
        steps("replace")
        with journal.alone():  # a kill comes before both or after both
            replace(source, target, **named)
            ledger = json.loads(Path(target).read_bytes().partition(b"\n")[2])["ledger"]
            parts = ledger.get("others", {}).get(MIXED, {})
            journal.append({"by": "agent", "do": "saved", "assigned": ledger["cpus"]["assigned"], "mixed": parts})

    def synced(handle: int) -> None:
        steps("fsync")
        fsync(handle)

    def observed(self: Cgroups) -> Any:  # noqa: ANN401 - what it returns
        found = observe(self)
        journal.mark("looked")
        return found

    for owner, name, function in ((os, "replace", replaced), (os, "fsync", synced), (Cgroups, "observe", observed)):
        setattr(owner, name, function)


def _hook_disk(fault: Path, state: Path) -> None:
    """A full or read-only disk below the state folder, since only root could mount one."""
    fault_text, folder = os.fspath(fault), os.fspath(state)

    def check(path: object, *, writes: bool, makes: bool) -> None:
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        if not (writes and text.startswith(folder) and os.path.exists(fault_text)):  # noqa: PTH110 - hooked itself
            return
        with real_open(fault_text, encoding="ascii") as file:
            name = file.read().strip()
        while name == "HANG" and os.path.exists(fault_text):  # noqa: PTH110 - hooked itself
            time.sleep(0.01)
        if name == "HANG":
            return
        if name == "ENOSPC" and not makes:
            return  # what is there already may be opened, locked and read
        number = int(getattr(errno, name))
        raise OSError(number, os.strerror(number), text)

    real_open, real_os_open, real_replace = io.open, os.open, os.replace

    def opened(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:  # noqa: ANN401 - as open takes them
        check(file, writes=bool(set(mode) & set("wax+")), makes=bool(set(mode) & set("wax")))
        return real_open(file, mode, *more, **named)

    def os_opened(path: Any, flags: int, *more: Any, **named: Any) -> int:  # noqa: ANN401 - as os.open takes them
        writes = bool(flags & (os.O_WRONLY | os.O_RDWR))
        makes = bool(flags & os.O_TRUNC) or bool(flags & os.O_CREAT and not os.path.exists(path))  # noqa: PTH110 - names of os are what is watched
        check(path, writes=writes, makes=makes)
        return real_os_open(path, flags, *more, **named)

    def replaced(source: Any, target: Any, **named: Any) -> None:  # noqa: ANN401 - as os.replace takes them
        check(target, writes=True, makes=True)
        real_replace(source, target, **named)

    hooks = (io, "open", opened), (builtins, "open", opened), (os, "open", os_opened), (os, "replace", replaced)
    for owner, name, function in hooks:
        setattr(owner, name, function)
