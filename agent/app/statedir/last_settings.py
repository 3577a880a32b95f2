"""The settings that were in force last, beside the ledger: what a start serves when the file is wrong by then.

A wrong value in a ConfigMap changes nothing while agents run. Without this, the next reboot would take the agent of
its node down, and weeks may lie between both. Used by `agent.app.setup`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from agent.app.statedir import json_file
from agent.errors import SettingsError
from agent.host.settings_file import LARGEST
from agent.observe.logs import LOG
from agent.settings import Settings, parse

FILE = "settings.json"
VERSION = 1


def save(state: Path, settings: Settings) -> None:
    """Remember settings that are in force; where they cannot be saved, that is told, and those before stay."""
    body = settings.shown()
    try:
        json_file.keep(state / FILE, {"numalign": VERSION, "sha256": _sum(body), "settings": body})
    except OSError as error:
        LOG.warning("the settings are not remembered for a start with a wrong file: %s", error)


def load(state: Path) -> Settings | None:
    """What was remembered; None where there is nothing, or nothing that can be trusted."""
    # whatever is wrong with it, the start says what is wrong with the configuration file
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError, SettingsError):  # see above
        found = json_file.read(state / FILE, 4 * LARGEST)
        if found["numalign"] == VERSION and found["sha256"] == _sum(found["settings"]):
            return parse(found["settings"])[0]
    return None


def _sum(body: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
