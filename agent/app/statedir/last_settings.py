"""The settings that were in force last, beside the ledger: what a start serves when the file is wrong by then.

A wrong value in a ConfigMap changes nothing while agents run. Without this, the next reboot would take the agent of
its node down, and weeks may lie between both. Used by `agent.app.setup`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from agent.app.statedir import state_file
from agent.errors import SettingsError
from agent.model.fields import mapping_of
from agent.observe.logs import LOG
from agent.settings import Settings, parse


def save(state: Path, settings: Settings) -> None:
    """Save the settings in force; where that fails, log it and keep the ones before."""
    try:
        state_file.keep(state, settings=settings.shown())
    except OSError as error:
        LOG.warning("the settings are not remembered for a start with a wrong file: %s", error)


def load(state: Path) -> Settings | None:
    """Read the saved settings; None where there are none that can be trusted."""
    # whatever is wrong with it, the start says what is wrong with the configuration file
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError, SettingsError):  # see above
        found = mapping_of(state_file.raw(state, "settings"))
        return parse(found)[0] if found else None
    return None
