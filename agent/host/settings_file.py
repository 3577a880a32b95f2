"""The configuration file: read, and refused with file, line and remedy where it is no YAML.

Used by `numalign config check` and by `numalign run`, at start and whenever the file changes; what the document means
is for `agent.settings`.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from agent.errors import BadDocumentError, SettingsError
from agent.host import bounded, documents
from agent.settings import Settings, parse

LARGEST = 1 << 20
"""A ConfigMap cannot be larger either."""
MOST_VALUES = 20_000


class _Loader(documents.Loader):  # type: ignore[misc]  # the library has no types for its C part
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
    found: dict[Hashable, Any] = loader.construct_mapping(node, deep=True)
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_settings(path: Path) -> tuple[Settings, tuple[str, ...]]:
    """The settings that a file holds, and what in it is ignored.

    Raises:
        SettingsError: it cannot be read, is no YAML, or says something impossible; the text starts with the file.
    """
    document = _document(path)
    try:
        return parse(document)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error.key}" if error.key else str(path), _why(error)) from None


def observe_only_set(path: Path) -> bool:
    """Whether a file that may be wrong otherwise has the kill switch on; False where it is no YAML."""
    try:
        document = _document(path)
    except SettingsError:
        return False
    return isinstance(document, dict) and document.get("observeOnly") is True


def _document(path: Path) -> object:
    try:
        data = bounded.read(path, LARGEST + 1)
    except OSError as error:
        raise SettingsError(str(path), f"cannot be read: {error.strerror}; name a readable file") from None
    if len(data) > LARGEST:
        raise SettingsError(str(path), f"is larger than {LARGEST} bytes; a configuration is a few hundred")
    try:
        found = documents.load_all(data, values=MOST_VALUES, documents=1, loader=_Loader)
    except BadDocumentError as error:
        if not error.line:
            raise SettingsError(str(path), f"is not YAML ({error.why}); correct it") from None
        why = ", ".join(part for part in (error.context, error.why) if part)
        raise SettingsError(f"{path}:{error.line}", f"{why}; correct the YAML") from None
    return found[0] if found else None


def _why(error: SettingsError) -> str:
    return str(error).removeprefix(f"{error.key}: ") if error.key else str(error)
