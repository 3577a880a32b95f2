"""What the plugin makes of what kubectl prints, without a cluster: a program of the test's stands in for kubectl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PLUGIN = Path(__file__).parents[2] / "deploy/kubectl-numalign"
KUBECTL = """#!{python}
import json, sys
answers = json.load(open({answers!r}))
words = sys.argv[1:]
kind = next((each for each in ("pods", "pod", "events", "node") if each in words), "")
found = answers.get(kind)
if isinstance(found, str):
    sys.exit(found)
print(json.dumps(found))
"""


def pod(name: str, reason: str, message: str = "", **notes: str) -> dict[str, Any]:
    """A pod that numalign said something of."""
    good = "True" if reason in ("Aligned", "SharedPool") else "False"
    conditions = [
        {"type": "numalign.io/Aligned", "status": good, "reason": reason, "message": message},
        {"type": "numalign.io/Pinned", "status": "True" if reason == "Aligned" else "False", "reason": reason},
    ]
    annotations = {f"numalign.io/{key}": value for key, value in notes.items()}
    return {
        "metadata": {"name": name, "namespace": "n", "uid": name, "annotations": annotations},
        "spec": {"nodeName": "w"}, "status": {"phase": "Running", "conditions": conditions},
    }  # fmt: skip


def typed(tmp_path: Path, answers: dict[str, Any], *words: str) -> subprocess.CompletedProcess[str]:
    """Run the plugin; `answers` are kubectl's by kind, a text is its error."""
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(python=sys.executable, answers=str(tmp_path / "answers.json")))
    kubectl.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, PLUGIN, *words], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("reason", "word", "why"),
    [
        ("Aligned", "yes", ""), ("SharedPool", "shared", ""), ("NotAligned", "no", "sentence"),
        ("NotEnforced", "not enforced", "sentence"), ("TopologyAffinityError", "refused", "sentence"),
    ],
)  # fmt: skip
def test_each_state_has_its_word(tmp_path: Path, reason: str, word: str, why: str) -> None:
    """As troubleshooting.md has it; the reason stands beside whatever is not as it should be."""
    done = typed(tmp_path, {"pods": {"items": [pod("p", reason, "sentence")]}}, "pods", "-n", "n")
    assert done.returncode == 0, done.stderr
    row = [each.strip() for each in done.stdout.splitlines()[1].split("   ") if each.strip()]
    assert row == ["p", "w", "-", "-", word, *([why] if why else [])]
    found = json.loads(typed(tmp_path, {"pods": {"items": [pod("p", reason)]}}, "pods", "-o", "json").stdout)
    assert (found[0]["aligned"], found[0]["pinned"]) == (word, "True" if reason == "Aligned" else "False")
    refused = typed(tmp_path, {"pods": {"items": [pod("p", reason)]}}, "pods", "--refused", "-o", "json").stdout
    assert len(json.loads(refused)) == (word == "refused")


def test_what_the_agent_wrote_was_not_asked_for(tmp_path: Path) -> None:
    """Of a pod that numalign ended: its own annotations are no wish of the pod's owner."""
    one = pod("p", "TopologyAffinityError", failed="p", cpus="1", policy="restricted")
    done = typed(tmp_path, {"pod": one, "events": {"items": []}}, "why", "p", "--agent", "off")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("asked")] == [
        "asked: numalign.io/policy: restricted"
    ]


@pytest.mark.parametrize(
    ("node", "code", "words"),
    [
        ('Error from server (NotFound): nodes "nosuch" not found', 1, "there is no node nosuch"),
        ('Error from server (Forbidden): nodes "nosuch" is forbidden', 0, ""),
        ({"metadata": {"name": "nosuch"}}, 0, ""),
    ],
)
def test_a_node_that_is_not_there_is_told(tmp_path: Path, node: object, code: int, words: str) -> None:
    """An empty table and exit code 0 would hide a typing error. Without the right to read Nodes the table stays."""
    done = typed(tmp_path, {"pods": {"items": []}, "node": node}, "node", "nosuch", "--agent", "off")
    assert done.returncode == code, done.stderr
    assert words in done.stderr


def test_reasons_read_as_sentences() -> None:
    """A reason that begins with "why" has no "because" before it."""
    code = (
        "import importlib.machinery, importlib.util;"
        f"loader = importlib.machinery.SourceFileLoader('plugin', {str(PLUGIN)!r});"
        "spec = importlib.util.spec_from_loader('plugin', loader);"
        "found = importlib.util.module_from_spec(spec); loader.exec_module(found);"
        "print(list(found.sentences({'reasons': ['why NUMA node 0: it is near', 'it is full']})))"
    )
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['why NUMA node 0: it is near', 'because it is full']"
