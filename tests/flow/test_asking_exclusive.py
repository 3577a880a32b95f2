"""`numalign plan --exclusive` and `simulate --exclusive`: who would gain, who would be refused, and at what price."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from agent.app.standalone.build import StandaloneOptions, standalone_node
from agent.cli import group
from tests.flow.world import container, manifest

MACHINE = "synthetic:2 sockets x 1 node x 16 cores, 8G per node"
SETTINGS = {"topologyManagerPolicy": "single-numa-node", "reservedSystemCPUs": "0"}


def part(name: str, cpu: str, limit: str) -> dict[str, Any]:
    """A container by its request and limit of CPUs."""
    return {"name": name, "image": "none", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": limit}}}


PODS: tuple[Mapping[str, Any], ...] = (
    manifest("mysql", part("mysql", "8", "8"), part("backup", "1", "8"), part("exporter", "1", "6")),
    manifest("web", part("app", "2", "2"), part("istio-proxy", "1", "1"), part("log", "50m", "1"), created=1),
    manifest("large", part("app", "20", "20"), part("log", "50m", "1"), created=2),
    manifest("plain", part("app", "500m", "1"), created=3),
    manifest("pinned", container("app", cpu="2"), created=4),
)
"""A database beside helpers (kubernetes#106149), a pod with an injected proxy, one that no NUMA node has room for,
and two that gain nothing."""
SAID = (
    "2 pods would gain CPUs of their own: default/mysql (mysql: 8) and default/web (app: 2, istio-proxy: 1)",
    "1 pod would be refused: default/large",
    "hey request 13050m CPUs; made Guaranteed, they would take 26 CPUs: 12950m more.",
    "ontainers of one whole CPU, which would have it too: default/web istio-proxy",
)
"""Without the first letter, where a sentence begins with one or not."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node that these pods run on, none of which asks; what its agent left."""
    found = tmp_path_factory.mktemp("asked")
    (found / "config.yaml").write_text(yaml.safe_dump(SETTINGS), "utf-8")
    (found / "pods").mkdir()
    for number, body in enumerate(PODS):
        (found / "pods" / f"{number}.yaml").write_text(yaml.safe_dump(body), "utf-8")
    options = StandaloneOptions(
        pods=found / "pods", state=found / "state", config=found / "config.yaml", root=MACHINE, processes=False
    )
    with standalone_node(options) as node:
        node.once()
    return found


def ask(*arguments: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(group, [*arguments, "--root", MACHINE], env={"COLUMNS": "400"})


def planned(folder: Path, *arguments: str) -> Result:
    """Run `numalign plan` on what the agent left."""
    where = ("--state-dir", str(folder / "state"), "--config", str(folder / "config.yaml"))
    return ask("plan", *arguments, *where)


def test_plan_says_who_would_gain_and_what_guaranteed_pods_would_take(folder: Path) -> None:
    """The pods of a node: gains, refusals, an injected proxy by name; the database takes 10 CPUs instead of 22."""
    told = planned(folder, "--exclusive", "auto")
    words = " ".join(told.output.split())
    for sentence in SAID:
        assert sentence in words
    assert told.exit_code == 1, "one would be refused"
    answer = json.loads(planned(folder, "--exclusive", "auto", "-o", "json").output)["exclusive"]
    assert (answer["now"], answer["then"]) == ("none", "auto")
    mysql, web, large = answer["gains"]
    assert (mysql["pod"], mysql["containers"], mysql["requestedMilli"], mysql["asGuaranteedMilli"]) == (
        "default/mysql", {"mysql": 8}, 10_000, 22_000,
    )  # fmt: skip
    assert (web["oneCpu"], web["refused"]) == (["istio-proxy"], "")
    assert large["refused"]


def test_plan_leaves_out_whom_the_wish_leaves_out(folder: Path) -> None:
    """`auto,-NAME` and names: only what they take is told; a text that is no wish is refused with what is allowed."""
    told = " ".join(planned(folder, "--exclusive", "auto,-istio-proxy").output.split())
    assert "default/web (app: 2)" in told
    assert "ontainers of one whole CPU" not in told
    (only,) = json.loads(planned(folder, "--exclusive", "mysql", "-o", "json").output)["exclusive"]["gains"]
    assert only["pod"] == "default/mysql"
    assert "is not one of auto, none, names of containers" in str(planned(folder, "--exclusive", "no way").exception)


def test_simulate_says_the_same_of_manifests(folder: Path) -> None:
    """Beside the variant in which nobody has any, in the same words."""
    told = ask("simulate", "--pods", str(folder / "pods"), "--config", str(folder / "config.yaml"),
               "--exclusive", "none", "--exclusive", "auto")  # fmt: skip
    words = " ".join(told.output.split())
    for sentence in SAID:
        assert sentence in words
    assert "exclusive none: no container would gain CPUs of its own" in words
