"""The kubelets' answers to a part of the files, kept with the project: compared where no kubelet can be built.

    python -m tests.kubeletconfig record

asks every supported kubelet again. A line of answers.jsonl.gz is a file, its machine, and each minor's answer; a gate
that one of the kubelets does not know is in none of them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubeletconfig.grammar import File

CRASHED = "panic"
"""The stage of an answer (tests/peers/kubeletconfig/start.go)."""
PLACE = Path(__file__).parent / "answers.jsonl.gz"


@dataclass(frozen=True)
class Recorded:
    """A file with every kubelet's answer, by minor."""

    file: File
    answers: Mapping[int, Mapping[str, Any]]


def read() -> Iterator[Recorded]:
    """All of them."""
    with gzip.open(PLACE, "rt", encoding="utf-8") as lines:
        for found in map(json.loads, lines):
            answers = {int(minor): answer for minor, answer in found["answers"].items()}
            yield Recorded(File(found["text"], found["machine"]), answers)


def write(found: Iterable[Recorded]) -> None:
    """Keep these, but for a file on which a kubelet crashes; the same answers give the same bytes."""
    kept = (each for each in found if CRASHED not in {answer.get("stage") for answer in each.answers.values()})
    with PLACE.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        for each in kept:
            row = {"text": each.file.text, "machine": each.file.machine, "answers": each.answers}
            file.write(json.dumps(row, sort_keys=True).encode() + b"\n")
