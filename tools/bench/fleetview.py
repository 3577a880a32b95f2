"""`python -m tools.bench.fleetview`: `numalign fleet` timed, 5,000 paper nodes from a real API server.

Nodes, their NodeResourceTopologies and pods that wait are created on a real etcd and kube-apiserver; then the fleet
is read over the network, page by page, decoded, asked and drawn, in a process of its own. Wall time depends on who
else uses the machine, so the CPU time of that process and the machine's load are told, too; the better of the two
times counts. `--paper` reads a file instead and needs no server.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import yaml

from tests import peers
from tests.cluster.control_plane import ADMIN, ApiError, ControlPlane
from tools.bench.paperfleet import objects

NODES, WAITING = 5000, 12
LOADED, ASKED, MIB = 10.0, 5.0, 300
"""Goals: seconds to load, seconds for a question, memory."""
DEPLOY = Path(__file__).parents[2] / "deploy"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--nodes", default=NODES, show_default=True)
@click.option("--paper", is_flag=True, help="From a file, without an API server.")
def main(nodes: int, *, paper: bool) -> None:
    """Time `numalign fleet`. Exit code 1 if a goal is missed, 2 if there is no API server."""
    with tempfile.TemporaryDirectory(prefix="numalign-fleet-") as folder:
        if paper:
            file = Path(folder) / "fleet.json"
            file.write_text(json.dumps({"kind": "List", "items": list(objects(nodes, WAITING))}))
            _timed(["--from", str(file)])
            return
        try:
            program = peers.kube()
        except peers.PeerMissingError as error:
            click.echo(error, err=True)
            sys.exit(2)
        with ControlPlane(program, Path(folder) / "cluster") as cluster:
            _fill(cluster, nodes)
            _timed(["--kubeconfig", str(_kubeconfig(cluster, Path(folder)))])


def _fill(cluster: ControlPlane, nodes: int) -> None:
    """Create everything; the admin's token may."""
    crd = yaml.safe_load((DEPLOY / "crds/noderesourcetopologies.yaml").read_text())
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "shop"}}
    cluster.ensure(crd, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}, account)
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        for done, _ in enumerate(pool.map(lambda each: _create(cluster, each), objects(nodes, WAITING))):
            if done % 2000 == 0:
                click.echo(f"{time.monotonic() - began:5.0f} s  {done:,} objects", err=True)


def _create(cluster: ControlPlane, body: dict[str, Any]) -> None:
    path = {
        "NodeResourceTopology": "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
        "Node": "/api/v1/nodes", "Pod": "/api/v1/namespaces/shop/pods",
    }[body["kind"]]  # fmt: skip
    metadata = {key: value for key, value in body["metadata"].items() if key != "uid"}
    for _ in range(100):
        try:
            cluster.call("POST", path, {**body, "metadata": metadata})
        except ApiError as error:
            if error.status not in {404, 429}:  # the CRD is not served yet; too many requests
                raise
            time.sleep(0.2)
        else:
            break
    if body["kind"] == "Node":
        patch = json.dumps({"status": body["status"]}).encode()
        kind = "application/merge-patch+json"
        cluster.call("PATCH", f"{path}/{metadata['name']}/status", patch, kind=kind)


def _kubeconfig(cluster: ControlPlane, folder: Path) -> Path:
    context = {"cluster": "c", "user": "u"}
    server = {"server": cluster.server, "insecure-skip-tls-verify": True}
    body = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": server}], "users": [{"name": "u", "user": {"token": ADMIN}}],
        "contexts": [{"name": "x", "context": context}],
    }  # fmt: skip
    (folder / "kubeconfig").write_text(yaml.safe_dump(body))
    return folder / "kubeconfig"


def _timed(arguments: list[str]) -> None:
    """Load, ask and draw in a process of its own; print what that took."""
    command = [sys.executable, "-W", "ignore", "-m", "tools.bench.fleetview_one", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    rows = list(_rows(found))
    load = " ".join(f"{each:.0f}" for each in os.getloadavg())
    click.echo(f"{found['nodes']:,} nodes, {found['pods']} pods in trouble; the machine's load is {load}")
    for row in rows:
        click.echo(row)
    sys.exit(1 if any("missed" in row for row in rows) else 0)


def _rows(found: dict[str, Any]) -> Iterator[str]:
    for name, goal in (("load", LOADED), ("ask", ASKED), ("draw", None)):
        wall, cpu = found[name]
        missed = goal is not None and min(wall, cpu) > goal
        aim = f"; goal {goal:.0f} s{' ! missed' if missed else ''}" if goal else ""
        yield f"  {name:5} {wall:6.1f} s, {cpu:5.1f} s of CPU{aim}"
    yield f"  memory {found['mib']:.0f} MiB; goal {MIB} MiB{' ! missed' if found['mib'] > MIB else ''}"


def peak() -> float:
    """MiB of this process at its largest."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
