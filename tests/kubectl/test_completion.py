"""What Tab offers after `kubectl numalign`: asked as kubectl asks, and by bash as if somebody pressed the key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kubectl.conftest import NODE, PODS, Scene
from tests.kubectl.desk import COMPLETION

TAB = """
_get_comp_words_by_ref() {  # of the package bash-completion, which kubectl's script asks for the words
    cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
}
source <(kubectl completion bash)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMP_KEY=9
__start_kubectl 2> /dev/null  # bash says that no key was pressed
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""A shell's Tab at the end of a command line."""


def offered(*words: str, path: str = "") -> list[str]:
    """By the program itself, without any cluster: names, and the directive as the last one."""
    done = subprocess.run(
        [sys.executable, COMPLETION, *words], capture_output=True, text=True, check=True, env={"PATH": path}
    )
    assert done.stderr == ""
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def test_the_options_are_the_programs_own() -> None:
    """Commands first, then the options of that command alone, then the values that an option has."""
    assert offered("") == ["pods", "node", "why", "fleet", "ungate", ":4"]
    assert offered("w") == ["why", ":4"]
    assert offered("pods", "--mis") == ["--misaligned", ":4"]
    assert offered("node", "--mis") == [":4"]
    assert offered("pods", "-A", "-o", "") == ["table", "json", ":4"]
    assert offered("pods", "--output=j") == ["json", ":4"]
    assert offered("why", "--agent", "") == ["off", ":4"]


def test_files_are_left_to_the_shell() -> None:
    """A kubeconfig and a picture are files, which the shell knows best; nothing else is."""
    assert offered("fleet", "--svg", "fl") == [":0"]
    assert offered("pods", "--kubeconfig", "/et") == [":0"]
    assert offered("pods", "-l", "app") == [":4"]


def test_without_kubectl_nothing_is_offered_and_nothing_said(tmp_path: Path) -> None:
    """A Tab must never print an error into the line that somebody types."""
    assert offered("why", "", path=str(tmp_path)) == [":4"]
    assert offered("pods", "--context", "", path=str(tmp_path)) == [":4"]


@pytest.mark.cluster
def test_kubectl_asks_for_names_of_the_cluster(scene: Scene) -> None:
    """Pods of the namespace that the line names, nodes, namespaces, contexts; a second pod is not offered."""

    def asked(*words: str) -> list[str]:
        text = scene.desk.run("kubectl", "__complete", "numalign", *words)
        lines = [line.partition("\t")[0] for line in text.splitlines()]
        return lines[: lines.index(":4")]

    assert set(asked("why", "-n", NODE, "")) == {*PODS}
    assert asked("why", f"--namespace={NODE}", "gr") == ["greedy"]
    assert asked("why", "-n", "kube-system", "gr") == []
    assert asked("why", "-n", NODE, "trader", "gr") == []
    assert asked("node", "work") == [NODE]
    assert asked("pods", "--node", "work") == [NODE]
    assert asked("pods", "-n", "kube-sy") == ["kube-system"]
    assert asked("pods", "--context", "") == ["lab"]
    assert asked("pods", "--cluster", "") == ["lab"]


@pytest.mark.cluster
def test_bash_completes_the_word(scene: Scene) -> None:
    """By kubectl's own completion script: what stands in the line after Tab."""

    def pressed(*words: str) -> list[str]:
        told = scene.desk.run("bash", "-c", TAB, "bash", "kubectl", *words)
        return [line.split()[0] for line in told.splitlines() if line.strip()]

    assert pressed("numalign", "w") == ["why"]
    assert pressed("numalign", "why", "-n", NODE, "gr") == ["greedy"]
    assert pressed("numalign", "pods", "--ref") == ["--refused"]
