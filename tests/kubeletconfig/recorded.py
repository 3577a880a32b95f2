"""The kubelets' answers to a part of the files, kept with the project: compared where no kubelet can be built.

    python -m tests.kubeletconfig record

asks every supported kubelet again. A line of answers.jsonl.gz is a file, its machine, and each minor's answer; a gate
that one of the kubelets does not know is in none of them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
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
        for line in lines:
            found = json.loads(line)
            answers = {
                minor: found["answers"][place] for minor, place in zip(found["minors"], found["of"], strict=True)
            }
            yield Recorded(File(found["text"], found["machine"]), answers)


def write(found: list[Recorded]) -> None:
    """Keep these; equal answers are kept once, and the same answers give the same file.

    A file on which a kubelet crashes is not kept.
    """
    lines = []
    for each in found:
        if any(answer.get("stage") == CRASHED for answer in each.answers.values()):
            continue
        answers: list[Mapping[str, Any]] = []
        of = []
        for answer in each.answers.values():
            if answer not in answers:
                answers.append(answer)
            of.append(answers.index(answer))
        row = {
            "text": each.file.text, "machine": each.file.machine, "minors": list(each.answers), "of": of,
            "answers": answers,
        }  # fmt: skip
        lines.append(json.dumps(row, sort_keys=True))
    with PLACE.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(("\n".join(lines) + "\n").encode())
