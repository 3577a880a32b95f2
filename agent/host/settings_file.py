"""The configuration file: read, and refused with file, line and remedy where it is no YAML.

Used by `numalign config check` and by `numalign run`, at start and whenever the file changes; what the documents mean
is for `agent.settings`. YAML is read as the kubelet reads it (sigs.k8s.io/yaml, YAML 1.1), where that has an effect
on a setting: 1:30 is no number, 010 and 0o10 are octal, 1e3 is a number, a date is a text.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Hashable, Iterator, Mapping
from email import message_from_bytes
from pathlib import Path
from typing import Any

import yaml

from agent.errors import BadDocumentError, SettingsError
from agent.host import bounded, documents
from agent.model.rules import Compatibility
from agent.settings import Settings
from agent.settings.parsing import Reading, read_documents
from agent.settings.wrapped import find, here_documents
from agent.settings.wrapped.flags import holds_flags

LARGEST = 1 << 20
"""A ConfigMap cannot be larger either."""
MOST_VALUES = 20_000
MOST_DOCUMENTS = 100
MOST_TEXTS = 100
"""Texts in documents that are read as documents."""
_TERRAFORM = re.compile(rb"kubelet_config\s*(?:=\s*)?\{")
_MERGE = "tag:yaml.org,2002:merge"
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"


class _Loader(documents.Loader):  # type: ignore[misc]  # the library has no types for its C part
    """YAML's safe kinds, and no key twice: the second would win in silence."""

    merges_in_place = False
    """A merge key ("<<") after a key overrides it, as for the kubelet; in YAML the mapping's own key wins."""


class _KubeletLoader(_Loader):
    merges_in_place = True


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f'"{key.value[:60]}" is there twice; remove one', problem_mark=key.start_mark
                )
            seen.add(key.value)
    if loader.merges_in_place:
        node.value = list(_in_place(node))
    loader.flatten_mapping(node)
    found: dict[Hashable, Any] = loader.construct_mapping(node, deep=True)
    return found


