"""`numalign gatekeeper`: decide for gated pods of a cluster before kube-scheduler binds them."""

from __future__ import annotations

import os
import platform
import secrets
from pathlib import Path

import click

from agent.cli.ending import until_told
from agent.cli.loading import quickly
from agent.errors import SettingsError
from agent.model.fields import words_in
from agent.observe import logs
from agent.observe.logs import LOG


@click.command("gatekeeper")
@click.option("--namespace", envvar="POD_NAMESPACE", default="",
              help="Of the gatekeeper and of the agents.  [default: our own]")  # fmt: skip
@click.option("--name", default="numalign-gatekeeper", show_default=True,
              help="Of the Deployment and of the lease.")  # fmt: skip
@click.option("--switch", default="numalign-gate", show_default=True, metavar="NAME",
              help="ConfigMap that the admission policy refers to: without it no pod is gated.")  # fmt: skip
@click.option("--agents", default="", metavar="SELECTOR",
              help="Labels of the agents' pods.  [default: the chart's]")  # fmt: skip
@click.option("--max-not-in", type=click.IntRange(1, 256), default=32, show_default=True,
              help="Nodes that a released pod is told to avoid, at most.")  # fmt: skip
@click.option("--max-wait", type=click.FloatRange(10, 86_400), default=600, show_default=True, metavar="SECONDS",
              help="How long a pod is held at most; then kube-scheduler and the node decide.")  # fmt: skip
@click.option("--autoscaler", type=click.Choice(["none", "cluster-autoscaler", "karpenter"]), default="none",
              show_default=True, help="What makes new nodes for pods that fit nowhere.")  # fmt: skip
@click.option("--scoring", type=click.Choice(["least-allocated", "most-allocated"]), default="least-allocated",
              show_default=True, help="How kube-scheduler scores nodes (NodeResourcesFit).")  # fmt: skip
@click.option("--schedulers", default="default-scheduler", show_default=True, metavar="NAME[,NAME]",
              help="Whose pods may wait behind the gate; it is lifted from the others at once.")  # fmt: skip
@click.option("--metrics-address", metavar="HOST:PORT|off", default="127.0.0.1:9177", show_default=True,
              help="/metrics, /healthz and /readyz.")  # fmt: skip
@click.option("--api-server", default="", hidden=True, help="Instead of the one that a pod is told of.")
@click.option("--api-account", type=click.Path(path_type=Path), hidden=True, help="Folder with token and ca.crt.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
              show_default=True)  # fmt: skip
def command(
    *, namespace: str, name: str, switch: str, agents: str, max_not_in: int, max_wait: float, autoscaler: str,
    scoring: str, schedulers: str, metrics_address: str, api_server: str, api_account: Path | None, log_format: str,
    log_level: str,
) -> None:  # fmt: skip
    """Decide for pods behind the gate numalign.io/fit, before kube-scheduler binds them to a node that refuses them.

    The chart runs two of these in a Deployment (gatekeeper.enabled); one of them leads. It asks the nodes' own
    decision by what each node publishes (fleet.publish), nominates a pod to a node that takes it, and lifts the gate
    with a list of the nodes that would refuse. It binds no pod. A pod waits --max-wait at most.

    While a leader can decide, its ConfigMap is there, and the API server gates pods that ask for it. SIGTERM removes
    it and gives the lease back. When both replicas are gone for good: numalign ungate --all

    \b
    Examples:
      numalign gatekeeper --max-wait 120 --scoring most-allocated
      kubectl -n numalign-system logs deployment/numalign-gatekeeper

    Exit codes: 0 ended by a signal; 2 wrong input; 3 the lease was lost, or a fault of this machine.
    """  # noqa: D301 - click's mark for text that is not folded is this very character
    logs.setup(log_format, log_level)
    if not namespace:
        raise SettingsError("--namespace", "is not known: name the gatekeeper's namespace, or set POD_NAMESPACE")
    with until_told() as ending, quickly():
        from agent.app.gatekeeper.gatekeeper import Gatekeeper  # noqa: PLC0415 - loaded only where it is used
        from agent.app.gatekeeper.options import AGENTS, GatekeeperOptions  # noqa: PLC0415 - as above
        from agent.forecast.gate.values import Autoscaler, GateOptions  # noqa: PLC0415 - as above
        from agent.forecast.scheduling import Strategy  # noqa: PLC0415 - as above
        from agent.kube.access import ACCOUNT, ApiAccess, in_cluster  # noqa: PLC0415 - as above
    folder = api_account or ACCOUNT
    if api_server:
        access = ApiAccess(api_server, folder / "ca.crt", folder / "token", check_name=False)
    else:
        access = in_cluster(os.environ, folder)
    pod = os.environ.get("POD_NAME") or platform.node()
    served = Gatekeeper(GatekeeperOptions(
        access=access, namespace=namespace, name=name, switch=switch, identity=f"{pod}_{secrets.token_hex(4)}",
        agents=agents or AGENTS, metrics_address="" if metrics_address == "off" else metrics_address,
        decisions=GateOptions(
            most_names=max_not_in, wait=max_wait, autoscaler=Autoscaler(autoscaler), strategy=Strategy(scoring),
            own=namespace, schedulers=tuple(words_in(schedulers)),
        ),
    ))  # fmt: skip
    if ending.serves(served):
        served.serve(started=lambda: LOG.info("serving", extra={"facts": {"pod": pod, "namespace": namespace}}))
