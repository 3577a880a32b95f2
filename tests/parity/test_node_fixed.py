"""The recorded histories of nodes once more, with the kubelet's defects mended: other answers, the same rules."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from agent.model.ledgerjson import ledger_from_json, ledger_to_json
from agent.model.rules import Compatibility
from tests.parity.node import Scenario
from tests.parity.reading import read_vectors

OWN = Path(__file__).parent / "vectors" / "node.jsonl.gz"


class Mended(Scenario):
    """A restart of ours: the saved ledger is loaded, the pods are listed again, and nothing changes."""

    def restart(self) -> list[dict[str, Any]]:
        """Nothing is decided again."""
        loaded = ledger_from_json(json.loads(json.dumps(ledger_to_json(self.ledger))))
        assert loaded == self.ledger
        for pod in self.active:
            assert self.node.admit(self.ledger, pod).ledger == self.ledger
        return []


def test_mended_histories_break_no_rule_and_leak_nothing() -> None:
    """465 nodes with pods that come and go: the invariants hold after each event, and all comes back at the end."""
    seen: Counter[str] = Counter()
    for vector in read_vectors(OWN):
        scenario = Mended(vector.input, Compatibility.FIXED)
        got = scenario.run()
        assert scenario.broken == [], vector.id
        if "init_error" in got:
            seen["refused to start"] += 1
            continue
        for event in got["events"]:
            seen.update("admitted" if pod["admitted"] else "refused" for pod in event.get("pods", []))
        ledger = scenario.ledger
        for pod in scenario.active:
            ledger = scenario.node.release(ledger, pod.uid)
        assert ledger == scenario.node.start(), vector.id
    assert min(seen["admitted"], seen["refused"]) > 300, seen
