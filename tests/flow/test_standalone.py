"""`numalign run --pods` as it runs: follows the folder, repairs, serves its pages, ends cleanly."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

from agent.app.service.service import TICK
from agent.app.standalone.build import StandaloneOptions, standalone_node
from agent.errors import AnotherAgentError, HostError, SettingsError
from agent.host.cgroups import Cgroups
from tests import patience
from tests.flow.serving import MACHINE, replaced, serving, serving_db, write
from tests.flow.world import container
from tests.patience import until


def test_the_folder_is_followed(tmp_path: Path) -> None:
    """A manifest that is added is admitted, one that is changed is another pod, one that is removed is released."""
    assert TICK <= 1.0, "seconds, where no event of the folder comes"
    with serving(tmp_path) as node:
        folder = tmp_path / "pods"
        write(folder, "db", container(cpu="2"))
        until(lambda: node.held() == {"db": "1-2"})
        until(lambda: node.runs_on("db") == "1-2")
        write(folder, "web", container(cpu="", memory=""))
        until(lambda: node.held() == {"db": "1-2", "web": "shared"})
        write(folder, "db", container(cpu="3"))
        until(lambda: node.held() == {"db": "1-3", "web": "shared"})
        (folder / "db.yaml").unlink()
        until(lambda: node.held() == {"web": "shared"})
        until(lambda: node.runs_on("web") == "0-7")


def test_a_damaged_manifest_ends_no_pod(tmp_path: Path) -> None:
    """Half-saved or malformed, its pod runs on; mended, it is the same pod; others are served meanwhile."""
    with serving(tmp_path) as node:
        folder = tmp_path / "pods"
        write(folder, "db", container(cpu="2"))
        until(lambda: node.held() == {"db": "1-2"})
        good = (folder / "db.yaml").read_text("utf-8")
        (folder / "db.yaml").write_text("kind: Pod\nmetadata: {name: [", "utf-8")
        write(folder, "web", container(cpu="1"))
        until(lambda: node.held() == {"db": "1-2", "web": "3"})
        until(lambda: "numalign_manifest_errors 1.0" in node.get("/metrics")[1])
        (folder / "db.yaml").write_text(good, "utf-8")
        until(lambda: "numalign_manifest_errors 0.0" in node.get("/metrics")[1])
        assert node.held() == {"db": "1-2", "web": "3"}


def test_drift_is_repaired(tmp_path: Path) -> None:
    """Somebody else's write is undone within the reconcile period, and counted."""
    with serving_db(tmp_path, "cpuManagerReconcilePeriod: 1s\n") as node:
        until(lambda: node.runs_on("db") == "1-2")
        granted = 'numalign_writes_total{cause="grant",file="cpuset.cpus",result="ok"}'
        until(lambda: granted in node.get("/metrics")[1])  # read back: before that, another's write is no drift
        file = node.cpuset("db")
        replaced(file, "4\n")
        until(lambda: file.read_text("ascii").strip() == "1-2")
        counted = 'numalign_writes_total{cause="drift-foreign",file="cpuset.cpus",result="ok"} 1.0'
        until(lambda: counted in node.get("/metrics")[1])  # counted after the write that we saw


def test_the_share_of_near_pages_is_told(tmp_path: Path) -> None:
    """Three in four pages of a pinned container lie on its node; without this gauge no alert tells of remote ones."""
    with serving_db(tmp_path, "cpuManagerReconcilePeriod: 1s\n") as node:
        node.cpuset("db").with_name("memory.numa_stat").write_text("anon N0=12288 N1=4096\n", "ascii")
        until(lambda: "numalign_local_memory_ratio 0.75" in node.get("/metrics")[1])


def test_settings_change_at_run_time(tmp_path: Path) -> None:
    """A new configuration is in force without a restart; a wrong one is told, and the old one stays."""
    config = tmp_path / "config.yaml"
    with serving_db(tmp_path, "reservedSystemCPUs: '0'\n") as node:
        replaced(config, "reservedSystemCPUs: 0-3\n")
        until(lambda: str(node.node.engine.node.reserved) == "0-3")
        assert node.held() == {"db": "1-2"}
        replaced(config, "reservedSystemCPUs: 0-900\n")
        until(lambda: 'numalign_problems_total{what="settings"} 1.0' in node.get("/metrics")[1])
        assert str(node.node.engine.node.reserved) == "0-3"
        until(lambda: node.get("/readyz")[0] == 503)
        assert "reservedSystemCPUs" in node.get("/readyz")[1]


