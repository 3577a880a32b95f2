"""Every command of the documentation is run, and prints what the page shows; what cannot be run here has a word.

The word after `console` tells it apart, with the reason below.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import pages
from tools.chart import rendering

WIDTH = "100"
"""Of the terminal whose output the pages show."""
ELSEWHERE = {
    "cluster": "run by tests/kubectl/test_docs.py, against a real API server",
    "node": "needs a node with a kubelet; here only its options are checked",
    "kubelet": "asks a kubelet; here only its options are checked",
    "helm": "changes a cluster by Helm; the chart's own tests do that",
    "kind": "needs Docker and kind; tests/docs/test_tutorial.py makes numalign say what the page shows",
    "build": "needs a registry; tools/image builds the image",
}
"""Word after `console` -> why it is not run here."""
NOT_RUN = {
    "make test": "is what runs this",
    "make bench-api": "takes many minutes",
}
ANSWERS_NO = {
    ("tutorial", "numalign explain --manifest deploy/examples/router.yaml"),
    ("README", "numalign explain --manifest deploy/examples/router.yaml"),
    ("explain", "numalign run --pods deploy/examples/pods"),
    ("explain", "numalign explain solver"),
    ("explain", "numalign explain --manifest deploy/examples/router.yaml"),
    ("explanation", "numalign run --pods deploy/examples/pods"),
    ("explanation", "numalign explain --manifest deploy/examples/pods/60-solver.yaml"),
    ("exclusive", "numalign simulate --pods"),
    ("install", "numalign simulate --pods deploy/examples/pods"),
    ("install", "numalign run --pods deploy/examples/pods"),
}
"""Page, and how the command begins: done, and a pod of the examples is refused, which is exit code 1."""
ON_A_NODE = [each for each in pages.commands() if each.place == "node" and "numalign" in each.text.split()[:2]]
CRDS = ("--set", "monitoring.skipCrdCheck=true")  # there is no API server to ask whether it has them
HERE = [command for command in pages.commands() if not command.place]


def environment() -> dict[str, str]:
    """The project's own programs first."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}


@pytest.fixture(scope="session")
def placed() -> None:
    """The folder run/two-sockets, which pages go on from after the README's second command."""
    if not (pages.ROOT / "run" / "two-sockets" / "checkpoint.json").exists():
        subprocess.run(["make", "run", "MACHINE=two-sockets"], cwd=pages.ROOT, env=environment(), check=True)


@pytest.mark.usefixtures("placed")
@pytest.mark.parametrize("command", HERE, ids=str)
def test_commands_run(command: pages.Command) -> None:
    """From the root of a checkout, as somebody would who reads the page; each does what it says."""
    if any(command.text.startswith(each) for each in NOT_RUN):
        pytest.skip(next(why for each, why in NOT_RUN.items() if command.text.startswith(each)))
    first = command.text.split()[0]
    if shutil.which(first, path=environment()["PATH"]) is None:
        pytest.skip(f"{first} is not installed")
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.text],
        cwd=pages.ROOT, env={**environment(), "COLUMNS": WIDTH}, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    refused = any(command.page.stem == page and command.text.startswith(text) for page, text in ANSWERS_NO)
    assert done.returncode == int(refused), done.stdout[-2000:] + done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    if command.output:
        shown = "\n".join(line.rstrip() for line in done.stdout.splitlines()).rstrip()
        assert shown == command.output, "the page shows something else"


def test_every_command_has_a_place() -> None:
    """A word after `console` that nobody knows, or a line without a prompt: a command that is silently not run."""
    assert {command.place for command in pages.commands()} <= {"", *ELSEWHERE}
    for page in pages.PAGES:
        for body in re.findall(r"^ *```console[^\n]*\n(.*?)```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            assert body.lstrip().startswith("$ "), f"{page}: {body}"


@pytest.mark.parametrize("command", ON_A_NODE, ids=str)
def test_options_of_commands_for_a_node_exist(command: pages.Command) -> None:
    """Sub-command and options are the program's; asking for help runs nothing."""
    words = [word for word in shlex.split(command.text.replace("\\\n", " "), comments=True) if word != "sudo"]
    done = subprocess.run(
        [*words, "--help"], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.go
@pytest.mark.usefixtures("charting")
@pytest.mark.parametrize(
    "command", [each for each in pages.commands() if each.text.startswith(("helm install", "helm upgrade"))], ids=str
)
def test_helm_takes_the_values(command: pages.Command) -> None:
    """The chart is rendered with the values that the page gives; a label of the page selects nodes."""
    words = shlex.split(command.text.replace("\\\n", " "))[4:]
    flags = [word for word in words if word not in {"--reuse-values", "--create-namespace", "--namespace", "-n"}]
    text = rendering.render(*(word for word in flags if word != rendering.NAMESPACE), *CRDS)
    if "stage=try" in command.text:
        daemon = rendering.of_kind(rendering.objects(text), "DaemonSet")
        assert daemon["spec"]["template"]["spec"]["nodeSelector"]["numalign.io/stage"] == "try"