def _in_place(node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """The pairs of a mapping with those of its merge keys where these stand; of equal keys the last counts."""
    for key, value in node.value:
        if key.tag != _MERGE:
            yield key, value
        elif isinstance(value, yaml.MappingNode):
            yield from _in_place(value)
        elif isinstance(value, yaml.SequenceNode) and all(isinstance(each, yaml.MappingNode) for each in value.value):
            for each in reversed(value.value):
                yield from _in_place(each)
        else:
            yield key, value  # the library says what is wrong with it


def _number(loader: _Loader, node: yaml.ScalarNode) -> object:
    text = str(node.value)
    if ":" in text:  # sixties, as YAML 1.1 has them and Go has not
        return text
    digits = text.lstrip("+-").replace("_", "")
    sign = -1 if text.startswith("-") else 1
    if re.fullmatch(r"0o?[0-7]+", digits):
        return sign * int(digits.replace("o", ""), 8)
    if re.fullmatch(r"0[0-9]+", digits):
        return sign * int(digits)
    return loader.construct_yaml_int(node) if node.tag == _INT else loader.construct_yaml_float(node)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_constructor(_INT, _number)
_Loader.add_constructor(_FLOAT, _number)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node))
_Loader.add_implicit_resolver(_INT, re.compile(r"[-+]?0(?:o[0-7_]+|[0-9_]+)$"), list("-+0"))
_Loader.add_implicit_resolver(_FLOAT, re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789"))


def read_settings(path: Path) -> tuple[Settings, tuple[str, ...]]:
    """The settings that a file holds, and sentences on what is ignored and what it means.

    Raises:
        SettingsError: it cannot be read, is no YAML, or says something impossible; the text starts with the file.
    """
    found = read_file(path)
    return found.settings, found.sentences


def read_file(path: Path) -> Reading:
    """What a file says; see `read_settings`."""
    try:
        data = bounded.read(path, LARGEST + 1)
    except OSError as error:
        raise SettingsError(str(path), f"cannot be read: {error.strerror}; name a readable file") from None
    return read_text(data, str(path))


def read_text(data: bytes, name: str) -> Reading:
    """What a text says that comes from elsewhere.

    Args:
        data: YAML or JSON; what is longer than `LARGEST` is refused.
        name: where it comes from; errors begin with it.

    Raises:
        SettingsError: see `read_settings`.
    """
    try:
        found = _reading(data, name, _Loader)
        if found.settings.compatibility.mode is Compatibility.KUBELET and b"<<" in data:
            found = _reading(data, name, _KubeletLoader)
    except SettingsError as error:
        if error.key.startswith(name):
            raise
        raise SettingsError(f"{name}: {error.key}" if error.key else name, _why(error)) from None
    return found


def as_yaml(document: Mapping[str, object]) -> str:
    """A document as a file has it, in the order of its keys."""
    return str(yaml.safe_dump(document, sort_keys=False, width=110))


def observe_only_set(path: Path) -> bool:
    """Whether a file that may be wrong otherwise has the kill switch on; False where it is no YAML."""
    try:
        documents = _documents(bounded.read(path, LARGEST + 1), str(path), _Loader)
        found = find(documents, _Inner(_Loader)).body
    except (OSError, SettingsError):
        return False
    return isinstance(found, dict) and found.get("observeOnly") is True


def _reading(data: bytes, name: str, loader: type[_Loader]) -> Reading:
    return read_documents(_documents(data, name, loader), _Inner(loader))


class _Inner:
    """Reads the documents of texts that stand in documents; none where a text is of no known form.

    A text may hold another that holds another: how many are read, and how much of them, has bounds.
    """

    def __init__(self, loader: type[_Loader]) -> None:
        self._loader = loader
        self._texts, self._bytes = MOST_TEXTS, 2 * LARGEST

    def __call__(self, text: str) -> list[object]:
        data = text.encode("utf-8", "replace")
        self._texts -= 1
        self._bytes -= len(data)
        if self._texts < 0 or self._bytes < 0:
            return []
        with contextlib.suppress(SettingsError):  # a text of another kind configures nothing
            return _documents(data, "", self._loader)
        return []


def _documents(data: bytes, name: str, loader: type[_Loader]) -> list[object]:
    """The documents of YAML, JSON, TOML or a mail of several parts; of a command line the text itself.

    Raises:
        SettingsError: it is none; the key is the name, with a line where one is known.
    """
    if len(data) > LARGEST:
        raise SettingsError(name, f"is larger than {LARGEST} bytes; a configuration is a few hundred")
    if data.lstrip()[:14].lower().startswith((b"mime-version:", b"content-type: ")):
        inner = _Inner(loader)
        read = (found for part in _parts_of_mail(data) for found in inner(part))
        return [each for each in read if isinstance(each, dict) or (isinstance(each, str) and holds_flags(each))]
    if data.startswith(b"#!") and (inner_texts := here_documents(text := data.decode("utf-8", "replace"))):
        return [{"here-document": inner_texts}, *([text] if holds_flags(text) else [])]
    try:
        found = documents.load_all(data, values=MOST_VALUES, documents=MOST_DOCUMENTS, loader=loader)
    except BadDocumentError as error:
        other = _of_another_form(data)
        if other is not None:
            return [other]
        _refuse_terraform(data, name)
        if not error.line:
            raise SettingsError(name, f"is not YAML ({error.why}); correct it") from None
        why = ", ".join(part for part in (error.context, error.why) if part)
        raise SettingsError(f"{name}:{error.line}", f"{why}; correct the YAML") from None
    if len(found) == 1 and isinstance(found[0], str):  # a command line is a text to YAML, too, but in one line
        _refuse_terraform(data, name)
        return [_of_another_form(data) or found[0]]
    return found


def _refuse_terraform(data: bytes, name: str) -> None:
    if _TERRAFORM.search(data):
        raise SettingsError(
            name, "is Terraform's; write its kubelet_config as YAML: cpuManagerPolicy for cpu_manager_policy, "
            "topologyManagerPolicy for topology_manager_policy"
        )  # fmt: skip


def _of_another_form(data: bytes) -> object:
    """TOML, or a text with flags; None where it is neither."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(RecursionError, ValueError):  # it is no TOML
        found = tomllib.loads(text)
        if any(isinstance(each, dict) for each in found.values()):
            return found
    return text if holds_flags(text) else None


def _parts_of_mail(data: bytes) -> list[str]:
    """The texts of user data that is a MIME archive, as cloud-init takes it."""
    with contextlib.suppress(RecursionError):  # nested so deep only on purpose
        bodies = [part.get_payload(decode=True) for part in message_from_bytes(data).walk()]
        return [body.decode("utf-8", "replace") for body in bodies if isinstance(body, bytes)]
    return []


def _why(error: SettingsError) -> str:
    return str(error).removeprefix(f"{error.key}: ") if error.key else str(error)
