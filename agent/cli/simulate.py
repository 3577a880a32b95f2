"""`numalign simulate`: where pods would go, under one or several sets of settings, or in a cluster."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, TextIO

import click

from agent.app.simulate.cluster_options import WhatIfOptions
from agent.app.simulate.figures import Figures, as_json, figures
from agent.app.simulate.simulate import MachineKind, Outcome, Prepared, SimulateOptions, prepare, run
from agent.cli.output import not_written
from agent.errors import BadInputError
from agent.forecast.scheduling import Strategy
from agent.model.fields import words_in
from agent.model.rules import Minor, OnMisalignment, Policy, Scope

NOT_ALL_IN, BAD_INPUT = 1, 2
CLUSTER_RETRIES = 5
_COUNTED = re.compile(r"(\d{1,5})x(.+)", re.ASCII | re.DOTALL)
_NAMED = re.compile(r"([a-z0-9](?:[a-z0-9.-]{0,200}[a-z0-9])?)=(.+)", re.ASCII | re.DOTALL)
EXAMPLES = """\b
Examples:
  numalign simulate --pods deploy/examples/pods
  numalign simulate --pods web.yaml --root two-sockets --machines 3 \\
      --policy best-effort,single-numa-node
  numalign simulate --pods apps/ --node 60xtwo-sockets --node 40xchiplets \\
      --policy single-numa-node --on-misalignment fail --show-nodes
  kubectl get pods -A -o json |
      numalign simulate --pods - --root worker.tar.xz --keep-nodes
  numalign simulate --pods apps/ --root 'synthetic:1 socket x 9 cores' -o json
  numalign simulate --cluster --pods web.yaml --replicas 20
  numalign simulate --cluster --pods web.yaml --add 2:worker-1
  numalign simulate --cluster --drain worker-3
  numalign simulate --cluster --pods web.yaml --gatekeeper
  numalign simulate --cluster --policy single-numa-node --nodes pool=batch
  numalign simulate --from fleet.json --pods web.yaml -o json
