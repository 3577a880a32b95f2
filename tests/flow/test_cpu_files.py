"""The folder in which a mixed container follows which CPUs are its own: made, replaced, kept, gone with its pod."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.app.statedir import beside
from agent.host import cpu_files
from agent.host.checkpoint import Checkpoint
from agent.host.cpu_files import DESTINATION, FILE, FOLDER, CpuFiles
from agent.host.device_nodes import Usable
from agent.host.nri import nri_pb2
from agent.host.nri.decisions import EngineDecisions
from agent.host.nri.driver import NriDriver
from agent.host.nri.translate import FOLDER_OPTIONS, adjustment
from agent.host.nri.values import RuntimeContainer, Sandbox
from agent.host.standin import container_id
from agent.model.podspec import pod_from
from tests.flow.exclusive_world import MACHINE, Node, burstable, guaranteed
from tests.flow.world import World
from tests.patience import PATIENCE

_replace = Path.replace
NOTE: dict[str, Any] = {"exclusive": "auto", "mixed": "app"}


class Served:
    """A node whose runtime asks by NRI, and whose loop keeps the files; `again` is the same after a restart."""

    def __init__(self, folder: Path, node: Node | None = None, **settings: Any) -> None:  # noqa: ANN401 - a document's values
        self.state = folder / "state"
        self.state.mkdir(exist_ok=True)
        self.node = node or Node(folder / "tree", settings=settings)
        self.again()

    def again(self) -> None:
        """The agent starts again: it knows of the folders what the disk says. The runtime has synchronized it."""
        self.files = CpuFiles(self.state, "/on/host")
        self.files.begin()
        decisions = EngineDecisions(self.node.engine, lambda _address: Usable(()), files=self.files)
        self.driver = NriDriver(decisions)
        self.node.engine.pods_listed(set(self.node.pods))

    def turn(self) -> None:
        """The service's loop comes by."""
        self.files.follow(self.node.engine.snapshot, self.node.engine.at_rest)

    def create(self, body: dict[str, Any], name: str = "app") -> nri_pb2.ContainerAdjustment:
        """A pod is listed, and its runtime asks for one container, then starts all."""
        found = pod_from(body)
        self.node.pods[found.uid] = found
        self.node.engine.pods_seen([found])
        self.turn()
        number = container_id(found.uid, name)
        answer = self.driver.create_container(
            Sandbox("s", found.uid, "default", found.uid), RuntimeContainer(number, "s", name)
        )
        self.node.start(found.uid)
        self.turn()
        return adjustment(answer)

    def says(self, uid: str, name: str = "app") -> dict[str, str]:
        """What a container reads."""
        text = (self.state / FOLDER / uid / name / FILE).read_text(encoding="ascii")
        return dict(line.split("=") for line in text.splitlines())

    def told(self, uid: str) -> dict[str, str]:
        """What it should read."""
        return {
            "NUMALIGN_EXCLUSIVE_CPUS": self.node.holds(uid),
            "NUMALIGN_SHARED_CPUS": str(self.node.engine.ledger.cpus.mixed[uid]["app"]),
        }


def test_a_mixed_container_starts_with_its_folder(tmp_path: Path) -> None:
    """Env and file say the same, the folder is mounted read-only as the host names it; nobody else has one."""
    served = Served(tmp_path)
    answer = served.create(burstable("b", **NOTE))
    assert {each.key: each.value for each in answer.env} == served.says("b") == served.told("b")
    (mount,) = answer.mounts
    assert (mount.source, mount.destination, mount.type) == (f"/on/host/{FOLDER}/b/app", DESTINATION, "bind")
    assert tuple(mount.options) == FOLDER_OPTIONS
    assert "ro" in mount.options
    path = served.state / FOLDER / "b" / "app"
    assert [oct(each.stat().st_mode & 0o777) for each in (path, path / FILE)] == ["0o755", "0o644"]
    for other in (served.create(burstable("b", **NOTE), "side"), served.create(guaranteed("g", created=1))):
        assert (len(other.mounts), len(other.env)) == (0, 0)
    assert [each.name for each in (served.state / FOLDER).iterdir()] == ["b"]


