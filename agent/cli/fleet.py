"""`numalign fleet`: every node of a cluster in one view, from what the nodes published. Reads only."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from agent.app.fleet.reading import read_fleet, with_troubled
from agent.app.fleet.source import ApiSource, FileSource, Progress, Source, silent
from agent.cli.output import many, not_written
from agent.errors import KubeError
from agent.forecast.fleet.figures import FleetFigures, figures_of
from agent.forecast.fleet.questions import GATED, FleetAnswers, answers, in_order, troubled_nodes
from agent.forecast.fleet.report import as_json, mean
from agent.forecast.fleet.values import Fleet
from agent.forecast.node_summary import Managers

TROUBLED = 1
"""Exit code when some pod waits, is refused or lies misaligned."""
EXAMPLES = """\b
Examples:
  numalign fleet                  of the cluster that kubectl speaks to
  numalign fleet --show-nodes     a row per node
  numalign fleet --svg fleet.svg  a picture: a tile a node
  numalign fleet -o json | jq -r '.pods[].advice'
  kubectl get noderesourcetopologies,nodes,namespaces,pods -A -o json |
      numalign fleet --from -
"""


@click.command("fleet", epilog=EXAMPLES)
@click.option("--kubeconfig", type=click.Path(path_type=Path), default=None,
              help="As kubectl's.  [default: $KUBECONFIG, ~/.kube/config]")  # fmt: skip
@click.option("--context", default="", metavar="NAME", help="Of the kubeconfig, instead of its current one.")
@click.option("--from", "files", metavar="FILE", multiple=True,
              help="Read what kubectl wrote instead of asking a cluster; - for standard input.")  # fmt: skip
@click.option("--show-nodes", is_flag=True, help="A row per node; up to 20 nodes have one anyway.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), default=None,
              help="Draw the fleet into this file, too.")  # fmt: skip
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(
    *, kubeconfig: Path | None, context: str, files: tuple[str, ...], show_nodes: bool, svg: Path | None, output: str,
) -> None:  # fmt: skip
    """Show the nodes of a cluster, how full they are, which pods wait or are refused, and where those would fit now.

    Reads what each node publishes where the setting fleet.publish is on, with the rights of your kubeconfig: Nodes,
    namespaces and pods are listed, never watched, and nothing is written. A pod "would fit" where the node's own
    decision, made again here with its machine and grants, takes it aligned. A node without a usable summary is
    listed with the reason.

    Exit codes: 0 no pod waits, is refused or lies misaligned; 1 some do; 2 wrong input; 3 the cluster cannot be
    read.
    """
    if files and (kubeconfig or context):
        raise click.UsageError("--from reads files, and asks no cluster: leave --kubeconfig and --context out")
    with _progress() as progress:
        fleet, found = _asked(_source(kubeconfig, context, files), progress)
    if svg is not None:
        _draw(svg, found)
    if output == "json":
        click.echo(json.dumps(as_json(found, fleet.read), indent=2))
    else:
        from agent.cli import fleet_show  # noqa: PLC0415 - rich is loaded only where a table is shown

        fleet_show.print_all(found, fleet.read, nodes=show_nodes)
    sys.exit(TROUBLED if found.troubles else 0)


def _source(kubeconfig: Path | None, context: str, files: tuple[str, ...]) -> Source:
    if files:
        return FileSource(files)
    from agent.kube.caller import Caller  # noqa: PLC0415 - the client takes half a second

    return ApiSource(Caller(kubeconfig, context))


def _asked(source: Source, progress: Progress) -> tuple[Fleet, FleetAnswers]:
    fleet = read_fleet(source, progress)
    made = Managers()
    figures = in_order(figures_of(each, made) for each in fleet.nodes)
    troubled = troubled_nodes(figures)
    notes = fleet.notes
    if troubled:
        try:
            fleet = with_troubled(fleet, troubled, source, progress)
        except KubeError as error:
            notes = (
                *notes,
                f"pods that may be misaligned or refused on {many(len(troubled), 'node')} are not named: {error}",
            )
    progress("decisions", 0, None)
    found = answers(fleet, figures)
    return fleet, FleetAnswers(
        found.figures, found.largest, found.troubles, (*notes, *found.notes[len(fleet.notes) :]), found.elsewhere
    )


def picture(found: FleetAnswers) -> str:
    """The fleet as SVG."""
    from agent.observe.drawing.fleet import FleetTile, draw_fleet  # noqa: PLC0415 - drawn only where it is asked for

    tiles = [FleetTile(each.name, *_tile(each), waiting=each.waiting, tip=_tip(each)) for each in found.figures]
    known = [each for each in found.figures if each.lack is None]
    about = (
        f"{round(100 * mean([each.fill for each in known]))} % of the CPUs are requested; "
        f"{sum(each.held for each in known):,} CPUs belong to one container each; "
        f"{many(len(found.troubles), 'pod', ',')} waiting, refused or misaligned, "
        f"{sum(each.kind == GATED for each in found.troubles):,} of them at the gate; "
        f"{many(len(found.figures) - len(known), 'node', ',')} without a summary"
    )
    return draw_fleet(tiles, f"Fleet of {many(len(tiles), 'node', ',')}", about)


def _draw(target: Path, found: FleetAnswers) -> None:
    try:
        target.write_text(picture(found), "utf-8")
    except OSError as error:
        raise not_written(target, error, "--svg") from error


def _tile(each: FleetFigures) -> tuple[str, float | None, float]:
    if each.lack is not None:
        return "no usable summary", None, 0.0
    return f"{each.shape}, {each.policy}", each.fill, each.fragmentation


def _tip(each: FleetFigures) -> str:
    if each.lack is not None:
        return f"{each.lack.value}: {each.why}"
    return (
        f"{round(100 * each.fill)} % requested, {each.held} of {each.cpus} CPUs exclusive, at most "
        f"{each.largest} free on one NUMA node, {each.waiting} waiting"
    )


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on a terminal's standard error while the cluster is read; nothing anywhere else."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console  # noqa: PLC0415 - rich is loaded only where a terminal is
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn  # noqa: PLC0415 - as above
    from rich.progress import Progress as Bar  # noqa: PLC0415 - as above

    with Bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=Console(stderr=True),
             transient=True) as bar:  # fmt: skip
        task = bar.add_task("reading", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
