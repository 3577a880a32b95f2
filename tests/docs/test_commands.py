"""The walk: every command of README and deploy/docs is run as a reader would, and prints what the page shows.

The word after `console` says where a command is run that cannot be run here; the reasons are below. Of those, what
is for kubectl or Helm is given to it with a server that is not there: a wrong word or option is an error before that.
What may differ in an output: `tests.docs.stranger`.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.stranger import Stranger, plain
from tools.chart import rendering

ELSEWHERE = {
    "cluster": "run by tests/kubectl/test_docs.py, against a real API server",
    "fleet": "needs a file of the reader's, or nodes that publish; tests/cli and tests/cluster ask such",
    "node": "needs a node with a kubelet",
    "kubelet": "asks a kubelet",
    "helm": "changes a cluster by Helm; the lab does that",
    "kind": "needs Docker and kind; tests/docs/test_tutorial.py makes numalign say what the page shows",
    "release": "needs a release; tests/release/test_verify_page.py runs it beside one",
    "build": "needs a registry, or changes this machine; tools/image builds the image",
}
"""Word after `console` -> why it is not run here."""
NOT_RUN = {
    "make test": "runs tests",
    "make check": "is what runs this",
    "make page": "serves until Ctrl-C; test_make_page_serves_the_examples runs it once",
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
ONLY_SHELL = {
    "docker": "the image's tests build from the same Dockerfile", "kind": "makes a cluster",
    "systemctl": "stops a service of this machine", "rm": "removes files of a kubelet", "xdg-open": "opens a browser",
    "python3": "the image's tests install from the same lock", "pip": "the image's tests install from the same lock",
    "ln": "changes this machine", "numastat": "belongs to numactl", "#": "is a note for the reader",
}  # fmt: skip
"""Program -> why nothing but the shell's own check of the syntax is made."""
NOWHERE = "http://127.0.0.1:1"
CRDS = ("--set", "monitoring.skipCrdCheck=true")  # there is no API server to ask whether it has them
EVERY = list(pages.commands())
HERE = [command for command in EVERY if not command.place]
A_MAP = "{apiVersion: v1, kind: ConfigMap, metadata: {name: any}}"


@pytest.fixture(scope="module")
def stranger() -> Iterator[Stranger]:
    """Has done what the README does second, from which other pages go on."""
    with tempfile.TemporaryDirectory(prefix="stranger-") as folder:  # pytest's own folders are closed to other users
        found = Stranger(Path(folder))
        done = found.shell("make run MACHINE=two-sockets")
        assert done.returncode == 0, done.stderr
        yield found


def lines_of(command: pages.Command) -> list[list[str]]:
    """The simple commands of a line, as words, without sudo."""
    lexer = shlex.shlex(command.text.replace("\\\n", " "), posix=True, punctuation_chars="|&;<>")
    lexer.commenters = "#"
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if word in {"|", "&&", "||", ";"}:
            found.append([])
        elif found[-1] or word != "sudo":
            found[-1].append(word)
    return [words for words in found if words]


def of(program: str, *, but: str = "") -> list[pages.Command]:
    """Commands that begin with this program, where no test runs them."""
    return [
        each for each in EVERY
        if each.place not in {"", "cluster", "release"}
        and any(words[0] == program and but not in words[1:2] for words in lines_of(each))
    ]  # fmt: skip


@pytest.mark.parametrize("command", HERE, ids=str)
def test_commands_run(command: pages.Command, stranger: Stranger) -> None:
    """From a fresh copy, without root, as somebody would who reads the page; each does what it says."""
    if any(command.text.startswith(each) for each in NOT_RUN):
        pytest.skip(next(why for each, why in NOT_RUN.items() if command.text.startswith(each)))
    first = command.text.split()[0]
    if shutil.which(first, path=stranger.environment()["PATH"]) is None:
        pytest.skip(f"{first} is not installed")
    done = stranger.shell(command.text)
    refused = any(command.page.stem == page and command.text.startswith(text) for page, text in ANSWERS_NO)
    assert done.returncode == int(refused), done.stdout[-2000:] + done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    if command.output:
        assert plain(done.stdout) == command.output, "the page shows something else"


def test_the_walk_is_without_root(stranger: Stranger) -> None:
    """README promises that nothing needs root; the folder that `make run` leaves is the user's."""
    if not stranger.rootless:
        pytest.skip("setpriv (util-linux) or an interpreter that other users may run is missing")
    assert stranger.shell("id -u").stdout.strip() != "0"
    assert (stranger.checkout / "run/two-sockets/checkpoint.json").stat().st_uid != 0


