"""A start in a cluster: on a disk that refuses, beside an API server that is slow, or whose clock is another.

Finding 23.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.app.cluster.build import ClusterService, cluster_node
from agent.errors import AnotherAgentError
from agent.host.checkpoint import Checkpoint
from agent.host.standin import container_id
from agent.model.podspec import pod_from
from tests.flow.cluster_node import ClusterNode, StandInApi, list_pods, page, running
from tests.flow.world import container, manifest
from tests.patience import PATIENCE, until

DEPLOY = Path(__file__).parents[2] / "deploy"


def refuse(state: Path) -> Path:
    """From now on every save fails, as on a full disk; what was saved can be read."""
    block = state / ".checkpoint.json.new"
    block.mkdir(parents=True)
    return block


def test_the_startup_probe_passes_on_a_full_disk(tmp_path: Path) -> None:
    """A first start that can save nothing: recovered, not ready, and ready as soon as there is room again."""
    node = ClusterNode(tmp_path)
    node.world.run(manifest("db"))
    block = refuse(tmp_path / "state")
    with node.serving() as agent:
        until(lambda: page(agent, "/readyz?only=recovery")[0] == 200)
        assert page(agent, "/readyz?only=recovery") == (200, "started\n")
        status, text = page(agent, "/readyz")
        assert status == 503
        assert "checkpoint: " in text
        assert page(agent, "/healthz")[0] == 200
        assert node.world.effective("db") == "1-2"
        block.rmdir()
        until(lambda: "checkpoint: " not in page(agent, "/readyz")[1])


def test_the_probes_of_the_manifests() -> None:
    """The startup probe asks for recovery, the readiness probe for all of it, the liveness probe for the loop."""
    documents = yaml.safe_load_all((DEPLOY / "manifests" / "numalign.yaml").read_text("utf-8"))
    (daemons,) = [each for each in documents if each and each["kind"] == "DaemonSet"]
    container = daemons["spec"]["template"]["spec"]["containers"][0]
    paths = {probe: container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/readyz?only=recovery", "readiness": "/readyz", "liveness": "/healthz"}


def read_only(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on nothing in a folder can be made, written or renamed; what is there can be read."""
    opened = os.open

    def refusing(path: Any, flags: int, *arguments: Any, **named: Any) -> int:  # noqa: ANN401 - of os.open
        if str(path).startswith(str(folder)) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *arguments, **named)

    def still(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    patch.setattr(os, "open", refusing)
    patch.setattr(os, "replace", still)
    patch.setattr(os, "rename", still)


def test_a_disk_that_cannot_be_written_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a lock file can be made, as on a read-only disk: the agent starts, and a second one does not."""
    node = ClusterNode(tmp_path)
    node.world.run(manifest("db"))
    node.keep()
    read_only(monkeypatch, tmp_path / "state")
    with node.serving() as agent:
        until(lambda: page(agent, "/readyz?only=recovery")[0] == 200)
        assert node.world.effective("db") == "1-2"
        with pytest.raises(AnotherAgentError):
            Checkpoint(tmp_path / "state" / "checkpoint.json").lock()


def test_a_damaged_checkpoint_on_a_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither used nor put aside: the agent starts without it, and nothing is written over it before it is aside."""
    node = ClusterNode(tmp_path)
    node.world.run(manifest("db"))
    node.keep()
    file = tmp_path / "state" / "checkpoint.json"
    file.write_bytes(file.read_bytes()[:-20])
    damaged = file.read_bytes()
    with monkeypatch.context() as patch:
        read_only(patch, tmp_path / "state")
        with node.serving() as agent:
            until(lambda: page(agent, "/readyz?only=recovery")[0] == 200)
            assert "checkpoint: " in page(agent, "/readyz")[1]
            patch.undo()
            until(lambda: "checkpoint: " not in page(agent, "/readyz")[1])
    assert [each.read_bytes() for each in file.parent.glob("checkpoint.json.corrupt-*")] == [damaged]
    assert node.checkpoint.load() is not None


@pytest.mark.parametrize("slow", ["/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"])
def test_no_answer_holds_the_start_up(tmp_path: Path, slow: str) -> None:
    """One kind of request is never answered: the agent is made all the same, with what had been answered by then.

    Finding 22.
    """
    node = ClusterNode(tmp_path)
    pods = [manifest(f"p{number}", namespace=f"ns{number}") for number in range(20)]
    with StandInApi(pods=pods, slow={slow: 3600.0}) as api:
        made: list[ClusterService] = []

        def make() -> None:
            with cluster_node(node.options(api.url, patience=0.5)) as agent:
                until(lambda: any(path.startswith(slow) for path, _ in api.asked))
                made.append(agent)

        thread = threading.Thread(target=make, daemon=True)
        thread.start()
        thread.join(2 * PATIENCE)
        assert made, "the start waits longer than for one answer"
        assert len([path for path, _ in api.asked if path.startswith(slow)]) == 1


def test_namespaces_that_answer_in_time_count(tmp_path: Path) -> None:
    """Nothing is slow: every namespace is asked once (finding 22)."""
    node = ClusterNode(tmp_path)
    pods = [manifest(f"p{number}", namespace=f"ns{number % 3}") for number in range(9)]
    with StandInApi(pods=pods) as api, cluster_node(node.options(api.url, patience=PATIENCE)):
        asked = sorted(path for path, _ in api.asked if "namespaces" in path)
    assert asked == [f"/api/v1/namespaces/ns{number}" for number in range(3)]


def test_the_list_at_start_may_come_from_the_servers_cache(tmp_path: Path) -> None:
    """It carries resourceVersion=0 beside the node's selector; any other list of pods is not asked for.

    Finding 21.
    """
    node = ClusterNode(tmp_path)
    with StandInApi(pods=[manifest("db")]) as api, cluster_node(node.options(api.url)):
        lists = [query for path, query in api.asked if path == "/api/v1/pods"]
    assert lists == [{"fieldSelector": ["spec.nodeName=n1"], "resourceVersion": ["0"]}]


@pytest.mark.parametrize("ahead", [-300.0, 300.0])
def test_a_clock_that_is_five_minutes_off_changes_nothing(tmp_path: Path, ahead: float) -> None:
    """A pod that ran when the agent began is adopted; one that started later is not, whatever the clocks say.

    Finding 28.
    """
    node = ClusterNode(tmp_path)
    before = manifest("before", container(cpu="500m"))
    node.world.tree.add_pod("before", pod_from(before).qos)
    node.world.tree.add_container("before", container_id("before", "app"))
    node.keep()
    after = manifest("after", container(cpu="500m"), created=1)
    with node.serving() as agent:
        list_pods(agent, running(before, ahead), running(after, ahead))
        pods = agent.engine.ledger.pods
        assert (pods["before"].adopted, pods["after"].adopted) == (True, False)
