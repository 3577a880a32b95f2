"""The kill switch in a configuration file that is wrong otherwise is obeyed: nothing more is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.app import setup
from tests.flow.world import Ears

MACHINE = "synthetic:2 sockets x 1 node x 4 cores x 1 thread, 8G per node"
RIGHT = "reservedSystemCPUs: '0'\n"


@pytest.mark.parametrize("wrong", ["reservedSystemCPUs: '99'", "reservedSystemCpus: '1'", "waiting: soon"])
def test_finding_s03_a_mistake_beside_the_kill_switch_does_not_keep_it_off(tmp_path: Path, wrong: str) -> None:
    """The rest of the file changes nothing; the agent says both."""
    ears, config = Ears(), tmp_path / "config.yaml"
    config.write_text(RIGHT)
    before = setup.read_setup(config, MACHINE)
    config.write_text(f"{wrong}\nobserveOnly: true\n")
    now = setup.again(config, MACHINE, before, ears)
    assert now.switches.observe_only
    assert str(now.node.reserved) == "0"
    assert [(what, text.split(":")[0]) for what, text in ears.problems] == [
        ("settings", "the old settings stay, with observeOnly")
    ]


@pytest.mark.parametrize(
    "text", ["observeOnly: yes please", "observeOnly: [true]", "observeOnly: true\n  a: [", "- true"]
)
def test_finding_s03_what_is_no_kill_switch_turns_nothing_off(tmp_path: Path, text: str) -> None:
    """Neither another value nor a file that is no YAML stops the agent."""
    ears, config = Ears(), tmp_path / "config.yaml"
    config.write_text(RIGHT)
    before = setup.read_setup(config, MACHINE)
    config.write_text(text)
    assert not setup.again(config, MACHINE, before, ears).switches.observe_only
    assert len(ears.problems) == 1


def test_finding_s03_a_wrong_file_never_turns_the_kill_switch_off(tmp_path: Path) -> None:
    """It is on; who turns it off and mistypes something finds it on."""
    ears, config = Ears(), tmp_path / "config.yaml"
    config.write_text(RIGHT + "observeOnly: true\n")
    before = setup.read_setup(config, MACHINE)
    config.write_text("reservedSystemCPUs: '99'\nobserveOnly: false\n")
    assert setup.again(config, MACHINE, before, ears).switches.observe_only