def test_make_page_serves_the_examples(stranger: Stranger) -> None:
    """The command that README shows, with --once: it names the page's address and places the examples."""
    done = stranger.shell("make page MACHINE=two-sockets ARGS=--once")
    assert done.returncode == 2, done.stderr  # of make: a pod of the examples is refused
    assert "http://127.0.0.1:9178/" in done.stdout
    assert done.stdout.count("two-sockets: 64 CPUs") == 1


def test_outputs_are_of_a_described_machine() -> None:
    """What a page shows is the same on every machine."""
    assert [str(each) for each in HERE if each.output and "--root" not in each.text] == []


def test_every_command_has_a_place() -> None:
    """A word after `console` that nobody knows, or a line without a prompt: a command that is silently not run."""
    assert {command.place for command in EVERY} <= {"", *ELSEWHERE}
    for page in pages.PAGES:
        for body in re.findall(r"^ *```console[^\n]*\n(.*?)```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            assert body.lstrip().startswith("$ "), f"{page}: {body}"


def test_every_command_is_looked_at() -> None:
    """Run here, run in a cluster, or given to the program that it names; a few are only a shell's to check."""
    known = {"kubectl", "helm", "numalign", *ONLY_SHELL}
    for command in EVERY:
        done = subprocess.run(["bash", "-n", "-c", command.text], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        for words in lines_of(command) if command.place not in {"", "cluster", "release"} else ():
            assert Path(words[0]).name in {*known, "grep"}, command


@pytest.mark.parametrize("command", [each for each in EVERY if each.place and "numalign" in each.text], ids=str)
def test_options_of_numalign_exist(command: pages.Command, stranger: Stranger) -> None:
    """Also behind `kubectl exec ... --`; asking for help runs nothing."""
    for words in lines_of(command):
        inner = words[words.index("--") + 1 :] if "--" in words else words
        if inner[0] == "numalign":
            done = stranger.shell(shlex.join([*inner, "--help"]))
            assert done.returncode == 0, done.stderr


@pytest.mark.go
@pytest.mark.parametrize("command", of("kubectl", but="numalign"), ids=str)
def test_kubectl_takes_the_words(command: pages.Command, kube: Path, tmp_path: Path) -> None:
    """Sub-command, resources and options are kubectl's: it gets as far as asking the server."""
    (tmp_path / "any.yaml").write_text(A_MAP)
    for words in lines_of(command):
        if words[0] == "kubectl":
            given = [str(tmp_path / "any.yaml") if word.endswith(".yaml") else word for word in words[1:]]
            done = subprocess.run(
                [kube, "kubectl", "--server", NOWHERE, *given], capture_output=True, text=True, timeout=60,
                check=False, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
            )  # fmt: skip
            assert done.returncode != 0
            assert "connection refused" in done.stderr or "was refused" in done.stderr, done.stderr


@pytest.mark.go
@pytest.mark.usefixtures("charting")
@pytest.mark.parametrize("command", of("helm"), ids=str)
def test_helm_takes_the_words(command: pages.Command) -> None:
    """Sub-command and options are Helm's: it gets as far as asking the server; `template` renders the job."""
    for words in lines_of(command):
        given = words[1 : words.index(">")] if ">" in words else words[1:]
        if given[0] == "template":
            made = rendering.helm(*("/dev/null" if word == "values.yaml" else word for word in given))
            assert "kind: Job" in made
            continue
        with pytest.raises(rendering.HelmError, match=r"connection refused"):
            rendering.helm(*given, "--kube-apiserver", NOWHERE)


@pytest.mark.go
@pytest.mark.usefixtures("charting")
@pytest.mark.parametrize(
    "command", [each for each in EVERY if each.text.startswith(("helm install", "helm upgrade"))], ids=str
)
def test_helm_takes_the_values(command: pages.Command) -> None:
    """The chart is rendered with the values that the page gives; a label of the page selects nodes."""
    words = shlex.split(command.text.replace("\\\n", " "))[4:]
    flags = [
        word for word in words if word not in {"--reset-then-reuse-values", "--create-namespace", "--namespace", "-n"}
    ]
    text = rendering.render(*(word for word in flags if word != rendering.NAMESPACE), *CRDS)
    if "stage=try" in command.text:
        daemon = rendering.of_kind(rendering.objects(text), "DaemonSet")
        assert daemon["spec"]["template"]["spec"]["nodeSelector"]["numalign.io/stage"] == "try"
