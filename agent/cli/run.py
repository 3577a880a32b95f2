"""`numalign run`: serve this node of a cluster. With --pods a folder of manifests, without any cluster."""

from __future__ import annotations

import json
import platform
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from agent.app.places import DEFAULT_STATE, MOUNT, SCRATCH
from agent.app.service.edges import Sockets
from agent.cli.ending import until_told
from agent.cli.loading import quickly
from agent.cli.output import ReaderGoneError
from agent.errors import HostError, SettingsError
from agent.observe import logs
from agent.observe.logs import LOG

if TYPE_CHECKING:
    from agent.app.standalone.build import StandaloneOptions, StandaloneService

REFUSED = 1
"""Exit code of --once when a pod was refused and does not run."""


@click.command("run")
@click.option("--pods", type=click.Path(path_type=Path), help="Folder of pod manifests to serve (YAML or JSON).")
@click.option("--once", is_flag=True, help="Go through the folder one time, show the result, and end.")
@click.option("--afresh", is_flag=True, help="Forget what an earlier run with this --state-dir gave; needs --pods.")
@click.option("--config", type=click.Path(path_type=Path), help="Configuration file; a KubeletConfiguration will do.")
@click.option("--root", metavar="MACHINE",
              help="Serve another machine: a folder, an archive, a name (two-sockets), or synthetic: and a "
                   "description in words.")  # fmt: skip
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the ledger is saved (and a scratch tree lies).  "
    f"[default: {DEFAULT_STATE}; with --once a folder that is removed afterwards]",
)
@click.option(
    "--cgroup-root",
    metavar="scratch|auto|PATH",
    default=None,
    help="The cgroup tree: a scratch one, a real one of our own where that may be made, or that of a kubelet.  "
    "[default: scratch with --pods, else /sys/fs/cgroup]",
)
@click.option("--node-name", default="", help="The kubelet's node name, for static pods.  [default: the host's name]")
@click.option("--log-dir", type=click.Path(path_type=Path), default=Path("/var/log"), show_default=True, hidden=True)
@click.option(
    "--nri-socket",
    metavar="auto|off|PATH",
    default="auto",
    show_default=True,
    help="The runtime's NRI socket, on a node with a kubelet: containers are pinned before they start.",
)
@click.option(
    "--podresources-socket",
    metavar="auto|off|PATH",
    default="auto",
    show_default=True,
    help="The kubelet's podresources socket: CPUs follow the devices that it gave.",
)
@click.option("--processes/--no-processes", default=True, help="Start a small process per container (on by default).")
@click.option(
    "--metrics-address",
    metavar="HOST:PORT|off",
    default="127.0.0.1:9177",
    show_default=True,
    help="/metrics, /healthz and /readyz; not with --once.",
)
@click.option("--host-root", type=click.Path(path_type=Path), default=Path("/"), hidden=True)
@click.option("--state-on-host", default="", hidden=True, help="--state-dir as the host names it.")
@click.option("--api-server", default="", hidden=True, help="Instead of the one that a pod is told of.")
@click.option("--api-account", type=click.Path(path_type=Path), hidden=True, help="Folder with token and ca.crt.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default=None,
    help="[default: info; with --once: error]",
)
def command(
    *, pods: Path | None, once: bool, afresh: bool, config: Path | None, root: str | None, state_dir: Path | None,
    cgroup_root: str | None, node_name: str, log_dir: Path, nri_socket: str, podresources_socket: str,
    processes: bool, metrics_address: str, host_root: Path, state_on_host: str, api_server: str,
    api_account: Path | None, output: str, log_format: str, log_level: str | None,
) -> None:  # fmt: skip
    """Serve this node: place pods, write their cpusets, keep them so.

    In a pod of a DaemonSet this serves the cluster's Node that NODE_NAME (or --node-name) names: its pods come from
    the API server, what they got is told in their annotations, and no other option is needed.

    With --pods there is no cluster: the folder is followed, and a manifest that is added, changed or removed is
    admitted or released within a second. SIGTERM ends it and moves nothing; the next start goes on from the ledger.

    What each pod holds is on a page of its own, http://127.0.0.1:9178/ by default (settings: page).

    \b
    Examples:
      numalign run --pods deploy/examples/pods --once
      numalign run --pods /etc/kubernetes/manifests --cgroup-root /sys/fs/cgroup
      numalign run --pods pods --once --root two-sockets --output json

    Exit codes: 0 done; 1 a pod was refused and does not run, or requests more than the machine has (--once); 2 wrong
    input; 3 a fault of this machine.
    """  # noqa: D301 - click's mark for text that is not folded is this very character
    logs.setup(log_format, log_level or ("error" if once else "info"))
    if pods is None:
        if once:
            raise SettingsError("--once", "goes through a folder of manifests; name it with --pods")
        if afresh:
            raise SettingsError("--afresh", "is for a folder of manifests: pods of a cluster keep what they have")
        with quickly():
            from agent.cli import run_cluster  # noqa: PLC0415 - the API's clients are loaded only where there is an API

        sockets = Sockets(nri=nri_socket, podresources=podresources_socket)
        address = "" if metrics_address == "off" else metrics_address
        run_cluster.serve(
            run_cluster.options(
                state=state_dir or DEFAULT_STATE, config=config, root=root, cgroup_root=cgroup_root or MOUNT,
                node_name=node_name, sockets=sockets, metrics_address=address, host=host_root,
                server=api_server, account=api_account, state_on_host=state_on_host,
            )
        )  # fmt: skip
        return
    if not pods.is_dir() and not pods.is_file():
        what = "is neither a folder nor a file" if pods.exists() else "is not there"
        raise SettingsError("--pods", f"{pods} {what}; name a folder of pod manifests")
    from agent.app.standalone.build import StandaloneOptions, standalone_node  # noqa: PLC0415 - no cluster needs it

    with ExitStack() as ending:
        state = Path(ending.enter_context(TemporaryDirectory(prefix="numalign-"))) if once and not state_dir else None
        options = StandaloneOptions(
            pods=pods, state=state_dir or state or DEFAULT_STATE, afresh=afresh, config=config, root=root,
            cgroup_root=cgroup_root or SCRATCH, log_dir=log_dir, node_name=node_name or platform.node(),
            named=bool(node_name), nri_socket=nri_socket, podresources_socket=podresources_socket,
            processes=processes, lasting=not once,
            metrics_address="" if once or metrics_address == "off" else metrics_address,
        )  # fmt: skip
        told = None if once else ending.enter_context(until_told())
        node = ending.enter_context(standalone_node(options))
        if told is not None:
            if told.serves(node):
                serve(node, output)
            return
        with busy(f"placing {len(node.source.folder.pods)} pods"):
            node.once()
        code = show(node, output)
        if output == "table":
            click.echo(_afterwards(node, options, kept=state is None))
        sys.exit(code)


