"""Errors provoked in every command: wrong files, wrong kinds of files, wrong words. No traceback, no crash, no hang.

Each ends with the exit code of wrong input, and says in a sentence what is wrong, with the file or the option. Run in
this process: a crash of the interpreter or a hang ends the whole run.
"""

from __future__ import annotations

import io
import os
import shlex
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.cli import main

MACHINE = "synthetic:2 sockets x 4 cores, 8G per node"
SECONDS = 60
"""After which a command hangs."""
POD = "{kind: Pod, metadata: {name: db}, spec: {containers: [{name: app, resources: {limits: %s}}]}}"
TEXTS = {
    "a zero byte": b"kind: \0Pod\n",
    "not UTF-8": b"kind: \xff\xfe\n",
    "UTF-16": "kind: Pod\n".encode("utf-16"),
    "random bytes": bytes(range(256)) * 8,
    "30,000 brackets": b"[" * 30_000,
    "an alias bomb": b"a: &a [x, x, x, x]\n"
    + b"".join(b"%c: &%c [*%c, *%c, *%c, *%c]\n" % (n + 1, n + 1, n, n, n, n) for n in range(97, 110)),
    "an alias to itself": b"kind: &a [*a]\n",
    "a tab": b"kind:\tPod\n\tmetadata: {name: db}\n",
    "a number": b"42\n",
    "a list of lists": b"- - - 1\n",
    "a template": b"kind: Pod\nmetadata: {name: {{ .Values.name }}}\n",
    "half of a JSON object": b'{"kind": "Pod", "metadata": {',
    "a key twice": b"kind: Pod\nkind: Pod\n",
    "a Python object": b"!!python/object/apply:os.system [id]\n",
    "a number of 5,000 digits": b"kind: " + b"9" * 5000 + b"\n",
    "a pod without a specification": b"{kind: Pod, metadata: {name: db}}\n",
    "a pod without a name": b"{kind: Pod, spec: {containers: [{name: app}]}}\n",
    "a pod without containers": b"{kind: Pod, metadata: {name: db}, spec: {containers: []}}\n",
    "containers that are a text": b"{kind: Pod, metadata: {name: db}, spec: {containers: app}}\n",
    "a negative amount": (POD % "{cpu: -1}").encode(),
    "an amount of nothing": (POD % "{cpu: }").encode(),
    "an amount in GiB": (POD % "{memory: 1GiB}").encode(),
    "an amount that is a list": (POD % "{cpu: [2]}").encode(),
    "not a number": (POD % "{cpu: .nan}").encode(),
    "more than its limit": (POD % "{cpu: 1}, requests: {cpu: 2}").encode(),
    "two names": (POD % "{cpu: 1}").replace("}}]", "}}, {name: app}]").encode(),
}
READERS = {
    "run": ["run", "--once", "--root", MACHINE, "--state-dir", "{state}", "--pods", "{file}"],
    "run --config": [
        "run",
        "--once",
        "--root",
        MACHINE,
        "--state-dir",
        "{state}",
        "--pods",
        "{pods}",
        "--config",
        "{file}",
    ],
    "simulate": ["simulate", "--root", MACHINE, "--pods", "{file}"],
    "simulate -": ["simulate", "--root", MACHINE, "--pods", "-"],
    "simulate --config": ["simulate", "--root", MACHINE, "--pods", "{pods}", "--config", "{file}"],
    "simulate --scenario": ["simulate", "--root", MACHINE, "--pods", "{pods}", "--scenario", "{file}"],
    "explain": ["explain", "--root", MACHINE, "--manifest", "{file}"],
    "fleet": ["fleet", "--from", "{file}"],
    "config check": ["config", "check", "{file}"],
    "topology": ["topology", "--root", "{file}"],
    "topology --ledger": ["topology", "--root", MACHINE, "--ledger", "{file}"],
}
NOT_THERE = ("missing", "a loop of links", "a folder", "a FIFO", "a socket", "a device")
LEDGERS = ("state", "verify", "explain db", "plan --repack", "release")
WORDS = [
    "--nope", "nope", "run --nope", "run --once", "run --afresh", "run --log-level loud", "run --pods", "topolog",
    "run --once --pods {pods} --root synthetic:", "run --once --pods {pods} --root nowhere",
    "run --once --pods {pods} --output yaml",
    "topology --root synthetic:0 sockets", "topology --root 'synthetic:2 sockets x 4096 cores'",
    "topology --root 'synthetic:2 sockets, 8G per moon'", "topology --output png", "topology more", "topology -o",
    "topology --root {pods}", "topology --root ''", "record --root ''", "run --once --pods {pods} --root ''",
    "config check {config} --root ''", "explain --manifest {pods}/db.yaml --root ''",
    "simulate --pods {pods} --root ''", "simulate --pods {pods} --policy restricted,",
    "simulate --pods {pods} --policy ''", "simulate --pods {pods} --scope ,pod",
    "simulate --pods {pods} --on-misalignment fail,,run",
    "simulate", "simulate --pods {pods} --machines 0",
    "simulate --pods {pods} --machines many", "simulate --pods {pods} --machines 10001",
    "simulate --pods {pods} --node x", "simulate --pods {pods} --node 0xtwo-sockets",
    "simulate --pods {pods} --policy strict",
    "simulate --pods {pods} --scope node", "simulate --pods {pods} --retries -1", "simulate --pods {pods} --draw x",
    "simulate --pods {pods} --max-pods 0", "simulate --pods {pods} --scheduler best", "explain",
    "explain --manifest nowhere.yaml", "explain db --output svg", "plan", "plan --policy strict", "plan --scope node",
    "state --output yaml", "verify --kubepods",
    "release --within 0", "release --output yaml", "record --root nowhere", "record --name ../x", "record a b",
    "record /nowhere/x.tar.xz", "config", "config check", "config nope", "fleet --from nowhere.json",
    "fleet --kubeconfig nowhere", "fleet --kubeconfig {config}", "fleet --from {pods} --context x", "fleet -o svg",
    "fleet --kubeconfig {pods}/db.yaml --context x", "config check nowhere.yaml",
    "config check {config} --root nowhere", "help nope", "run --state-dir {config} --once --pods {pods}",
]  # fmt: skip


