"""`numalign run` in a pod of a cluster: options from the pod's environment, signals, the end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from agent.app.cluster.build import ClusterOptions, cluster_node
from agent.app.service.edges import Sockets
from agent.cli.ending import until_told
from agent.errors import SettingsError
from agent.kube.access import ACCOUNT, ApiAccess, in_cluster
from agent.observe.logs import LOG


def options(
    *, state: Path, config: Path | None, root: str | None, cgroup_root: str, node_name: str, sockets: Sockets,
    metrics_address: str, host: Path, server: str = "", account: Path | None = None, state_on_host: str = "",
    environment: Mapping[str, str] = os.environ,
) -> ClusterOptions:  # fmt: skip
    """What to serve.

    Args:
        state: the state folder.
        config: the configuration file.
        root: the machine, if not this one.
        cgroup_root: where the kubelet's cgroups are.
        node_name: instead of NODE_NAME.
        sockets: of runtime and kubelet.
        metrics_address: "" for none.
        host: where the host's file system is seen.
        server: the API server instead of the one that the environment names; its certificate may name another host.
        account: the folder with token and ca.crt instead of the mounted one.
        state_on_host: the state folder as the host names it, "" where it has the same name.
        environment: NODE_NAME, HOST_IP, POD_UID, POD_NAMESPACE (downward API), KUBERNETES_SERVICE_HOST and _PORT.

    Raises:
        SettingsError: something that is needed is not there; names it.
    """
    name = node_name or environment.get("NODE_NAME", "")
    if not name:
        raise SettingsError("NODE_NAME", "is not set: give the agent its spec.nodeName, or --pods for a folder")
    folder = account or ACCOUNT
    if server:
        access = ApiAccess(server, folder / "ca.crt", folder / "token", check_name=False)
    else:
        access = in_cluster(environment, folder)
    return ClusterOptions(
        node_name=name, access=access, state=state, config=config, root=root, cgroup_root=cgroup_root, host=host,
        metrics_address=metrics_address, sockets=sockets, own_uid=environment.get("POD_UID", ""),
        host_ip=environment.get("HOST_IP", ""),
        own_namespace=environment.get("POD_NAMESPACE", ""), state_on_host=state_on_host,
    )  # fmt: skip


def serve(chosen: ClusterOptions) -> None:
    """Serve until SIGTERM or SIGINT, also one that comes while the service is made (`agent.cli.ending`)."""
    with until_told() as ending, cluster_node(chosen) as node:
        if ending.serves(node):
            node.serve(started=lambda: LOG.info("serving", extra={"facts": {"node": chosen.node_name}}))