def _afterwards(node: StandaloneService, options: StandaloneOptions, *, kept: bool) -> str:
    """What can be asked after --once: the next command, where the result is kept."""
    from agent.app.page.views import view_of  # noqa: PLC0415 - as below
    from agent.cli import report  # noqa: PLC0415 - as below

    if not kept:
        return "The result is not kept. Add --state-dir DIR to ask `state` and `explain` about it."
    program = sys.argv[0] if "/" in sys.argv[0] and not Path(sys.argv[0]).is_absolute() else "numalign"
    view = view_of(node.engine.ledger, node.engine.node, node.engine.pods)
    command = report.next_command(view, program, state=options.state, root=options.root, config=options.config)
    return f"next: {command}" if command else "next: put a pod manifest into the folder of --pods"


def busy(text: str) -> AbstractContextManager[object]:
    """A sign of life on a terminal while something may take long; nothing anywhere else."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console  # noqa: PLC0415 - rich is loaded only where a terminal is

    return Console(stderr=True).status(text)


def serve(node: StandaloneService, output: str) -> None:
    """Follow the folder until the service is stopped; the table is shown when the first pass is done."""

    def started() -> None:
        try:
            show(node, output)
            sys.stdout.flush()
        except (HostError, ReaderGoneError) as error:  # no reason to serve no pods
            LOG.warning("the table is not shown: %s", error)

    node.serve(started=started)


def show(node: StandaloneService, output: str) -> int:
    """Print the result; the exit code that it stands for."""
    from agent.app.page.views import as_json, notes_of, view_of  # noqa: PLC0415 - as above

    words = node.source.runtime.words if node.source.runtime else {}
    view = view_of(node.engine.ledger, node.engine.node, node.engine.pods, words)
    folder, too_large = node.source.folder, node.source.large
    wrong = [str(each) for each in folder.wrong]
    if output == "json":
        machine = node.setup.now.machine
        facts = {"name": machine.name, "digest": machine.digest, "cpus": len(machine.cpus)}
        notes = notes_of(node.engine.pods, node.engine.ledger, node.engine.node, folder.claimants)
        notes += [("", each) for each in node.source.odd()]
        said = {
            "notes": [{"pod": pod, "text": text} for pod, text in notes],
            "unschedulable": [{"pod": pod, "text": text} for pod, text in sorted(too_large.items()) if text],
            "wrong": wrong,
            "remarks": list(node.setup.now.remarks),
        }
        click.echo(json.dumps({"machine": facts, **as_json(view), **said}, indent=2))
    else:
        from agent.cli import report  # noqa: PLC0415 - rich is loaded only where a table is shown

        report.print_report(node, view, wrong)
    if wrong:
        return 2
    return REFUSED if view.refused or too_large else 0
