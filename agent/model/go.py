"""Go's reading of texts, where the kubelet reads them with Go's own functions.

Used for policy options (`agent.settings`) and for annotations (`agent.core.request.annotations`).
"""

from __future__ import annotations

import json

from agent.errors import MalformedError

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_LONGEST = 80


def parse_bool(text: str) -> bool:
    """As strconv.ParseBool, by which the kubelet reads gates and options (kubelet rule 0.3).

    Raises:
        MalformedError: in Go's words.
    """
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise MalformedError(f"strconv.ParseBool: parsing {quoted(text)}: invalid syntax")


def quoted(text: str) -> str:
    """As %q, for the texts that occur; long ones are cut."""
    return json.dumps(text[:_LONGEST], ensure_ascii=False)
