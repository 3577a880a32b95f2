"""The configuration: parsed strictly, explained in sentences, turned into the Rules that decisions depend on.

    parse(mapping)            -> (Settings, warnings), or SettingsError
    Settings.rules(machine)   -> agent.model.rules.Rules, or SettingsError
    schema()                  -> JSON schema for the chart

Pure: no file is opened here; `agent.cli.config` and `agent.app` read the YAML. The only home of pydantic. Modules:
values (kinds of values), model (the settings), parsing (sentences), together (what excludes what), effective (what
reservations come to), and one each for topology options, CPU options and reserved memory.
"""

from __future__ import annotations

from agent.settings.model import Settings
from agent.settings.parsing import parse, schema

__all__ = ["Settings", "parse", "schema"]
