"""Which sequences are put before the lab's kubelets, in the order of their settings: see `test_sequences.py`."""

from __future__ import annotations

import json
import os

from tests.lab.cluster import KUBELET, plans
from tests.referee.generate import CONFIGS, generate
from tests.referee.sequence import Sequence, read_all
from tests.referee.shapes import config_of

FULL = os.environ.get("NUMALIGN_LAB_FULL", "") not in ("", "0")
ALL = FULL or os.environ.get("NUMALIGN_LAB_REFEREE", "") == "all"
SEED = int(os.environ.get("NUMALIGN_SEED", "20261121"))
RANDOM = len(CONFIGS) if ALL else 3


def chosen() -> list[Sequence]:
    """Those of the minor of the lab's kubelets, in the order of their settings."""
    minor = plans()[KUBELET].minor
    files = [each for each in read_all(minor=minor) if each.machine == "lab"]
    files = [each for each in files if ALL or {"core", "run"} & {*each.tags}]
    made = [generate(SEED + index, config=CONFIGS[index], since=minor) for index in range(RANDOM)]
    return sorted([*files, *made], key=lambda each: (_key(each), each.name))


def _key(sequence: Sequence) -> str:
    return json.dumps([dict(sequence.kubelet), config_of(sequence.config)], sort_keys=True)