def test_pages_tell_health_and_metrics(tmp_path: Path) -> None:
    """Live, ready, gauges per NUMA node; no pod's name anywhere (S20); unknown pages are not found."""
    with serving(tmp_path) as node:
        write(tmp_path / "pods", "secret-name", container(cpu="2"))
        until(lambda: node.held() == {"secret-name": "1-2"})
        assert node.get("/healthz")[0] == 200
        assert node.get("/readyz") == (200, "ready\n")
        status, text = node.get("/metrics")
        assert status == 200
        assert 'numalign_cpus{numa_node="0",use="exclusive"} 2.0' in text
        assert 'numalign_admissions_total{outcome="aligned",policy="best-effort",reason=""} 1.0' in text
        assert 'numalign_pods{state="pinned"} 1.0' in text
        assert "secret-name" not in text
        assert node.get("/pods")[0] == 404


def test_gauges_for_dashboards_are_there_without_a_cluster_too(tmp_path: Path) -> None:
    """Alignment, fragmentation, saves and other writers: what dashboards and alerts read."""
    with serving(tmp_path) as node:
        write(tmp_path / "pods", "db", container(cpu="2"))
        until(lambda: node.held() == {"db": "1-2"})
        text = node.get("/metrics")[1]
        assert 'numalign_placed_pods{alignment="aligned"} 1.0' in text
        assert 'numalign_placed_pods{alignment="misaligned"} 0.0' in text
        assert 'numalign_largest_aligned{resource="cpu"} 4.0' in text
        assert re.search(r'numalign_checkpoint_saves_total\{result="ok"\} [1-9]', text)
        assert 'numalign_other_writers{found="flapping"} 0.0' in text
        node.node.engine.switch(observe_only=True, why="two at once", source="flapping")
        until(lambda: 'numalign_other_writers{found="flapping"} 1.0' in node.get("/metrics")[1])
        assert "numalign_observe_only 1.0" in node.get("/metrics")[1]


def test_a_full_disk_makes_it_unready_and_grants_nothing(tmp_path: Path) -> None:
    """/readyz names the reason; what runs stays; once there is room, the pod that waited is admitted."""
    with serving(tmp_path) as node:
        write(tmp_path / "pods", "db", container(cpu="2"))
        until(lambda: node.held() == {"db": "1-2"})
        blocker = tmp_path / "state" / ".checkpoint.json.new"
        blocker.mkdir()  # whatever is saved next finds no place
        write(tmp_path / "pods", "next", container(cpu="1"))
        until(lambda: node.get("/readyz")[0] == 503)
        assert "cannot be saved" in node.get("/readyz")[1]
        assert node.held() == {"db": "1-2"}
        until(lambda: any(each.pod.name == "next" for each in node.node.engine.pods.values()))
        blocker.rmdir()
        node.node.engine.reconcile()
        assert node.held() == {"db": "1-2", "next": "3"}


def test_two_agents_on_one_node_are_impossible(tmp_path: Path) -> None:
    """The second one is told who holds the lock."""
    options = StandaloneOptions(pods=tmp_path, state=tmp_path / "state", root=MACHINE)
    with standalone_node(options), pytest.raises(AnotherAgentError, match=str(os.getpid())):
        standalone_node(options)


def test_a_recorded_machine_is_never_served_on_real_cgroups(tmp_path: Path) -> None:
    """Its CPUs are not here."""
    options = StandaloneOptions(pods=tmp_path, state=tmp_path / "state", root=MACHINE, cgroup_root="/sys/fs/cgroup")
    with pytest.raises(SettingsError, match="--cgroup-root: /sys/fs/cgroup is of this machine"):
        standalone_node(options)


def test_a_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    """Not a traceback."""
    with pytest.raises(HostError, match="nowhere: cannot be read: No such file or directory; name a folder"):
        standalone_node(StandaloneOptions(pods=tmp_path / "nowhere", state=tmp_path / "state", root=MACHINE))


def cats(parent: int) -> list[psutil.Process]:
    """The processes below one that are a cat without arguments."""
    found = []
    for each in psutil.Process(parent).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            found += [each] if each.cmdline() == ["/bin/cat"] else []
    return found


