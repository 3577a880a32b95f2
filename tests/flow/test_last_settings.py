"""A configuration file that is wrong when an agent begins: it serves with the settings that were in force last."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import SettingsError
from tests.flow.cluster_node import ClusterNode, page
from tests.flow.serving import MACHINE, replaced, serving, serving_db, write
from tests.flow.world import container, manifest
from tests.patience import until

SMALLER = "synthetic:1 socket x 1 node x 4 cores x 1 thread"
COUNTED = 'numalign_problems_total{what="settings"} 1.0'


def wrong(config: Path, text: str = "") -> None:
    """Somebody mistypes a value."""
    replaced(config, f"reservedSystemCPUs: 0-x\n{text}")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The file of a node that has served with CPU 7 reserved, and given CPUs 0-1 to db."""
    with serving_db(tmp_path, "reservedSystemCPUs: '7'\n", "0-1") as node:
        assert node.get("/readyz")[0] == 200
    return tmp_path / "config.yaml"


def test_a_start_with_a_wrong_file_serves_and_is_not_ready_until_it_is_right(tmp_path: Path, config: Path) -> None:
    """It has started; /readyz names file, key and remedy; pods are placed by the old settings; it is counted."""
    wrong(config)
    with serving(tmp_path, config=config) as node:
        assert node.get("/readyz?only=recovery")[0] == 200
        status, text = node.get("/readyz")
        assert status == 503
        assert all(part in text for part in ("the old settings stay", str(config), "reservedSystemCPUs", '"0-1,8"'))
        assert COUNTED in node.get("/metrics")[1]
        write(tmp_path / "pods", "next", container(cpu="1"))
        until(lambda: node.held() == {"db": "0-1", "next": "2"})
        assert str(node.node.engine.node.reserved) == "7"
        replaced(config, "reservedSystemCPUs: 6-7\n")
        until(lambda: node.get("/readyz")[0] == 200)
        assert str(node.node.engine.node.reserved) == "6-7"
    wrong(config)
    with serving(tmp_path, config=config) as node:
        assert str(node.node.engine.node.reserved) == "6-7", "the last file that was right, not the first"


def test_an_agent_whose_file_becomes_wrong_is_not_ready_either(tmp_path: Path, config: Path) -> None:
    """A rollout stops at the first node whose agent says so."""
    with serving(tmp_path, config=config) as node:
        wrong(config)
        until(lambda: node.get("/readyz")[0] == 503)
        assert "reservedSystemCPUs" in node.get("/readyz")[1]
        assert node.held() == {"db": "0-1"}


def test_the_kill_switch_in_a_wrong_file_is_on_from_the_start(tmp_path: Path, config: Path) -> None:
    """One switch stops it (S3): what somebody wrote to the cgroup stays, and nothing else is written."""
    wrong(config, "observeOnly: true\n")
    with serving(tmp_path, config=config) as node:
        assert "with observeOnly: true" in node.get("/readyz")[1]
        node.cpuset("db").write_text("4\n", "ascii")
        node.node.engine.reconcile()
        assert node.cpuset("db").read_text("ascii") == "4\n"


@pytest.mark.parametrize("damage", ["", "{}", '{"numalign":1,"sha256":"","settings":{}}', "[" * 9999, "changed"])
def test_settings_that_cannot_be_trusted_are_none(tmp_path: Path, config: Path, damage: str) -> None:
    """Empty, of another form, or changed by another hand: the agent ends as it does without any."""
    kept = tmp_path / "state" / "state.json"
    kept.write_text(kept.read_text("utf-8").replace('"7"', '"6"') if damage == "changed" else damage, "utf-8")
    wrong(config)
    with pytest.raises(SettingsError, match="reservedSystemCPUs"), serving(tmp_path, config=config):
        pytest.fail("it serves")


def test_a_first_start_with_a_wrong_file_ends(tmp_path: Path) -> None:
    """Nothing is known that could be served in its place."""
    config = tmp_path / "config.yaml"
    wrong(config)
    with pytest.raises(SettingsError, match="reservedSystemCPUs"), serving(tmp_path, config=config):
        pytest.fail("it serves")


def test_a_wrong_file_is_named_where_the_settings_of_before_do_not_fit_the_machine(
    tmp_path: Path, config: Path
) -> None:
    """CPU 7 has gone, too: the agent ends with what a person can mend, the file, and not with a fault of its own."""
    wrong(config)
    with pytest.raises(SettingsError, match="0-x"), serving(tmp_path, config=config, root=SMALLER):
        pytest.fail("it serves")


def test_who_looks_once_is_told_that_the_file_is_wrong(tmp_path: Path, config: Path) -> None:
    """`run --once` is asked by a person, who wants this file and no other: exit code 2."""
    wrong(config)
    command = [
        sys.executable, "-m", "agent", "run", "--once", "--root", MACHINE, "--config", str(config),
        "--pods", str(tmp_path / "pods"), "--state-dir", str(tmp_path / "state"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "reservedSystemCPUs" in done.stderr


def test_a_node_of_a_cluster_starts_with_the_settings_of_before(tmp_path: Path) -> None:
    """Its API server is away as well: started, not ready, and who runs stays where it is."""
    node = ClusterNode(tmp_path)
    node.world.run(manifest("db", container(cpu="2")))
    node.keep()
    with node.serving() as agent:
        assert page(agent, "/readyz?only=recovery")[0] == 200
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({**node.world.settings, "topologyManagerPolicy": "strict"}), "utf-8")
    with node.serving() as agent:
        assert page(agent, "/readyz?only=recovery")[0] == 200
        assert page(agent, "/readyz")[0] == 503
        assert "topologyManagerPolicy" in page(agent, "/readyz")[1]
        assert COUNTED in page(agent, "/metrics")[1]
        assert agent.engine is not None
        agent.engine.reconcile()
        assert node.world.effective("db") == "1-2"
        config.write_text(json.dumps(node.world.settings), "utf-8")
        until(lambda: "topologyManagerPolicy" not in page(agent, "/readyz")[1])


def test_a_pod_whose_cpus_are_reserved_by_now_is_named(
    tmp_path: Path, config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It keeps them, and that is said once: when the settings change, and at a start with them."""
    said = "CPUs 0-1 are reserved, and pod default/db keeps them until it ends: it was granted them before"
    for change in (True, False):
        caplog.clear()
        with serving(tmp_path, config=config) as node:
            if change:
                assert said not in caplog.text
                replaced(config, "reservedSystemCPUs: 0-1\n")
            until(lambda: said in caplog.text)
            assert node.held() == {"db": "0-1"}
            replaced(config, "reservedSystemCPUs: 0-1\nonMisalignment: wait\n")
            until(lambda node=node: node.node.engine.node.rules.on_misalignment == "wait")  # type: ignore[misc] # bound here
        assert caplog.text.count(said) == 1
        replaced(config, "reservedSystemCPUs: 0-1\n")
