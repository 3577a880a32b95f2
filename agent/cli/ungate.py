"""`numalign ungate`: take the gate from every pod of a cluster, when no gatekeeper lives or it is to go."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from agent.cli.output import many

LEFT = 1
"""Exit code when something is left."""
MOST = 20
"""Pods that are named; JSON has all."""


@click.command("ungate")
@click.option("--all", "every", is_flag=True, help="Every pod of the cluster: needed, so that no slip does it.")
@click.option("--policy", is_flag=True, help="Remove the binding of the admission policy, too.")
@click.option("--namespace", "-n", default="", help="Of the gatekeeper.  [default: any]")
@click.option("--kubeconfig", type=click.Path(path_type=Path), default=None,
              help="As kubectl's.  [default: $KUBECONFIG, ~/.kube/config]")  # fmt: skip
@click.option("--context", default="", metavar="NAME", help="Of the kubeconfig, instead of its current one.")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(*, every: bool, policy: bool, namespace: str, kubeconfig: Path | None, context: str, output: str) -> None:
    """Take the gate numalign.io/fit from every pod, clear what was nominated, and say what is left.

    For when both replicas of the gatekeeper are gone: their pods wait, and new ones are gated. It uses the rights of
    your kubeconfig: to list and delete ConfigMaps, to list pods, and to patch pods and pods/status. First it removes
    the ConfigMap without which no pod is gated. It can be run again at any time. kube-scheduler and the nodes then
    decide as they do without a gatekeeper.

    A gatekeeper that lives makes the ConfigMap again. To be rid of it, scale its Deployment to 0 first.

    \b
    Examples:
      numalign ungate --all
      kubectl numalign ungate --all          the same by kubectl alone
      numalign ungate --all -o json | jq .left

    Exit codes: 0 no gate and no nomination is left; 1 something is; 2 wrong input; 3 the cluster cannot be read.
    """  # noqa: D301 - click's mark for text that is not folded is this very character
    if not every:
        raise click.UsageError("name --all: the gate is taken from every pod of the cluster")
    from agent.app.gatekeeper.ungate import ungate  # noqa: PLC0415 - loaded only where it is used
    from agent.kube.caller import Caller  # noqa: PLC0415 - the client takes half a second

    caller = Caller(kubeconfig, context)
    try:
        done = ungate(caller, namespace, policy=policy)
    finally:
        caller.close()
    if output == "json":
        click.echo(json.dumps({"clean": not done.left, **asdict(done)}, indent=2))
    else:
        for name in done.switches:
            click.echo(f"removed: {name}")
        click.echo(f"{many(done.lifted, 'gate')} lifted, {many(done.cleared, 'nomination')} cleared")
        for name, why in [*done.left.items()][:MOST]:
            click.echo(f"remains: {name}: {why}")
        if len(done.left) > MOST:
            click.echo(f"and {len(done.left) - MOST} more; --output json names all")
    sys.exit(LEFT if done.left else 0)
