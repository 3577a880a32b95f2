"""Commands that run in the agent's own pod need not be told where its configuration is."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.app import setup
from agent.cli import group

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web, uid: web}
spec:
  containers:
  - {name: c, resources: {limits: {cpu: "1", memory: 64Mi}}}
"""


def said(*arguments: str) -> str:
    """What a command prints; it must not fail."""
    done = CliRunner().invoke(group, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_file_of_the_pod_is_read_for_its_own_machine_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State and verify agree with the agent on the reserved CPUs; a machine that is named has no file of this pod."""
    config = tmp_path / "config.yaml"
    config.write_text('reservedSystemCPUs: "0"\n')
    monkeypatch.setattr(setup, "CONFIG", config)
    assert setup.config_of(None, None) == config
    assert setup.config_of(None, "two-sockets") is None
    assert setup.config_of(tmp_path / "mine.yaml", None) == tmp_path / "mine.yaml"
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "web.yaml").write_text(POD)
    state = str(tmp_path / "state")
    served = ("--state-dir", state, "--cgroup-root", "scratch")
    said("run", "--once", "--pods", str(tmp_path / "pods"), "--config", str(config), *served)
    assert "reserved CPUs 0: as the settings say" in said("state", "--state-dir", state)
    said("verify", *served)