"""


Callback = Callable[[click.Context, click.Parameter, Any], Any]
Command = Callable[..., None]


def _words(words: type[StrEnum]) -> Callback:
    """An option that takes some words of an enumeration, with commas between them, each once."""

    def convert(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[StrEnum, ...]:
        found: list[StrEnum] = []
        for part in () if value is None else words_in(value):
            if not part:
                raise click.BadParameter("a word is missing; write one, or several with a comma between two")
            try:
                word = words(part)
            except ValueError:
                raise click.BadParameter(f'"{part[:60]}" is not one of {", ".join(words)}') from None
            if word not in found:
                found.append(word)
        return tuple(found)

    return convert


def _several(option: str, name: str, words: type[StrEnum], text: str) -> Callable[[Command], Command]:
    """An option of `_words`."""
    return click.option(option, name, metavar="|".join(words) + ",...", callback=_words(words), help=text)


def _kinds(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[MachineKind, ...]:
    """NxMACHINE, NAME=MACHINE, or MACHINE."""
    found = []
    for value in values:
        if counted := _COUNTED.fullmatch(value):
            if not int(counted[1]):
                raise click.BadParameter(f'"{value[:60]}" is no node; write 1 or more')
            found.append(MachineKind(counted[2], int(counted[1])))
        elif named := _NAMED.fullmatch(value):
            found.append(MachineKind(named[2], 1, named[1]))
        else:
            found.append(MachineKind(value))
    return tuple(found)


@click.command("simulate", epilog=EXAMPLES)
@click.option("--pods", type=click.Path(path_type=Path, allow_dash=True), multiple=True,
              help="File or folder with pods and workloads, or - for standard input. May be repeated.")  # fmt: skip
@click.option("--cluster", is_flag=True, help="Ask the nodes of a cluster, each as it is now (fleet.publish).")
@click.option("--from", "files", metavar="FILE", multiple=True,
              help="The cluster as kubectl printed it, instead of asking it; - for standard input.")  # fmt: skip
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Of the cluster.  [default: as kubectl]")
@click.option("--context", default="", help="Of the kubeconfig.")
@click.option("--replicas", metavar="N", type=click.IntRange(1, 100_000), help="Cluster: so many of each workload.")
@click.option("--nodes", "selector", default="", metavar="NAMES|LABELS",
              help="Cluster: --policy, --scope and --kubelet change only these: a,b or pool=batch.")  # fmt: skip
@click.option("--drain", "drained", metavar="NODE", multiple=True, help="Cluster: this node is emptied.")
@click.option("--add", "more", metavar="K:NODE", multiple=True, help="Cluster: K more nodes like this one.")
@click.option("--gatekeeper", is_flag=True, help="Cluster: forecast with a gatekeeper, too.")
@click.option("--root", metavar="MACHINE", multiple=True,
              help="A folder, an archive, lstopo XML, a name, or synthetic:...  [default: this machine]")  # fmt: skip
@click.option("--machines", metavar="N", type=click.IntRange(1, 10_000), default=1, show_default=True,
              help="So many nodes of each --root.")  # fmt: skip
@click.option("--node", "nodes", metavar="[Nx|NAME=]MACHINE", callback=_kinds, multiple=True,
              help="60xMACHINE: so many more nodes; NAME=MACHINE: one of that name. May be repeated.")  # fmt: skip
@click.option("--config", "configs", type=click.Path(path_type=Path), multiple=True,
              help="Configuration file; several are compared.")  # fmt: skip
@_several("--policy", "policies", Policy, "Instead of the file's; several are compared.")
@_several("--scope", "scopes", Scope, "The same for the scope.")
@_several("--on-misalignment", "wishes", OnMisalignment, "The same for onMisalignment.")
@click.option("--exclusive", "exclusives", metavar="WISH", multiple=True,
              help="The same for exclusiveContainers: none, auto, names, auto,-NAME. May be repeated.")  # fmt: skip
@click.option("--kubelet", "minor", metavar="MINOR", type=click.Choice([str(each) for each in Minor]), default=None,
              help="Answer as this kubelet does, with its defects: 1.34 to 1.38.")  # fmt: skip
@click.option("--scheduler", "strategy", type=click.Choice([each.value for each in Strategy]),
              default=Strategy.LEAST_ALLOCATED.value, show_default=True,
              help="How the scheduler scores nodes that have room.")  # fmt: skip
@click.option("--retries", metavar="N", type=click.IntRange(0, 100), default=None,
              help="A workload makes a refused pod again, so often, each time on another node.  [default: 0; in a "
              "cluster 5]")  # fmt: skip
@click.option("--keep-nodes", is_flag=True, help="Pods with spec.nodeName go to the node of that name.")
@click.option("--max-pods", "most_pods", metavar="N", type=click.IntRange(1, 10_000), default=110, show_default=True,
              help="The kubelet's maxPods.")  # fmt: skip
@click.option(
    "--scenario", type=click.Path(path_type=Path), help="What happens after that: pods come, pods end, time passes."
)
@click.option("--show-nodes", is_flag=True, help="A row per node.")
@click.option("--show-pods", is_flag=True, help="A row per pod.")
@click.option("--draw", metavar="NODE", help="Draw this node as it ends (SVG) instead of the tables.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--file", "-f", "target", type=click.Path(dir_okay=False, path_type=Path), default=None,
              help="Write to this file instead of the terminal.")  # fmt: skip
def command(
    *, pods: tuple[Path, ...], cluster: bool, files: tuple[str, ...], kubeconfig: Path | None, context: str,
    replicas: int | None, selector: str, drained: tuple[str, ...], more: tuple[str, ...], gatekeeper: bool,
    root: tuple[str, ...], machines: int, nodes: tuple[MachineKind, ...],
    configs: tuple[Path, ...], policies: tuple[Policy, ...], scopes: tuple[Scope, ...],
    wishes: tuple[OnMisalignment, ...], exclusives: tuple[str, ...], minor: str | None, strategy: str,
    retries: int | None, keep_nodes: bool,
    most_pods: int, scenario: Path | None, show_nodes: bool, show_pods: bool, draw: str | None, output: str,
    target: Path | None,
) -> None:  # fmt: skip
    """Show where pods would go, what is refused, and how full and fragmented the nodes end.

    Pods are taken in order: manifests as files and documents have them, pods of a running cluster by their age. For
    each, kube-scheduler's sums choose a node, and the node's managers admit or refuse, exactly as the agent does.
    Several policies, scopes or configurations are compared side by side. Nothing is written.

    With --cluster, every node decides as it is now, by what its agent publishes: whether new pods fit and where, what
    comes back under another policy or kubelet, where the pods of a drained node go, and what the smallest change is
    that lets all in. It only lists objects, with your own rights. Without --cluster, no cluster is asked. With
    --gatekeeper, the same pods are forecast once more, as the gatekeeper would decide for them.

    It reads pods, workloads (one pod per node of a DaemonSet, one run of a CronJob), operators' kinds by their pod
    templates, lists of these, and Namespaces (their annotations are the defaults of their pods). A pod counts once,
    also where its owners are there. ResourceClaim and ResourceSlice say where the devices of DRA claims are
    (dra.enabled, --keep-nodes). What asks for no pods is left out, and named.

    Exit codes: 0 every pod runs, under all that is compared; 1 some do not; 2 wrong input (documents that can be read
    are simulated all the same); 3 the cluster cannot be read.
    """
    only = {"--from": files, "--kubeconfig": kubeconfig, "--context": context, "--replicas": replicas,
            "--nodes": selector, "--drain": drained, "--add": more, "--gatekeeper": gatekeeper}  # fmt: skip
    if cluster or files:
        others = {
            "--root": root, "--node": nodes, "--config": configs, "--on-misalignment": wishes, "--draw": draw,
            "--exclusive": exclusives, "--scenario": scenario, "--keep-nodes": keep_nodes, "--show-nodes": show_nodes,
            "two words of --policy": policies[1:], "two words of --scope": scopes[1:],
        }  # fmt: skip
        _none_of(others, "asks machines, and --cluster a cluster; leave one of them out")
        _ask_cluster(
            WhatIfOptions(
                pods=pods, replicas=replicas, policy=next(iter(policies), None), scope=next(iter(scopes), None),
                kubelet=_minor(minor), nodes=selector, drained=drained, added=_added(more),
                strategy=Strategy(strategy), retries=CLUSTER_RETRIES if retries is None else retries,
                gatekeeper=gatekeeper,
            ), files, kubeconfig, context, output=output, pods=show_pods, target=target,
        )  # fmt: skip
    _none_of(only, "asks a cluster; add --cluster")
    if not pods:
        raise click.UsageError("Missing option '--pods'.")
    kinds = (*(MachineKind(spec, machines) for spec in root), *nodes) or (MachineKind(None, machines),)
    options = SimulateOptions(
        pods=pods, kinds=kinds, configs=configs, policies=policies, scopes=scopes, wishes=wishes,
        exclusives=exclusives, scenario=scenario,
        kubelet=_minor(minor), strategy=Strategy(strategy), retries=retries or 0,
        keep_nodes=keep_nodes, most_pods=most_pods,
    )  # fmt: skip
    try:
        prepared = prepare(options)
    except BadInputError as error:
        for sentence in error.sentences:
            click.echo(f"numalign: {sentence}", err=True)
        sys.exit(BAD_INPUT)
    found = _simulated(prepared, options)
    if draw is not None:
        _write(target, _drawn(draw, found))
    elif output == "json":
        _write(target, json.dumps(as_json(prepared, found), indent=2) + "\n")
    else:
        from agent.cli import simulate_show  # noqa: PLC0415 - rich is loaded only where a table is shown

        with _opened(target) as stream:
            simulate_show.print_all(prepared, found, nodes=show_nodes, pods=show_pods, stream=stream)
    all_in = all(each.all_in for _, each in found.values())
    sys.exit(_told(prepared.wrong) or (0 if all_in else NOT_ALL_IN))


def _minor(word: str | None) -> Minor | None:
    return next((each for each in Minor if str(each) == word), None)


def _none_of(options: Mapping[str, object], why: str) -> None:
    for name, value in options.items():
        if value not in (None, "", (), False):
            raise click.UsageError(f"{name} {why}")


def _added(values: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    from agent.cli.simulate_cluster import additions  # noqa: PLC0415 - rich is loaded only where a table is shown

    return additions(values)


def _ask_cluster(
    options: WhatIfOptions, files: tuple[str, ...], kubeconfig: Path | None, context: str, *, output: str,
    pods: bool, target: Path | None,
) -> NoReturn:  # fmt: skip
    """Answer a question about a cluster, and end."""
    from agent.app.fleet.source import PENDING, ApiSource, FileSource, Source  # noqa: PLC0415 - the client loads slowly
    from agent.app.simulate.cluster import forecast  # noqa: PLC0415 - as above
    from agent.cli import simulate_cluster  # noqa: PLC0415 - as above
    from agent.kube.caller import Caller  # noqa: PLC0415 - as above

    if not (options.pods or options.changes or options.drained):
        raise click.UsageError("nothing is asked: add --pods, --drain, --policy, --scope or --kubelet")
    if options.gatekeeper and not (options.pods or options.drained):
        raise click.UsageError("--gatekeeper asks about pods that come: add --pods or --drain")
    if options.nodes and not options.changes:
        raise click.UsageError("--nodes says where --policy, --scope or --kubelet change something; add one of them")
    source: Source = FileSource(files)
    if not files:
        source = ApiSource(Caller(kubeconfig, context), "" if options.comes_back else PENDING)
    try:
        with simulate_cluster.progress() as progress:
            found = forecast(source, options, progress, keep_pods=bool(files) or options.comes_back)
    except BadInputError as error:
        for sentence in error.sentences:
            click.echo(f"numalign: {sentence}", err=True)
        sys.exit(BAD_INPUT)
    with _opened(target) as stream:
        if output == "json":
            stream.write(json.dumps(simulate_cluster.as_json(found), indent=2) + "\n")
        else:
            simulate_cluster.print_all(found, pods=pods, stream=stream)
    sys.exit(_told(found.wrong) or (0 if simulate_cluster.all_in(found) else NOT_ALL_IN))


def _told(wrong: tuple[str, ...]) -> int:
    """Say what cannot be read; the exit code of that, 0 where there is nothing."""
    for sentence in wrong:
        click.echo(f"numalign: left out, not simulated: {sentence}", err=True)
    return BAD_INPUT if wrong else 0


def _simulated(prepared: Prepared, options: SimulateOptions) -> dict[str, tuple[Outcome, Figures]]:
    with _progress(prepared.pods * len(prepared.variants)) as advance:
        outcomes = {each.label: run(prepared, each, options, advance) for each in prepared.variants}
        return {label: (outcome, figures(outcome)) for label, outcome in outcomes.items()}


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal's standard error while pods are placed; nothing anywhere else."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - rich is loaded only where a terminal is
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - as above

    columns = (TextColumn("placing pods"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


def _drawn(name: str, found: dict[str, tuple[Outcome, Figures]]) -> str:
    from agent.observe.drawing import draw  # noqa: PLC0415 - drawn only where it is asked for

    if len(found) > 1:
        raise click.BadParameter("shows one variant; compare none, or name one policy", param_hint="--draw")
    ((outcome, _),) = found.values()
    names = [site.name for site in outcome.sites]
    if name not in names:
        known = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")  # noqa: PLR2004 - enough to see how they are named
        raise click.BadParameter(f"no node is named {name}; nodes: {known}", param_hint="--draw")
    dry_run = outcome.result.nodes[names.index(name)]
    node = dry_run.node
    return draw(node.machine, dry_run.ledger, reserved=node.reserved, rules=node.rules)


@contextmanager
def _opened(target: Path | None) -> Iterator[TextIO]:
    if target is None:
        if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that knows no "×" gets a "?"
            sys.stdout.reconfigure(errors="replace")
        yield sys.stdout
        return
    try:
        with target.open("w", encoding="utf-8") as stream:
            yield stream
    except OSError as error:
        raise not_written(target, error) from error


def _write(target: Path | None, text: str) -> None:
    with _opened(target) as stream:
        stream.write(text)
