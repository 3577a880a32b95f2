"""The one loader of all YAML and JSON that is read: untrusted input, with bounds that are checked first.

A few hundred bytes can ask for more than a machine has: anchors that double (aliases and merge keys), nesting that
overruns the parser's stack, numbers whose digits take minutes. So the parser's events, which cost no more than the
text is long, are counted first; only a text that keeps the bounds is made into values.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from agent.errors import BadDocumentError
from agent.model.fields import plain

DEPTH = 64
"""Levels of nesting; a pod has about ten."""
LARGEST_BY_HAND = 1 << 20
"""Characters of a JSON text."""
LONGEST_NUMBER = 300
"""Characters of a number."""

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""YAML's safe kinds; may be given constructors of its own in a subclass."""

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def load_all(text: str | bytes, *, values: int, documents: int, loader: Any = Loader) -> list[Any]:  # noqa: ANN401 - a class without types
    """The documents of a text.

    Args:
        text: YAML, as much of it as the caller reads.
        values: how many there may be in all, with every alias and merge key counted as all that it means.
        documents: how many there may be.
        loader: `Loader`, or a subclass of it.

    Raises:
        BadDocumentError: it is no YAML, or more than that.
    """
    try:
        _check(text, values, documents)
        return list(yaml.load_all(text, loader))
    except yaml.MarkedYAMLError as error:
        last = len(text.splitlines())  # libyaml's mark for the end is the line after it
        line = min(error.problem_mark.line + 1, last) if error.problem_mark else 0
        why = "a tab is here; indent with spaces" if _begins_with_tab(text, line) else error.problem
        raise BadDocumentError(why or "cannot be parsed", line, error.context or "") from None
    except BadDocumentError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        why = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise BadDocumentError(why) from None


def noting(twice: list[str]) -> Any:  # noqa: ANN401 - a class without types
    """A loader that notes every key that a mapping has twice; as in kubectl and in JSON, the last one counts."""

    class Noting(Loader):  # type: ignore[misc]  # as above
        pass

    def mapping(made: Noting, node: yaml.MappingNode) -> dict[Any, Any]:
        seen = set[str]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                twice.append(
                    f'"{plain(key.value[:60])}" is there twice, again in line {key.start_mark.line + 1}; {_LAST}'
                )
            seen.add(key.value)
        made.flatten_mapping(node)
        found: dict[Any, Any] = made.construct_mapping(node, deep=True)
        return found

    Noting.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    return Noting


_BLANKS = re.compile(r"[ \t\r\n]*")
_LAST = "the last one counts, remove the other"


def load_json(text: str, twice: list[str]) -> list[Any]:
    """The values of a JSON text: one, or several one after the other, as a stream of objects has them.

    Args:
        text: JSON.
        twice: gets a sentence for every key that an object has twice, unless the text is too large to be written by
            hand: programs write no key twice.

    Raises:
        ValueError, RecursionError: it is none.
    """

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(members)
        if len(found) < len(members):
            names = [name for name, _ in members]
            twice.extend(f'"{plain(name[:60])}" is there twice; {_LAST}' for name in found if names.count(name) > 1)
        return found

    hook = pairs if len(text) <= LARGEST_BY_HAND else None
    decoder, found = json.JSONDecoder(object_pairs_hook=hook), list[Any]()
    at = _blanks(text, 0)
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        found.append(value)
        at = _blanks(text, at)
    if not found:
        raise ValueError("it is empty")
    return found


def _blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def parts_of(text: str) -> list[tuple[int, str]]:
    """The documents of a YAML text, unread: (lines before it, text); a line that begins with --- begins the next."""
    found = [(0, list[str]())]
    for number, line in enumerate(text.splitlines(keepends=True)):
        if line[:3] == "---" and line[3:4] in ("", " ", "\t", "\r", "\n"):
            found.append((number, []))
        found[-1][1].append(line)
    return [(number, "".join(lines)) for number, lines in found if lines]


def _begins_with_tab(text: str | bytes, line: int) -> bool:
    """Whether a line is indented with a tab."""
    lines = text.splitlines()
    found = lines[line - 1] if 0 < line <= len(lines) else ""
    word = found.decode("utf-8", "replace") if isinstance(found, bytes) else found
    return "\t" in word[: len(word) - len(word.lstrip())]


def _check(text: str | bytes, values: int, documents: int) -> None:
    """Count what a text would become. Raises BadDocumentError, and what the parser raises."""
    counted, started = _Counted(), 0
    for event in yaml.parse(text, Loader):
        if isinstance(event, yaml.DocumentStartEvent):
            started += 1
            counted.sizes.clear()
        why = counted.odd(event)
        if len(counted.above) > DEPTH:
            why = f"nested deeper than {DEPTH} levels"
        elif counted.values > values:
            why = f"holds more than {values} values, aliases and merge keys counted"
        elif started > documents:
            why = f"holds more than {documents} documents" if documents > 1 else "expected a single document"
        if why:
            raise BadDocumentError(why, event.start_mark.line + 1 if event.start_mark else 0)


@dataclass
class _Counted:
    """How many values there are so far; `above`: what is open, with its anchor and the count at its start."""

    values: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    above: list[tuple[str | None, int]] = field(default_factory=list)

    def odd(self, event: yaml.Event) -> str:
        """Count an event; what is wrong with it by itself, "" for nothing."""
        if isinstance(event, yaml.AliasEvent):
            name = event.anchor or ""
            self.values += self.sizes.get(name, 1)
            if any(anchor == name for anchor, _ in self.above):
                return f"*{name[:60]} stands for what it is part of"
        elif isinstance(event, yaml.CollectionStartEvent):
            self.values += 1
            self.above.append((event.anchor, self.values))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = self.above.pop()
            if anchor:
                self.sizes[anchor] = self.values - before + 1
        elif isinstance(event, yaml.ScalarEvent):
            self.values += 1
            if event.anchor:
                self.sizes[event.anchor] = 1
            if len(event.value) > LONGEST_NUMBER and _is_number(event):
                return f"a number of more than {LONGEST_NUMBER} characters"
        return ""


def _is_number(event: yaml.ScalarEvent) -> bool:
    if event.tag:
        return event.tag in _NUMBERS
    kinds = yaml.SafeLoader.yaml_implicit_resolvers.get(event.value[0], ()) if event.implicit[0] else ()
    return any(tag in _NUMBERS and pattern.match(event.value) for tag, pattern in kinds)
