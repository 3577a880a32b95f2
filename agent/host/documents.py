"""YAML that somebody else wrote: the one loader of all that is read, with bounds that are checked first.

A few hundred bytes can ask for more than a machine has: anchors that double (aliases and merge keys), nesting that
overruns the parser's stack, numbers whose digits take minutes. So the parser's events, which cost no more than the
text is long, are counted first; only a text that keeps the bounds is made into values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from agent.errors import BadDocumentError

DEPTH = 64
"""Levels of nesting; a pod has about ten."""
LONGEST_NUMBER = 300
"""Characters of a number."""

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""YAML's safe kinds; may be given constructors of its own in a subclass."""

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def load_all(text: str | bytes, *, values: int, documents: int, loader: Any = Loader) -> list[Any]:  # noqa: ANN401 - a class without types
    """The documents of a text.

    Args:
        text: YAML, as much of it as the caller reads.
        values: how many there may be in all, with every alias and merge key counted for all that it stands for.
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
        raise BadDocumentError(error.problem or "cannot be parsed", line, error.context or "") from None
    except BadDocumentError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        why = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise BadDocumentError(why) from None


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
