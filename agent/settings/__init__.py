"""The configuration: parsed strictly, explained in sentences, turned into the Rules that decisions depend on.

    parse(mapping)              -> (Settings, warnings), or SettingsError
    rules_of(settings, machine) -> agent.model.rules.Rules, or SettingsError

Pure: no file is opened here; `agent.cli.config` and `agent.app` read the YAML.
"""

from __future__ import annotations

from agent.settings.model import Settings
from agent.settings.parsing import parse
from agent.settings.to_rules import rules_of

__all__ = ["Settings", "parse", "rules_of"]
