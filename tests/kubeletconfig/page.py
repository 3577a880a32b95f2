"""The developers' page of intended differences, made from the table (`python -m tests.kubeletconfig page`)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.kubeletconfig.compare import ACCEPTED
from tests.kubeletconfig.intended import BOTH, EVERY, TABLE, Intended
from tests.kubeletconfig.machines import MACHINES, machine
from tests.kubeletconfig.ours import FIXED, answer

PAGE = Path(__file__).parents[2] / "deploy" / "docs" / "dev" / "kubelet-config.md"
_HEAD = """# A kubelet's configuration: what is read otherwise

<!-- Written by `python -m tests.kubeletconfig page` from tests/kubeletconfig/intended.py. -->

numalign takes a KubeletConfiguration as the kubelet takes it. The rows below are all intended differences; any other
one is a fault. Three programs hold this page to that: the kubelets' own decoder, defaults, validation and managers
(`tests/peers/kubeletconfig`, one build for each supported minor); a grammar of files with wrong types, empty values,
repeated keys, YAML 1.1, JSON and several documents (`tests/kubeletconfig`); and files as tools and distributions
write them.

    python -m tests.kubeletconfig build --minor 37     minutes, once; it is kept in the cache
    python -m tests.kubeletconfig compare --minor 37   every difference that is not in this table
    python -m tests.kubeletconfig record               the answers that tests compare with where no kubelet is built

Only keys that a file sets are compared: the defaults of numalign are not the kubelet's
([settings](../settings.md)). A feature gate that a kubelet does not know ends its start by a panic, so that no file
names one.

Each example follows the lines `apiVersion: kubelet.config.k8s.io/v1beta1` and `kind: KubeletConfiguration`, except
where it is a whole file. Its machine is "{first}" where none is named.
"""


def page() -> str:
    """The page as it should be."""
    first = next(iter(MACHINES.values()))
    refused = [each for each in TABLE if each.what == ACCEPTED and each.kubelet == "starts"]
    taken = [each for each in TABLE if each.what == ACCEPTED and each.kubelet != "starts"]
    values = [each for each in TABLE if each.what != ACCEPTED]
    parts = [_HEAD.format(first=first)]
    for title, rows in (
        ("The kubelet starts, numalign refuses the file", refused),
        ("numalign takes the file, the kubelet does not start", taken),
        ("Both take it, a value differs", values),
    ):
        if rows:
            parts += [f"\n## {title}\n", "| file | numalign | why |\n|---|---|---|"]
            parts += [_row(each) for each in rows]
    return "\n".join(parts) + "\n"


def _row(row: Intended) -> str:
    lines = "<br>".join(f"`{line.replace('|', chr(92) + '|')}`" for line in row.example.splitlines() or [""])
    where = "" if row.machine == next(iter(MACHINES)) else f"<br>on {MACHINES[row.machine]}"
    when = _when(row)
    return f"| {lines}{where} | {_ours(row)} | {row.reason}{when} |"


def _when(row: Intended) -> str:
    parts = []
    if row.modes != BOTH:
        parts.append("under `compatibility: fixed`" if row.modes == ("fixed",) else "under `compatibility: kubelet`")
    if row.minors != EVERY:
        parts.append(f"beside kubelet {', '.join(f'1.{each}' for each in row.minors)}")
    return f" Only {' and '.join(parts)}." if parts else ""


def _ours(row: Intended) -> str:
    mode = FIXED if FIXED in row.modes else f"kubelet-1.{row.minors[-1]}"
    with tempfile.TemporaryDirectory() as folder:
        found = answer(row.file().text, machine(row.machine), mode, Path(folder) / "config.yaml")
    if row.what != ACCEPTED:
        return f"{row.what}: {found.effective.get(row.what)}"
    return found.error.replace("|", "\\|") or "usable"
