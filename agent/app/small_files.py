"""The small files beside the ledger: one JSON object each, replaced as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


def keep(path: Path, body: Mapping[str, object]) -> None:
    """Replace a file; a reader finds the old one or the new one. Raises OSError."""
    spare = path.with_name(f".{path.name}.new")
    spare.write_text(json.dumps(body) + "\n", encoding="utf-8")
    os.replace(spare, path)  # noqa: PTH105 - because it says what it does: atomic, replacing
