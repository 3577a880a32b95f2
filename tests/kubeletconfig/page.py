"""The developers' page of intended differences, made from the table (`python -m tests.kubeletconfig page`)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.docs import pages
from tests.kubeletconfig import recorded
from tests.kubeletconfig.asking import modes
from tests.kubeletconfig.compare import ACCEPTED
from tests.kubeletconfig.grammar import File
from tests.kubeletconfig.intended import BOTH, EVERY, TABLE, Intended
from tests.kubeletconfig.machines import FIRST, MACHINES, machine
from tests.kubeletconfig.ours import Answer, answer

PAGE = pages.DOCS / "dev" / "kubelet-config.md"
_SECTIONS = (
    ("The kubelet starts, numalign refuses the file", "file | numalign | why"),
    ("numalign takes the file, the kubelet does not start", "file | kubelet | why"),
    ("Both take the file, a value differs", "file | kubelet | numalign | why"),
)


def page() -> str:
    """The page as it should be; its head is written by hand."""
    kubelets = {each.file: each.answers for each in recorded.read()}
    parts = [pages.head(PAGE)]
    for number, (title, columns) in enumerate(_SECTIONS):
        rows = [_row(each, number, kubelets) for each in TABLE if _section(each) == number]
        parts.append("\n".join([f"## {title}", "", f"| {columns} |", "|---" * (columns.count("|") + 1) + "|", *rows]))
    return "\n\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


def _section(row: Intended) -> int:
    if row.what != ACCEPTED:
        return 2
    return 0 if row.kubelet == "starts" else 1


def _row(row: Intended, section: int, kubelets: Mapping[File, Mapping[int, Mapping[str, Any]]]) -> str:
    known = kubelets[row.file()]
    theirs = known[max(known.keys() & row.minors)]
    lines = "<br>".join(f"`{line}`" for line in row.example.splitlines())
    where = "" if row.machine == FIRST else f"<br>on {MACHINES[row.machine]}"
    cells = [lines + where]
    if section == 1:
        cells.append(theirs["error"].partition(", error ")[2] or theirs["error"])
    elif section == 2:
        cells += [f"{row.what} {theirs['effective'][row.what]}", f"{row.what} {_ours(row).effective[row.what]}"]
    else:
        cells.append(_ours(row).error.partition("; ")[0])
    cells.append(row.reason + _when(row))
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _when(row: Intended) -> str:
    parts = []
    if row.modes != BOTH:
        parts.append("under `compatibility: fixed`" if row.modes == ("fixed",) else "under `compatibility: kubelet`")
    if row.minors != EVERY:
        parts.append(f"beside kubelet {', '.join(f'1.{each}' for each in row.minors)}")
    return f" Only {' and '.join(parts)}." if parts else ""


def _ours(row: Intended) -> Answer:
    """The answer of numalign in the first mode that differs."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / "config.yaml"
        told = [answer(row.file().text, machine(row.machine), mode, scratch) for mode in modes(row.minors[-1])]
    return next((each for each in told if each.accepted is not (row.kubelet == "starts")), told[0])