def test_a_resize_is_followed_by_another_file_of_that_name(tmp_path: Path) -> None:
    """Up, down, to a fraction and back: replaced by rename, once the kernel has it; who reads sees old or new."""
    served = Served(tmp_path)
    served.create(burstable("b", **NOTE))
    path = served.state / FOLDER / "b" / "app" / FILE
    for cpu in ("6", "3"):
        before, number = path.read_text(), path.stat().st_ino
        with path.open() as held:
            served.node.see(burstable("b", cpu=cpu, **NOTE))
            assert path.stat().st_ino == number, "nobody has come by yet"
            served.turn()
            assert held.read() == before
        assert served.says("b") == served.told("b")
        assert [each.name for each in path.parent.iterdir()] == [FILE]
    served.node.see(burstable("b", cpu="2500m", **NOTE))
    served.turn()
    assert served.says("b") == {
        "NUMALIGN_EXCLUSIVE_CPUS": "", "NUMALIGN_SHARED_CPUS": str(served.node.engine.ledger.cpus.shared),
    }  # fmt: skip
    served.node.see(burstable("b", cpu="4", **NOTE))
    served.turn()
    assert served.says("b") == served.told("b")


def test_with_the_pool_the_file_follows_other_pods(tmp_path: Path) -> None:
    """mixedSharedCPUs: pool: who comes and goes changes the shared part of all mixed containers."""
    served = Served(tmp_path, mixedSharedCPUs="pool")
    served.create(burstable("b", **NOTE))
    served.create(guaranteed("g", cpu="8", created=1))
    assert served.says("b")["NUMALIGN_SHARED_CPUS"] == str(served.node.engine.ledger.cpus.shared)
    served.node.end("g")
    served.node.engine.pods_gone(["g"])
    served.node.engine.reconcile()
    served.turn()
    assert served.says("b")["NUMALIGN_SHARED_CPUS"] == str(served.node.engine.ledger.cpus.shared)


def test_what_the_kernel_refuses_is_not_told(tmp_path: Path) -> None:
    """A resize that is granted and not in force changes no file before it is."""
    served = Served(tmp_path)
    served.create(burstable("b", **NOTE))
    before = served.says("b")
    served.node.kernel.refuse(errno.EBUSY)
    served.node.see(burstable("b", cpu="6", **NOTE))
    served.turn()
    assert len(served.node.holds("b")) > 0
    assert served.says("b") == before != served.told("b")
    served.node.kernel.mend()
    served.node.engine.reconcile()
    served.turn()
    assert served.says("b") == served.told("b")


def test_it_outlives_the_agent_and_goes_with_the_pod(tmp_path: Path) -> None:
    """A restart goes on with the folders that it finds, also of what changed meanwhile; its pod's end removes one."""
    served = Served(tmp_path)
    served.create(burstable("b", **NOTE))
    served.create(burstable("c", created=1, **NOTE))
    served.node.see(burstable("b", cpu="6", **NOTE))  # and the agent ends before its loop comes by
    served.again()
    served.node.engine.reconcile()
    served.turn()
    assert served.says("b") == served.told("b")
    served.node.end("b")
    served.again()
    served.turn()
    assert (served.state / FOLDER / "b").is_dir(), "its grant is not freed yet"
    served.node.engine.pods_gone(["b"])
    served.node.engine.reconcile()
    served.turn()
    assert [each.name for each in (served.state / FOLDER).iterdir()] == ["c"]
    assert served.says("c") == served.told("c")


def test_a_folder_stays_until_the_pods_are_listed(tmp_path: Path) -> None:
    """The checkpoint is lost and the API server is away: the pod still runs, and what it looks at must not vanish."""
    served = Served(tmp_path)
    served.create(burstable("b", **NOTE))
    lost = World(tmp_path / "tree", machine=MACHINE)
    files = CpuFiles(served.state, "/on/host")
    files.follow(lost.engine.snapshot, lost.engine.at_rest)
    assert set(served.says("b")) == {"NUMALIGN_EXCLUSIVE_CPUS", "NUMALIGN_SHARED_CPUS"}
    lost.engine.pods_listed(set())
    lost.engine.pods_gone(["b"])
    files.follow(lost.engine.snapshot, lost.engine.at_rest)
    assert not (served.state / FOLDER / "b").exists()


