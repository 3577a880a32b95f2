"""numalign beside the kubelets' recorded answers: every difference is in the table of intended ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kubeletconfig import recorded
from tests.kubeletconfig.asking import compared
from tests.kubeletconfig.grammar import File
from tests.kubeletconfig.intended import TABLE, meant
from tests.kubeletconfig.machines import FIRST, MACHINES
from tests.kubeletconfig.page import PAGE, page
from tests.kubeletconfig.recorded import Recorded
from tests.peers import kubelets

ALL = list(recorded.read())
RECORDED = sorted({minor for each in ALL for minor in each.answers})
FILES = Path(__file__).parent / "files"


def replayed(each: Recorded, minor: int) -> Callable[[File], Any]:
    """A kubelet that knows one file."""
    return lambda _: each.answers[minor]


@pytest.mark.parametrize("minor", RECORDED)
def test_each_difference_from_a_kubelet_is_intended(minor: int) -> None:
    """Numalign accepts what the kubelet accepts, and comes to the same values; else the table says why not."""
    faults = [
        found
        for each in ALL
        if minor in each.answers
        for found in compared(replayed(each, minor), minor, each.file)
        if meant(found) is None
    ]
    assert not faults, "\n".join(
        f"{each.mode} {each.what}: {each.kubelet} | {each.numalign}\n{each.file.text}" for each in faults[:5]
    )


@pytest.mark.parametrize("number", range(len(TABLE)))
def test_each_row_of_the_table_still_differs(number: int) -> None:
    """A row whose example no longer differs is taken out; the row that is found for it is itself."""
    row = TABLE[number]
    each = next(each for each in ALL if each.file == row.file())
    for minor in each.answers.keys() & row.minors:
        found = compared(replayed(each, minor), minor, each.file)
        assert row in [meant(one) for one in found], f"1.{minor}: {found}"


def test_files_of_tools_are_taken_by_every_kubelet() -> None:
    """kubeadm, kubespray, EKS, AKS, Bottlerocket, OpenShift, k0s: each file is recorded, and starts each kubelet."""
    texts = {path.read_text("utf-8"): path.name for path in FILES.iterdir()}
    seen = {
        texts[each.file.text]
        for each in ALL
        if each.file.text in texts and any(answer["accepted"] for answer in each.answers.values())
    }
    assert seen == set(texts.values())


def test_every_recorded_file_got_an_answer() -> None:
    """Files name only feature gates that the kubelet knows and lets be set, and each got to an end."""
    stages = {answer.get("stage") for each in ALL for answer in each.answers.values()}
    assert stages.isdisjoint({"panic", "not asked"})


def test_the_page_has_the_table() -> None:
    """`python -m tests.kubeletconfig page` wrote it, below a head that names the machine and the kubelets."""
    text = PAGE.read_text("utf-8")
    assert text == page()
    assert f"kubelets 1.{RECORDED[0]} to 1.{RECORDED[-1]}. Where no machine is named" in text
    assert f"\n    {MACHINES[FIRST]}\n" in text


def test_what_is_recorded_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each minor gets its own answer; a file that ends a kubelet is not kept."""
    monkeypatch.setattr(recorded, "PLACE", tmp_path / "answers.jsonl.gz")
    given = Recorded(
        File("a: b\n", "one node"), {34: {"accepted": True}, 35: {"accepted": True}, 36: {"accepted": False}}
    )
    ending = Recorded(File("c: d\n", "one node"), {34: {"accepted": True}, 35: {"accepted": False, "stage": "panic"}})
    recorded.write([ending, given])
    assert list(recorded.read()) == [given]


def test_every_kubelet_that_is_released_was_asked() -> None:
    """A beta may not have been, and a row names those from which it differs."""
    released = {minor for minor in kubelets.RELEASES if minor <= kubelets.NEWEST}
    assert released <= set(RECORDED) <= set(kubelets.RELEASES)
    assert all(set(row.minors) <= set(kubelets.RELEASES) for row in TABLE)
