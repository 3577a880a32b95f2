"""The configuration file: read, and refused with file, line and remedy where it is no YAML.

Used by `numalign config check` and by `numalign run`, at start and whenever the file changes; what the document means
is for `agent.settings`.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from agent.errors import SettingsError
from agent.settings import Settings, parse

LARGEST = 1 << 20
"""A ConfigMap cannot be larger either."""


class _Loader(yaml.SafeLoader):
    """YAML's safe kinds, and no key twice: the second would win in silence."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f'"{key.value[:60]}" is there twice; remove one', problem_mark=key.start_mark
                )
            seen.add(key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_settings(path: Path) -> tuple[Settings, tuple[str, ...]]:
    """The settings that a file holds, and what in it is ignored.

    Raises:
        SettingsError: it cannot be read, is no YAML, or says something impossible; the text starts with the file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise SettingsError(str(path), f"cannot be read: {error.strerror}; name a readable file") from None
    if len(data) > LARGEST:
        raise SettingsError(str(path), f"is larger than {LARGEST} bytes; a configuration is a few hundred")
    try:
        document = yaml.load(data, _Loader)  # noqa: S506 - a subclass of the safe loader
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        why = ", ".join(part for part in (error.context, error.problem) if part) or "is not YAML"
        raise SettingsError(f"{path}{line}", f"{why}; correct the YAML") from None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        why = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise SettingsError(str(path), f"is not YAML ({why}); correct it") from None
    try:
        return parse(document)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error.key}" if error.key else str(path), _why(error)) from None


def _why(error: SettingsError) -> str:
    return str(error).removeprefix(f"{error.key}: ") if error.key else str(error)
