"""Log lines for people and machines: one line each, JSON or text, with the id of the operation they belong to.

Set up once by `agent.cli.run`; the edges and the composition root log through `LOG`. Levels: ERROR is what needs an
admin (a checkpoint that cannot be saved), WARNING what was repaired or refused, INFO the decision on each pod, DEBUG
each operation's begin and end and the writes between. A line carries as `op` the id of its operation
(`agent.operation`). No text from outside can begin a line of its own: control characters are escaped by JSON, and
replaced in text.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from agent.model.fields import mapping_of
from agent.operation import current

LOG = logging.getLogger("numalign")
LONGEST = 4096
"""Characters of a message: a longer line fills disks and is not read."""


class _Lines(logging.Formatter):
    """Common to both formats: time in UTC, the op, facts given as `extra={"facts": {...}}`."""

    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03dZ"
    default_time_format = "%Y-%m-%dT%H:%M:%S"

    @staticmethod
    def facts(record: logging.LogRecord) -> Mapping[str, Any]:
        return mapping_of(getattr(record, "facts", {}))

    def message(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}: {self.formatException(record.exc_info)}"
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


class JsonLines(_Lines):
    """One JSON object per line: time, level, op, msg, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line: dict[str, Any] = {"time": self.formatTime(record), "level": record.levelname.lower()}
        if op := current():
            line["op"] = op
        line["msg"] = self.message(record)
        for key, value in self.facts(record).items():
            line[key if key not in line else f"{key}_"] = value
        return json.dumps(line, default=str)


class TextLines(_Lines):
    """time level [op] message key=value."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        op = f"[{current()}] " if current() else ""
        facts = "".join(f" {key}={_plain(value)}" for key, value in self.facts(record).items())
        text = f"{self.formatTime(record)} {record.levelname:<7} {op}{self.message(record)}{facts}"
        return "".join(letter if letter.isprintable() else "�" for letter in text.replace("\n", " | "))


def _plain(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        value = ",".join(f"{key}:{each}" for key, each in value.items())
    text = str(value)
    return json.dumps(text) if not text or " " in text or '"' in text else text


def setup(style: str, level: str = "info", stream: TextIO | None = None) -> None:
    """Send the lines of this program to a stream, stderr by default; a second call replaces the first."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else TextLines())
    for logger, lowest in ((LOG, level), (logging.getLogger("agent"), level), (logging.getLogger("kopf"), "error")):
        logger.handlers[:] = [handler]  # rooms below this one log under their own names
        logger.propagate = False
        logger.setLevel(lowest.upper())
