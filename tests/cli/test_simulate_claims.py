"""`numalign simulate` on the pods, claims and slices of a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent.app.simulate.claims import claims_of
from agent.cli.simulate import command
from agent.core.machines.synthetic import parse_synthetic
from tests.flow.claims import DRIVER, Document, claim, device, result, slices, using

MACHINE = "2 sockets x 4 cores x 2 threads, 8G per node"
STRICT = {"policy": "single-numa-node", "on_misalignment": "fail"}


def bound(name: str, claimed: str) -> Document:
    """A pod of node n that uses a claim."""
    body = using(claimed, name=name, **STRICT)
    body["spec"]["nodeName"] = "n"
    return {**body, "kind": "Pod"}


def documents() -> list[Document]:
    """As `kubectl get pods,resourceclaims,resourceslices -A -o json` lists them; claims have the pods' namespace."""
    claims = {"c": claim(result("d1")), "apart": claim(result("d0"), result("d1"))}
    return [
        bound("job", "c"), bound("torn", "apart"),
        *({**body, "kind": "ResourceClaim", "metadata": {"name": name}} for name, body in claims.items()),
        {**slices(device("d0", 0), device("d1", 1)), "kind": "ResourceSlice", "metadata": {"name": "s"}},
    ]  # fmt: skip


def simulated(folder: Path, items: list[Document], *more: str) -> tuple[dict[str, Any], list[str]]:
    """The one variant, and the notes."""
    file = folder / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "items": items}))
    asked = ["--pods", str(file), "--node", f"n=synthetic:{MACHINE}", "-o", "json", *more]
    done = CliRunner().invoke(command, asked)
    assert done.stdout, done.output
    found = json.loads(done.stdout)
    (variant,) = found["variants"]
    return variant, [*found["notes"], *variant["notes"]]


def test_pods_lie_beside_their_claims_devices(tmp_path: Path) -> None:
    """A bound pod follows its device; one whose devices lie on two nodes is refused, and the reason names them."""
    config = tmp_path / "config.yaml"
    config.write_text("dra: {enabled: true}\n")
    variant, notes = simulated(tmp_path, documents(), "--keep-nodes", "--config", str(config))
    job, torn = variant["placements"]
    assert (job["state"], job["containers"][0]["numaNodes"], torn["state"]) == ("aligned", "1", "refused")
    assert f"device {DRIVER}/n/d0 of claim apart on NUMA node 0" in torn["refusal"]["message"]
    assert not [each for each in notes if "claims" in each]


@pytest.mark.parametrize("more", [("--keep-nodes",), ()])
def test_pods_whose_claims_are_not_followed_are_counted(tmp_path: Path, more: tuple[str, ...]) -> None:
    """Without the setting, or without a node: decided as before, and a note says so."""
    variant, notes = simulated(tmp_path, documents(), *more)
    assert [each["state"] for each in variant["placements"]] == ["aligned", "aligned"]
    assert [each for each in notes if each.startswith("2 pods with DRA claims decided without them")]


def test_documents_of_any_shape_give_nothing() -> None:
    """Claims and slices that say nothing, of other nodes or of no shape: no claims, no fault."""
    machines = {"n": parse_synthetic(MACHINE)}
    pods = {"u": bound("job", "c")}
    bad: list[Document] = [{}, {"spec": 1, "metadata": []}, {"status": {"allocation": {}}}, {"spec": {"driver": {}}}]
    assert claims_of(pods, bad, machines) == {}
    assert claims_of(pods, documents()[2:], {"other": machines["n"]}) == {}
    assert claims_of({"u": {"spec": {"nodeName": ["n"]}}}, documents()[2:], machines) == {}