def test_without_nri_there_is_neither_folder_nor_file(tmp_path: Path) -> None:
    """No runtime has synchronized the agent: no container has a mount, so nothing is kept for it."""
    served = Served(tmp_path)
    served.files = CpuFiles(served.state)
    served.node.come(burstable("b", **NOTE))
    served.turn()
    assert list(served.state.iterdir()) == []


def test_where_nobody_is_mixed_nothing_is_made_or_asked(tmp_path: Path) -> None:
    """Off costs nothing: no folder, no lock, whatever happens."""
    served = Served(tmp_path)
    served.create(guaranteed("g"))
    served.files.follow(served.node.engine.snapshot, lambda: pytest.fail("the lock was taken"))
    assert list(served.state.iterdir()) == []


@pytest.mark.parametrize("uid", ["../up", "a/b", ".", "", "x" * 65, "a\n"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, uid: str) -> None:
    """A uid and a container's name are input: what is no plain name gets no folder."""
    served = Served(tmp_path)
    served.create(burstable("b", **NOTE))
    assert not served.files._keep(uid, "app", {"A": "1"})
    assert not served.files._keep("b", uid, {"A": "1"})
    assert [each.name for each in (served.state / FOLDER).iterdir()] == ["b"]
    assert [each.name for each in tmp_path.iterdir() if each.name not in ("tree", "plain", "state")] == []


def test_a_disk_that_refuses_costs_the_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The container starts pinned, with its environment, without the mount; that is told once; later it is tried."""
    served = Served(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", _full)
        answer = served.create(burstable("b", **NOTE))
        assert len(answer.mounts) == 0
        assert {each.key for each in answer.env} == {"NUMALIGN_EXCLUSIVE_CPUS", "NUMALIGN_SHARED_CPUS"}
        served.turn()
    assert [each.levelname for each in caplog.records if "are not told which CPUs" in each.message] == ["WARNING"]
    assert len(served.create(burstable("c", created=1, **NOTE)).mounts) == 1


def test_s9_a_disk_that_hangs_delays_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S9: the write below the state folder does not return: every container is answered, one without its mount."""
    served = Served(tmp_path)
    served.create(guaranteed("g"))
    hangs, free, write = threading.Event(), threading.Event(), Path.write_text

    def hang(self: Path, *args: Any, **more: Any) -> int:  # noqa: ANN401 - of write_text
        if served.state in self.parents:
            hangs.set()
            assert free.wait(PATIENCE), self
        return write(self, *args, **more)

    monkeypatch.setattr(Path, "write_text", hang)
    served.node.see(burstable("b", created=1, **NOTE))
    loop = threading.Thread(target=served.turn)
    loop.start()
    assert hangs.wait(PATIENCE)
    for uid, own in (("b", True), ("g", True), ("b", True)):
        number = container_id(uid, "app")
        answer = served.driver.create_container(
            Sandbox("s", uid, "default", uid), RuntimeContainer(number, "s", "app")
        )
        assert (answer.folders, bool(answer.cpus)) == ((), own)
    assert loop.is_alive(), "all of that was answered while the disk hung"
    monkeypatch.undo()
    free.set()
    loop.join()


def _full(self: Path, target: Path) -> Path:
    if self.name != f".{FILE}.new":
        return _replace(self, target)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))


@contextlib.contextmanager
def _store(state: Path) -> Iterator[Checkpoint]:
    store = Checkpoint(state / "checkpoint.json")
    store.lock()
    yield store
    store.unlock()


def test_s17_a_node_that_is_left_keeps_no_folder(tmp_path: Path) -> None:
    """S17: what `numalign release --forget` and the uninstallation remove has these folders in it."""
    served = Served(tmp_path)
    served.create(burstable("b", **NOTE))
    with _store(served.state) as store:
        beside.forget(store)
    assert not (served.state / FOLDER).exists()
    cpu_files.forget(served.state)
