"""The chart rendered by the real Helm, and what is made of it: schema, table of values, manifests for kubectl.

Used by the tests beside it and by `make chart`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.peers import tools
from tools.chart import kubernetes, values_schema

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "numalign"
MANIFESTS = ROOT / "deploy" / "manifests"
NAMESPACE = "numalign-system"
OLDEST, NEWEST = "1.32.0", kubernetes.VERSION
"""Of Kubernetes: what Chart.yaml demands, and the newest whose types the chart's schema has."""
Object = dict[str, Any]
_HELMS_OWN = re.compile(r"\n +(?:app\.kubernetes\.io/managed-by: Helm|helm\.sh/(?:chart|hook[a-z-]*): .*)(?=\n)")


class HelmError(Exception):
    """Helm said no; the text is its own."""


def helm(*arguments: str | Path, environment: Mapping[str, str] | None = None, seconds: float = 120) -> str:
    """Run Helm; its output, or HelmError. Its folders are temporary: no plugin of this machine is used."""
    with tempfile.TemporaryDirectory() as home:
        own = {f"HELM_{each}_HOME": f"{home}/{each}" for each in ("CACHE", "CONFIG", "DATA")}
        done = subprocess.run(
            [tools.helm(), *arguments], capture_output=True, text=True, timeout=seconds, check=False,
            env={**os.environ, **own, **(environment or {})},
        )  # fmt: skip
    if done.returncode:
        raise HelmError(done.stderr + done.stdout)
    return done.stdout


def render(*flags: str | Path, version: str = NEWEST, name: str = "numalign", namespace: str = NAMESPACE) -> str:
    """The manifests as Helm would apply them, hooks and tests too; raises HelmError."""
    return helm("template", name, CHART, "--namespace", namespace, "--kube-version", version, *flags)


def objects(text: str) -> list[Object]:
    """The objects of rendered text."""
    return [each for each in yaml.safe_load_all(text) if each]


def of_kind(found: Iterable[Object], kind: str, name: str = "") -> Object:
    """The one object of a kind (and name)."""
    (only,) = [each for each in found if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    return only


def pod_specs(found: Iterable[Object]) -> Iterator[tuple[str, Object]]:
    """Kind and name, and the pod specification of everything that makes pods."""
    for each in found:
        spec = each["spec"] if each["kind"] == "Pod" else (each.get("spec") or {}).get("template", {}).get("spec")
        if spec:
            yield f"{each['kind']} {each['metadata']['name']}", spec


def readme() -> str:
    """README.md as helm-docs writes it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "numalign"
        copy.mkdir()
        for name in ("Chart.yaml", "values.yaml", "README.md.gotmpl"):
            shutil.copy(CHART / name, copy)
        done = subprocess.run(
            [tools.helm_docs(), "--chart-search-root", folder, "--sort-values-order", "file"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if done.returncode or "level=error" in done.stderr:
            raise HelmError(done.stderr)
        return (copy / "README.md").read_text("utf-8")


def manifests() -> dict[str, str]:
    """What deploy/manifests holds: file name -> text, as kubectl takes it."""
    head = "# Made by `make chart` from charts/numalign with its defaults.\n"
    everything = _plain(render("--no-hooks", "--skip-tests", version=OLDEST))
    asking = "# Asks every agent to put its node back; apply it before you delete the rest.\n"
    leave = _plain(render("--show-only", "templates/uninstall.yaml", version=OLDEST))
    return {"numalign.yaml": head + everything, "uninstall.yaml": head + asking + leave}


def _plain(text: str) -> str:
    """Without what only Helm needs: its labels, and the annotations of hooks."""
    while (shorter := _HELMS_OWN.sub("", text)) != text:
        text = shorter
    return re.sub(r"\n  annotations:(?=\n[^ ]|\n {0,2}[a-z])", "", text)


def generated() -> dict[Path, str]:
    """Every generated file with the text that it must have."""
    return {
        CHART / "values.schema.json": values_schema.written(),
        CHART / "README.md": readme(),
        CHART / "files" / "crds" / "noderesourcetopologies.yaml": (
            ROOT / "deploy" / "crds" / "noderesourcetopologies.yaml"
        ).read_text("utf-8"),
        **{MANIFESTS / name: text for name, text in manifests().items()},
    }
