"""`numalign release --cluster`: options from the environment, each node's answer, and the nodes that remain."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from agent.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOptions:
    """Which agents to ask, for how long, and how to reach the API."""

    namespace: str
    daemonset: str
    within: float
    tolerant: bool
    server: str
    account: Path | None


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options; it gets them as one keyword argument, `asking: ReleaseOptions`."""

    @wraps(command)
    def with_asking(
        *, namespace: str, daemonset: str, within: float, even_if_nodes_remain: bool, api_server: str,
        api_account: Path | None,
        **others: Any,  # noqa: ANN401 - whatever options the command has besides
    ) -> None:  # fmt: skip
        given = ReleaseOptions(
            namespace=namespace,
            daemonset=daemonset,
            within=within,
            tolerant=even_if_nodes_remain,
            server=api_server,
            account=api_account,
        )
        command(asking=given, **others)

    for option in reversed(_OPTIONS):
        with_asking = option(with_asking)
    return with_asking


_OPTIONS = (
    click.option(
        "--namespace", envvar="POD_NAMESPACE", default="", help="With --cluster: of the agents.  [default: our own]"
    ),
    click.option("--daemonset", default="numalign", show_default=True, help="With --cluster: the agents'."),
    click.option(
        "--within", type=click.FloatRange(1, 3600), default=120, show_default=True, metavar="SECONDS",
        help="With --cluster: how long to wait for all nodes.",
    ),
    click.option("--even-if-nodes-remain", is_flag=True, help="With --cluster: exit code 0 all the same."),
    click.option("--api-server", default="", hidden=True, help="Instead of the one that a pod is told of."),
    click.option("--api-account", type=click.Path(path_type=Path), hidden=True, help="Folder with token and ca.crt."),
)  # fmt: skip


def release_cluster(asked: ReleaseOptions, output: str) -> bool:
    """Ask, wait, show; whether every node is released, or that is not asked for.

    Raises:
        SettingsError: this is no pod of a cluster, or no namespace is named.
    """
    from agent.app.offline.decommission import ReleaseCoordinator, sentence  # noqa: PLC0415 - the API's client is loaded only where it is used
    from agent.kube.access import ACCOUNT, ApiAccess, in_cluster  # noqa: PLC0415 - as above
    from agent.kube.client import KubeClient  # noqa: PLC0415 - as above

    if not asked.namespace:
        raise SettingsError("--namespace", "is not known: name the agents' namespace, or set POD_NAMESPACE")
    folder = asked.account or ACCOUNT
    if asked.server:
        access = ApiAccess(asked.server, folder / "ca.crt", folder / "token", check_name=False)
    else:
        access = in_cluster(os.environ, folder)
    client = KubeClient(access, "release")
    quiet = output == "json"
    try:
        words = ReleaseCoordinator(
            client=client, namespace=asked.namespace, daemonset=asked.daemonset, request=secrets.token_hex(4),
            within=asked.within, tell=lambda text: None if quiet else click.echo(text),
        ).all()  # fmt: skip
    finally:
        client.close()
    remain = [word for word in words if not word.released]
    if quiet:
        found = [
            {"node": each.node, "released": each.released, "untouched": each.untouched, "why": each.why,
             "answer": asdict(each.answer) if each.answer else None}
            for each in words
        ]  # fmt: skip
        click.echo(json.dumps({"released": not remain, "nodes": found}, indent=2))
        return not remain or asked.tolerant
    for word in words:
        if word.untouched:
            click.echo(f"{word.node or 'a node without an agent'}: {word.why}")
    click.echo(f"{len(words) - len(remain)} of {len(words)} nodes are released")
    for word in remain:
        why = sentence(word.answer) if word.answer else word.why
        click.echo(f"remains: {word.node or 'a node without an agent'}: {why}")
    if remain:
        click.echo(
            "What remains on a node ends with its pods, or with its next boot; or run `numalign release` there.\n"
            "To remove the agents all the same: helm uninstall --no-hooks"
        )
    return not remain or asked.tolerant