@contextmanager
def in_time() -> Iterator[None]:
    """Raises TimeoutError where a command hangs."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Provoked:
    """A folder to type commands in.

    Attributes:
        folder: where.
        places: what stands for words in braces.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places = {name: str(folder / name) for name in ("state", "pods", "file", "config")}
        (folder / "pods").mkdir()
        (folder / "pods" / "db.yaml").write_text(POD % '{cpu: "2", memory: 1Mi}')
        (folder / "config").write_text("{}")

    def typed(self, words: list[str]) -> tuple[int, str]:
        """Exit code, and what is on standard error."""
        with pytest.MonkeyPatch.context() as patch:
            told = io.StringIO()
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", ["numalign", *(each.format(**self.places) for each in words)])
            patch.setattr(sys, "stdout", io.StringIO())
            patch.setattr(sys, "stderr", told)
            with in_time(), pytest.raises(SystemExit) as ended:
                main()
        return int(ended.value.code or 0), told.getvalue()


@pytest.fixture
def provoked(tmp_path: Path) -> Provoked:
    """A fresh folder."""
    return Provoked(tmp_path)


def is_sentence(text: str) -> None:
    """Something is said, in few lines, and nothing of Python's."""
    assert text.strip()
    assert len(text.splitlines()) <= 12
    for word in ("Traceback", "Error(", "NoneType", "<class", "object at 0x"):
        assert word not in text


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", TEXTS)
def test_wrong_texts(provoked: Provoked, monkeypatch: pytest.MonkeyPatch, reader: str, name: str) -> None:
    """A file that is not what the command reads is wrong input, and is named."""
    (provoked.folder / "file").write_bytes(TEXTS[name])
    words = READERS[reader]
    if reader == "run":
        (provoked.folder / "wrong").mkdir()
        (provoked.folder / "file").rename(provoked.folder / "wrong" / "file.yaml")
        words = [each.replace("{file}", str(provoked.folder / "wrong")) for each in words]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXTS[name])))
    code, said = provoked.typed(words)
    assert code == 2, said
    if reader != "run":  # its table is on standard output
        is_sentence(said)
        assert "standard input" in said if reader == "simulate -" else "file" in said


@pytest.mark.parametrize("reader", [each for each in READERS if each != "simulate -"])
@pytest.mark.parametrize("kind", NOT_THERE)
def test_what_is_no_file(provoked: Provoked, reader: str, kind: str) -> None:
    """Nobody waits for the other end of a FIFO, and nothing that is no file is read."""
    file = provoked.folder / "file"
    if kind == "a folder":
        file.mkdir()
    elif kind == "a FIFO":
        os.mkfifo(file)
    elif kind == "a loop of links":
        file.symlink_to("file")
    elif kind == "a device":
        file.symlink_to("/dev/zero")
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(file))
    code, said = provoked.typed(READERS[reader])
    empty = kind == "a folder" and reader == "run"  # a folder without manifests is a node without pods
    assert code == (0 if empty else 2), said
    if not empty and (reader != "run" or said):
        is_sentence(said)


@pytest.mark.parametrize("command", LEDGERS)
@pytest.mark.parametrize("name", ["missing", "empty", "random bytes", "30,000 brackets", "half of a JSON object"])
def test_ledgers_that_are_none(provoked: Provoked, command: str, name: str) -> None:
    """A state folder without a ledger, or with another file in its place: a fault of this machine, with its path."""
    (provoked.folder / "state").mkdir()
    if name != "missing":
        (provoked.folder / "state" / "checkpoint.json").write_bytes(TEXTS.get(name, b""))
    code, said = provoked.typed([*command.split(), "--root", MACHINE, "--state-dir", "{state}"])
    assert code == 3, said
    is_sentence(said)
    assert str(provoked.folder / "state") in said


@pytest.mark.parametrize("line", WORDS)
def test_wrong_words(provoked: Provoked, line: str) -> None:
    """An option, a value or a name that does not exist is wrong input, and is named."""
    code, said = provoked.typed(shlex.split(line))
    assert code == 2, said
    is_sentence(said)