def runs(process: psutil.Process) -> bool:
    """Whether it is still there, and no zombie that nobody has waited for."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    """`numalign run` as a process of its own, once its first table is out."""
    command = [
        sys.executable, "-m", "agent", "run", "--pods", str(folder / "pods"), "--state-dir", str(folder / "state"),
        "--metrics-address", "off", "--output", "json", *options,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline().rstrip() != "}":
        assert process.poll() is None, process.communicate()[1]
    return process


@pytest.mark.parametrize("ending", ["SIGTERM", "SIGKILL"])
def test_processes_are_where_the_table_says_and_none_is_left(tmp_path: Path, ending: str) -> None:
    """On this very machine, by sched_setaffinity; after SIGTERM or kill -9 no process remains."""
    (tmp_path / "pods").mkdir()
    write(tmp_path / "pods", "web", container(cpu="500m"))
    write(tmp_path / "pods", "db", container(cpu="", memory=""))
    process = start(tmp_path)
    until(lambda: len(cats(process.pid)) >= 2)  # a process has no command line until its exec is over
    mine = cats(process.pid)
    if ending == "SIGTERM":
        process.terminate()
        assert process.wait(patience.PATIENCE) == 0
        assert "the ledger is saved" in process.communicate()[1]
    else:
        process.kill()
        process.wait(patience.PATIENCE)
    until(lambda: not any(map(runs, mine)))
    process.communicate()


def test_the_process_of_a_manifest_that_goes_ends(tmp_path: Path) -> None:
    """Its CPUs are given to the next pod: a process that stays would run on them beside it."""
    with serving(tmp_path, root=None):
        write(tmp_path / "pods", "web", container(cpu="500m"))
        write(tmp_path / "pods", "db", container(cpu="", memory=""))
        until(lambda: len(cats(os.getpid())) == 2)
        (tmp_path / "pods" / "db.yaml").unlink()
        until(lambda: len(cats(os.getpid())) == 1)
    assert not cats(os.getpid())


def test_after_kill_9_it_starts_again_without_moving_anything(tmp_path: Path) -> None:
    """The same ledger and the same cgroups, and not one write, by the command line itself."""
    (tmp_path / "pods").mkdir()
    for number, name in enumerate(("a", "b", "c")):
        write(tmp_path / "pods", name, container(cpu=str(number + 1)))
    tree = Cgroups
    seen = []
    for _ in range(3):
        process = start(tmp_path, "--root", MACHINE, "--log-level", "debug")
        process.kill()
        text = process.communicate()[1]
        observed = tree(tmp_path / "state" / "cgroup").observe()
        seen.append((observed, (tmp_path / "state" / "checkpoint.json").read_bytes(), "written" in text))
    assert seen[0][2] is True
    assert seen[1] == seen[2] == (*seen[0][:2], False)


def test_json_output_is_for_programs(tmp_path: Path) -> None:
    """--once --output json: containers, NUMA nodes, refusals; exit code 1 says that a pod does not run."""
    (tmp_path / "pods").mkdir()
    write(tmp_path / "pods", "db", container(cpu="2"))
    write(tmp_path / "pods", "big", container(cpu="99"), policy="single-numa-node", on_misalignment="fail")
    command = [
        sys.executable, "-m", "agent", "run", "--once", "--pods", f"{tmp_path}/pods", "--state-dir",
        f"{tmp_path}/state",        "--root", MACHINE, "--output", "json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")
    assert [each["cpus"] for each in answer["containers"]] == [None, "1-2"]
    assert [each["reason"] for each in answer["refused"].values()] == ["TopologyAffinityError"]
    books = answer["numaNodes"][0]["memory"]["memory"]
    assert books["total"] == books["system"] + books["granted"] + books["free"] > 0
    assert answer["numaNodes"][0]["free"] == "3"


def test_a_wrong_manifest_is_on_the_page_while_it_is_wrong(tmp_path: Path) -> None:
    """/api/node names file and fault; once the manifest is mended it does not."""
    config = tmp_path / "config.yaml"
    config.write_text("{page: {port: 0}}")
    with serving(tmp_path, config=config) as running:

        def wrong() -> list[str]:
            with urllib.request.urlopen(f"{running.node.page.address}api/node", timeout=patience.PATIENCE) as answer:
                found: list[str] = json.load(answer)["wrongManifests"]
            return found

        assert wrong() == []
        (tmp_path / "pods" / "99-bad.yaml").write_text("a: [")
        until(lambda: bool(wrong()))
        assert "99-bad.yaml" in wrong()[0]
        (tmp_path / "pods" / "99-bad.yaml").unlink()
        until(lambda: not wrong())
