"""Tables hold at any width: no number, set of CPUs or name is ever cut."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agent.app.page.views import NodeView, Row
from agent.cli import group, show
from agent.core.accounting.usage import MemoryUse, NodeUse
from agent.model.idset import CpuSet, NodeSet

ROOT = Path(__file__).parents[2]
CPUS = st.sets(st.integers(0, 255), max_size=24).map(CpuSet.from_ids)
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,14}[a-z0-9]", fullmatch=True)
MEMORY = st.dictionaries(st.integers(0, 7), st.just({"memory": 3 << 30, "hugepages-2Mi": 64 << 20}), max_size=3)
WHY = ("", "it asks for 12 CPUs, and 5 are free on this node")


@st.composite
def views(draw: st.DrawFn) -> NodeView:
    """Containers and nodes with sets of any raggedness."""
    rows = tuple(
        Row(
            f"shop/{draw(NAMES)}", str(place), draw(NAMES), draw(st.sampled_from(("app", "init", "sidecar"))),
            "Guaranteed", draw(CPUS) or None, CpuSet(), NodeSet.of(0), draw(MEMORY), {}, "not aligned",
            draw(st.sampled_from(WHY)),
        )
        for place in range(draw(st.integers(1, 4)))
    )  # fmt: skip
    use = {"memory": MemoryUse(64 << 30, 1 << 30, 2 << 30)}
    nodes = tuple(NodeUse(number, draw(CPUS), draw(CPUS), draw(CPUS), draw(CPUS), use) for number in range(2))
    return NodeView(rows, CpuSet(), nodes)


def printed(view: NodeView, width: int) -> str:
    """Both tables in a terminal of this width."""
    stream = io.StringIO()
    target = Console(file=stream, width=width, highlight=False)
    show.pods_grid(view, width).print(target)
    show.nodes_grid(view, width).print(target)
    return stream.getvalue()


@given(view=views(), width=st.integers(60, 200))
def test_no_token_is_ever_broken(view: NodeView, width: int) -> None:
    """Every range, count, name and amount of the view is a word of what is printed, at each width."""
    words = {part for word in printed(view, width).split() for part in word.split(",")}
    sets = [row.cpus for row in view.rows if row.cpus]
    sets += [each for node in view.nodes for each in (node.exclusive, node.shared, node.reserved, node.free) if each]
    wanted = {part for each in sets for part in (*str(each).split(","), f"({len(each)})")}
    wanted |= {name for row in view.rows for name in (row.pod, row.container)}
    wanted |= {part for row in view.rows for part in row.why.replace(",", "").split()}
    wanted |= {"3Gi" for row in view.rows if row.memory} | {"61Gi"}
    assert wanted - words == set()


@given(view=views(), width=st.integers(100, 200))
def test_no_line_is_longer_than_the_terminal(view: NodeView, width: int) -> None:
    """Where names have ordinary lengths, a terminal of 100 columns and more folds nothing."""
    assert max(map(len, printed(view, width).splitlines())) <= width


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_first_picture_fits_the_terminal(tmp_path: Path, width: int) -> None:
    """The examples on two sockets: the tables of run, state, plan, verify and simulate stay within the columns."""
    root = ["--root", "two-sockets", "--config", str(ROOT / "deploy/examples/config.yaml")]
    kept = ["--state-dir", str(tmp_path / "state")]
    pods = ["--pods", str(ROOT / "deploy/examples/pods")]
    for command in (
        ["run", "--once", *pods, *root, *kept], ["state", *root, *kept], ["plan", "--repack", "-v", *root, *kept],
        ["verify", *root, *kept], ["simulate", "--show-pods", "--show-nodes", *pods, *root],
    ):  # fmt: skip
        done = CliRunner().invoke(group, command, env={"COLUMNS": str(width)})
        assert done.exit_code in (0, 1), done.output
        table = [line for line in done.output.splitlines() if str(tmp_path) not in line and not line[:1].isalpha()]
        assert [line for line in table if len(line) > width] == [], command
        assert not any(line.rstrip().endswith(("-", "…")) and line[-2:-1].isdigit() for line in table), command


def test_a_lone_cpu_is_no_number_of_cpus(tmp_path: Path) -> None:
    """One CPU is shown as its id with a count, below a header that says CPUs."""
    (tmp_path / "db.yaml").write_text(
        "{kind: Pod, metadata: {name: db}, spec: {containers: [{name: app, resources: {limits: "
        '{cpu: "1", memory: 1Mi}}}]}}'
    )
    machine = "synthetic:1 socket x 2 cores, 8G per node"
    line = ["run", "--once", "--pods", str(tmp_path), "--root", machine, "--state-dir", str(tmp_path / "state")]
    done = CliRunner().invoke(group, line, env={"COLUMNS": "120"})
    assert "1 (1)" in done.output
    assert "exclusive CPUs" in done.output
