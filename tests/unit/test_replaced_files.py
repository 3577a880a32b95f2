"""Finding 26, for files that are no documents: a FIFO where a file was, or a folder with very many, hangs nobody."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from agent.errors import HostError
from agent.host.lstopo import is_lstopo, read_lstopo
from agent.host.machines import open_machine
from agent.host.podlogs import read_pod_logs
from agent.host.writers import look
from agent.kube.access import ApiAccess
from agent.kube.configz import kubelet_configuration


def fifo(path: Path) -> None:
    """Nobody writes into it."""
    os.mkfifo(path)


def endless(path: Path) -> None:
    """A device that never ends."""
    path.symlink_to("/dev/zero")


KINDS = pytest.mark.parametrize("replace", [fifo, endless], ids=lambda each: each.__name__)


def done(work: Callable[[], Any], *fifos: Path) -> Any:  # noqa: ANN401 - whatever the work gives
    """What the work gives, waited for; where it hangs on a FIFO, that is opened for it, and the test fails."""
    with ThreadPoolExecutor(1) as worker:
        asked = worker.submit(work)
        try:
            return asked.result(30)
        except TimeoutError:
            for each in fifos:
                os.close(os.open(each, os.O_RDWR))
            raise


@KINDS
def test_the_kubelets_state_files_hang_nobody(tmp_path: Path, replace: Callable[[Path], None]) -> None:
    """What is no file says nothing about another writer, and the one beside it is read."""
    base = tmp_path / "var/lib/kubelet"
    base.mkdir(parents=True)
    replace(base / "cpu_manager_state")
    (base / "memory_manager_state").write_text('{"policyName": "Static"}', "utf-8")
    (found,) = done(lambda: look(tmp_path), base / "cpu_manager_state")
    assert "memory_manager_state" in found


def test_folders_of_others_are_read_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many names are taken as are looked at, however many there are; a FIFO in a folder's place has none."""
    registry, logs = tmp_path / "var/lib/kubelet/plugins_registry", tmp_path / "var/log/pods"
    for folder in (registry, logs):
        folder.mkdir(parents=True)
        for number in range(50):
            (folder / f"ns_pod{number}_uid{number}").mkdir()
    taken: list[str] = []
    real = os.scandir

    class Counted:
        def __init__(self, folder: Any) -> None:  # noqa: ANN401 - os.scandir's
            self.entries = real(folder)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.entries.close()

        def __iter__(self) -> Self:
            return self

        def __next__(self) -> os.DirEntry[str]:
            entry = next(self.entries)
            taken.append(entry.name)
            return entry

    monkeypatch.setattr(os, "scandir", Counted)
    assert len(read_pod_logs(tmp_path / "var/log", most=5).uids) == 5
    assert len(taken) == 5
    look(tmp_path, most=5)
    assert len(taken) == 10
    monkeypatch.undo()
    os.mkfifo(tmp_path / "containers")
    with pytest.raises(HostError, match="cannot be listed"):
        done(lambda: read_pod_logs(tmp_path), tmp_path / "containers")


@KINDS
def test_the_token_that_is_replaced_hangs_no_request(tmp_path: Path, replace: Callable[[Path], None]) -> None:
    """The last good token is used, as while a file is being replaced; a good one that comes after is read."""
    token = tmp_path / "token"
    token.write_text("good\n", "ascii")
    access = ApiAccess("https://127.0.0.1:1", tmp_path / "ca.crt", token)
    assert access.token == "good"
    token.unlink()
    replace(token)
    assert done(lambda: access.token, token) == "good"
    token.unlink()
    token.write_text("next", "ascii")
    assert access.token == "next"


@KINDS
def test_certificates_that_are_replaced_are_trusted_by_nobody(
    tmp_path: Path, replace: Callable[[Path], None]
) -> None:
    """The kubelet is not asked; an empty file does not stand for the certificates of this system."""
    ca = tmp_path / "ca.crt"
    access = ApiAccess("https://127.0.0.1:1", ca, tmp_path / "token")
    replace(ca)
    assert done(lambda: kubelet_configuration(access, "127.0.0.1", 1), ca) is None
    ca.unlink()
    for text in ("", "\n", "# nothing\n"):
        ca.write_text(text, "ascii")
        with pytest.raises((ValueError, ssl.SSLError)):
            access.trust()


def test_machines_that_are_no_files_are_refused(tmp_path: Path) -> None:
    """XML of lstopo and a description in words, replaced between the look at them and their reading."""
    for path in (tmp_path / "machine.xml", tmp_path / "machine"):
        os.mkfifo(path)
        assert not done(partial(is_lstopo, path), path)
        with pytest.raises(HostError, match="cannot be read"):
            done(partial(read_lstopo, path, "x"), path)
    os.mkfifo(tmp_path / "machine.txt")
    with pytest.raises(HostError):
        done(lambda: open_machine(str(tmp_path / "machine.txt")), tmp_path / "machine.txt")
