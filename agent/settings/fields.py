"""What a setting is: how its value is read, with one sentence per error, how it is shown, what a schema says of it.

    Section      a mapping of settings: a frozen dataclass whose fields are made by `setting` and `required`
    Kind         of values: `text`, `whole`, `SWITCH`, `choice`, `listed`, `mapped`, `optional`, `section`, `checked`

Used by `agent.settings.model`, `values` and `parsing`. Reading ends at the first error: settings in the
order of the model, then what a section does not know, then what its settings cannot be together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from typing import Any, Generic, Self, TypeVar, cast

from agent.errors import SettingsError
from agent.model.likely import likely

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
S = TypeVar("S", bound="Section")
Place = tuple[str | int, ...]
"""Where in the document: keys, and numbers of entries."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of values.

    Attributes:
        read: makes the value of what the document holds at a place; raises SettingsError.
        schema: of what may be written, keys in alphabetical order.
        show: the value as a document would hold it.
        of: the choice or section that the schema refers to.
    """

    read: Callable[[object, Place], T]
    schema: Mapping[str, Any]
    show: Callable[[T], object] = lambda value: value
    of: type[Any] | None = None


@dataclass(frozen=True)
class Section:
    """Frozen, camelCase in the file, nothing unknown."""

    @classmethod
    def fields(cls) -> dict[str, Field[Any]]:
        """Key in the file -> field."""
        return {each.metadata["key"] or _camel(each.name): each for each in fields(cls)}

    @classmethod
    def read(cls, value: object, place: Place = ()) -> Self:
        """Read the section at a place; raises SettingsError. Making it raises ValueError where parts do not fit."""
        if not isinstance(value, Mapping):
            raise _wrong(place, value, "is not a mapping")
        known, found = cls.fields(), {}
        for key, each in known.items():
            if key in value:
                found[each.name] = each.metadata["kind"].read(value[key], (*place, key))
            elif each.default is each.default_factory:  # both are missing
                raise _error((*place, key), "is missing; add it")
        for key in value:
            if not isinstance(key, str):
                raise _wrong((*place, key), key, "is not possible")
            if key not in known:
                possible = f"possible are {', '.join(known)}"
                raise _error((*place, key), f"is not a setting here{nearest(key, known)}; {possible}")
        try:
            return cls(**found)
        except ValueError as error:
            raise _error(place, str(error)) from None

    def shown(self) -> dict[str, Any]:
        """All settings as the file would write them: read again they are the same."""
        return {key: each.metadata["kind"].show(getattr(self, each.name)) for key, each in self.fields().items()}


def setting(kind: Kind[T], about: str, default: T, *, key: str = "", **more: Any) -> T:  # noqa: ANN401 - JSON schema
    """Make a field of a section: its description, its key where that is not the name, what else the schema says."""
    made: Any = {"default_factory": dict} if default == {} else {"default": default}
    return cast("T", field(**made, metadata={"kind": kind, "about": about, "key": key, "more": more}))


def switch(about: str, *, on: bool) -> bool:
    """Make a field that is true or false, with its description and default."""
    return setting(SWITCH, about, on)


def required(kind: Kind[T], about: str) -> T:
    """Make a field that a file must set."""
    return cast("T", field(metadata={"kind": kind, "about": about, "key": "", "more": {}}))


def checked(check: Callable[[Any], T], show: Callable[[T], object], **schema: Any) -> Kind[T]:  # noqa: ANN401 - JSON
    """Values that a function makes; it raises ValueError with a sentence."""

    def read(value: object, place: Place) -> T:
        try:
            return check(value)
        except ValueError as error:
            raise _error(place, str(error)) from None

    return Kind(read, dict(sorted(schema.items())), show)


def text(form: str, about: str = "") -> Kind[str]:
    """Texts of a form, a regular expression."""

    def read(value: object, place: Place) -> str:
        if not isinstance(value, str):
            raise _wrong(place, value, "is not a text")
        if not re.fullmatch(form, value):
            raise _wrong(place, value, "has another form")
        return value

    return Kind(read, {**({"description": about} if about else {}), "pattern": f"^{form}$", "type": "string"})


def whole(least: int, most: int) -> Kind[int]:
    """Whole numbers from `least` to `most`."""

    def read(value: object, place: Place) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(place, value, "is not a whole number")
        if not least <= value <= most:
            raise _beyond(place, value, f"less than {least}" if value < least else f"more than {most}")
        return value

    return Kind(read, {"maximum": most, "minimum": least, "type": "integer"})


def _switch(value: object, place: Place) -> bool:
    if not isinstance(value, bool):
        raise _wrong(place, value, "is neither true nor false")
    return value


SWITCH = Kind(_switch, {"type": "boolean"})


def choice(kinds: type[E]) -> Kind[E]:
    """One of a few words."""

    def read(value: object, place: Place) -> E:
        if isinstance(value, str) and value in [*kinds]:
            return kinds(value)
        near = nearest(value, [*kinds]) if isinstance(value, str) else ""
        *first, last = (f"'{each}'" for each in kinds)
        raise _error(place, f"{told(value)} is not possible{near}; write {', '.join(first)} or {last}")

    return Kind(read, _reference(kinds), str, kinds)


def section(kind: type[S]) -> Kind[S]:
    """A section within another."""
    return Kind(kind.read, _reference(kind), kind.shown, kind)


def _reference(kind: type) -> dict[str, str]:
    return {"$ref": f"#/$defs/{kind.__name__}"}


def listed(kind: Kind[T], most: int) -> Kind[tuple[T, ...]]:
    """Lists of at most so many."""

    def read(value: object, place: Place) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            raise _wrong(place, value, "is not a list")
        if len(value) > most:
            raise _beyond(place, value, f"longer than {most}")
        return tuple(kind.read(each, (*place, number)) for number, each in enumerate(value))

    schema = {"items": kind.schema, "maxItems": most, "type": "array"}
    return Kind(read, schema, lambda found: [kind.show(each) for each in found], kind.of)


def mapped(name: Kind[str], kind: Kind[T], most: int = 0, **more: Any) -> Kind[dict[str, T]]:  # noqa: ANN401 - schema
    """Mappings, of at most so many where there is a bound."""

    def read(value: object, place: Place) -> dict[str, T]:
        if not isinstance(value, Mapping):
            raise _wrong(place, value, "is not a mapping")
        if most and len(value) > most:
            raise _beyond(place, value, f"longer than {most}")
        return {name.read(key, (*place, key)): kind.read(each, (*place, key)) for key, each in value.items()}

    return Kind(read, {**more, **({"maxProperties": most} if most else {}), "type": "object"}, dict)


def optional(kind: Kind[T]) -> Kind[T | None]:
    """Values that may be unset."""
    return Kind(
        lambda value, place: None if value is None else kind.read(value, place),
        {"anyOf": [kind.schema, {"type": "null"}]},
        lambda found: None if found is None else kind.show(found),
        kind.of,
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(each.capitalize() for each in rest)


def _error(place: Place, why: str) -> SettingsError:
    steps = (f".{step[:60]}" if isinstance(step, str) else f"[{step!s:.60}]" for step in place)
    return SettingsError("".join(steps).removeprefix("."), why)


def _wrong(place: Place, value: object, why: str) -> SettingsError:
    remedy = next((_EXAMPLES[step] for step in reversed(place) if step in _EXAMPLES), "write true or false")
    return _error(place, f"{told(value)} {why}; {remedy}")


def _beyond(place: Place, value: object, bound: str) -> SettingsError:
    return _error(place, f"{told(value)} is {bound}; write a value within the bounds")


_EXAMPLES: Mapping[str | int, str] = {
    "excludedNamespaces": "write namespaces, like [kube-system, monitoring]",
    "includedPods": "write patterns of namespace/name, like [kube-system/coredns-*]",
    "class": 'write up to six lower-case hex digits in quotes, like "02" for network controllers',
    "vendor": 'write four lower-case hex digits in quotes, like "8086"',
    "device": 'write four lower-case hex digits in quotes, like "1572"',
    "driver": "write the name of a kernel driver, like vfio-pci",
    "addresses": 'write PCI addresses in quotes, like ["0000:3b:00.0"]',
    "devices": 'write a list of selectors, like [{resource: numalign.io/nic, class: "02"}]',
    "reservedMemory": "write a list, like [{numaNode: 0, limits: {memory: 1Gi}}]",
    "featureGates": "write gates with true or false, like {PodLevelResources: true}",
    "numaNode": "write the number of a NUMA node, like 0",
    "perNamespace": "write a number of CPUs, like 8",
    "exclusiveCPUs": "write numbers of CPUs, like {perNamespace: 8, limits: {batch: 0}}",
    "waiting": "write a mapping, like {limit: 10m}",
    "refusals": "write a mapping, like {perOwnerPerHour: 5}",
}


def nearest(name: str, known: Iterable[str]) -> str:
    """The suggestion, or nothing: close by spelling, whatever the case."""
    meant = likely(name, known)
    return f" (did you mean {meant}?)" if meant else ""


def told(value: Any) -> str:  # noqa: ANN401 - whatever the file holds
    """Name what a file holds, in few letters."""
    if isinstance(value, str):
        return f'"{value[:40]}"'
    if isinstance(value, bool) or (isinstance(value, int | float) and abs(value) < 1 << 64):
        return str(value)
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
