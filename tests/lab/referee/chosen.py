"""Which sequences are put before the lab's kubelets, in the order of their settings: see `test_sequences.py`."""

from __future__ import annotations

import json
import os

from tests.referee.generate import CONFIGS, generate
from tests.referee.sequence import Sequence, read_all
from tests.referee.shapes import config_of

FULL = os.environ.get("NUMALIGN_LAB_FULL", "") not in ("", "0")
ALL = FULL or os.environ.get("NUMALIGN_LAB_REFEREE", "") == "all"
SEED = int(os.environ.get("NUMALIGN_SEED", "20261121"))
RANDOM = len(CONFIGS) if ALL else 3


def chosen() -> list[Sequence]:
    """In the order of their settings."""
    files = [each for each in read_all() if each.machine == "lab" and (ALL or {"core", "run"} & {*each.tags})]
    made = [generate(SEED + index, config=CONFIGS[index]) for index in range(RANDOM)]
    return sorted([*files, *made], key=lambda each: (_key(each), each.name))


def _key(sequence: Sequence) -> str:
    return json.dumps([dict(sequence.kubelet), config_of(sequence.config)], sort_keys=True)
