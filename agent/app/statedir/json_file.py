"""The small files beside the ledger: one JSON object each, replaced as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.host import bounded
from agent.host.checkpoint import replace_file


def keep(path: Path, body: Mapping[str, object]) -> None:
    """Replace a file, for its owner alone to read; after a power cut there is the old one or the new one.

    Raises:
        OSError: it cannot be written.
    """
    replace_file(path, json.dumps(body).encode() + b"\n")


def read(path: Path, most: int) -> Any:  # noqa: ANN401 - whatever the file holds
    """The value that a file holds; raises OSError for what is no regular file, ValueError for what is no JSON."""
    return json.loads(bounded.read(path, most, links=False))
