"""Frozen values as a JSON-able mapping and back, by the types of their fields: for values that travel between agents.

What equals its field's default is left out, so that a reader of an older version understands a newer writer who does
not use what is new. It refuses what it does not know, and names it. Sets of CPUs and nodes are texts in the kernel's
list format, as in `agent.model.ledgerjson`. Nothing that is read is trusted: bounds are `agent.model.fields`'.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from agent.errors import MalformedError
from agent.model.fields import Field
from agent.model.idset import IdSet
from agent.model.podjson import MANY, ids

T = TypeVar("T")
_MOST = 2**80
_LONGEST = 4096
"""Characters of a text."""


def value_to_json(value: object) -> object:
    """A value as mappings, lists, texts, numbers and flags.

    Args:
        value: a dataclass of dataclasses, sets of ids, enumerations, tuples, mappings with texts or numbers as keys,
            frozen sets, texts, numbers, flags and None.
    """
    match value:
        case IdSet():
            found: object = str(value)
        case Enum():
            found = value.value
        case tuple():
            found = [value_to_json(each) for each in value]
        case frozenset():
            found = sorted(map(value_to_json, value), key=str)
        case Mapping():
            found = {str(key): value_to_json(each) for key, each in value.items()}
        case _ if is_dataclass(value):
            kind: Any = type(value)
            found = {
                each.name: value_to_json(part)
                for each in fields(value)
                if (part := getattr(value, each.name)) != _default(kind, each.name)
            }
        case _:
            found = value
    return found


def value_from_json(field: Field, kind: type[T]) -> T:
    """The value of a kind that `value_to_json` wrote; raises the field's fault, naming the path."""
    reader: Callable[[Field], object] = _reader(cast("Any", kind))
    return cast("T", reader(field))


@cache
def _default(kind: Any, name: str) -> object:  # noqa: ANN401 - a dataclass, which is no type for the checker
    found = next(each for each in fields(kind) if each.name == name)
    return found.default if found.default_factory is MISSING else found.default_factory()


@cache
def _reader(kind: Any) -> Callable[[Field], object]:  # noqa: ANN401 - a type, or a form of typing
    """What reads one kind of value."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is None:
        return _PLAIN.get(kind) or _named_reader(kind)
    if origin is tuple:
        return _tuple_reader(parts)
    if origin in (Union, types.UnionType):  # X | None
        inner = _reader(next(each for each in parts if each is not types.NoneType))
        return lambda field: inner(field) if field else None
    if origin is frozenset:
        inner = _reader(parts[0])
        return lambda field: frozenset(inner(each) for each in field.items(MANY))
    return _reader(parts[0]) if origin is Annotated else _mapping_reader(*parts)


def _named_reader(kind: type) -> Callable[[Field], object]:
    if issubclass(kind, IdSet):
        return lambda field: ids(field, kind)
    if issubclass(kind, Enum):
        return lambda field: _member(field, kind)
    return _dataclass_reader(kind)


def _tuple_reader(parts: tuple[Any, ...]) -> Callable[[Field], object]:
    readers = [_reader(each) for each in parts if each is not Ellipsis]
    if Ellipsis in parts:
        return lambda field: tuple(readers[0](each) for each in field.items(MANY))

    def read(field: Field) -> object:
        found = tuple(field.items(len(readers)))
        if len(found) != len(readers):
            raise field.wrong(f"must have {len(readers)} items, not {len(found)}")
        return tuple(inner(each) for inner, each in zip(readers, found, strict=True))

    return read


def _mapping_reader(key: type, inner: Any) -> Callable[[Field], object]:  # noqa: ANN401 - a type
    value = _reader(inner)

    def read(field: Field) -> object:
        return {(whole(field, name) if key is int else name): value(each) for name, each in field.members(MANY)}

    return read


def _dataclass_reader(kind: type) -> Callable[[Field], object]:
    hints = get_type_hints(kind, include_extras=True)
    readers = {each.name: _reader(hints[each.name]) for each in fields(kind) if each.init}
    needed = [name for name in readers if _default(kind, name) is MISSING]

    def read(field: Field) -> object:
        found = field.mapping()
        for name in found:
            if name not in readers:
                raise field.at(None, f".{name}").wrong("is not known to this version")
        for name in needed:
            if name not in found:
                raise field.at(None, f".{name}").wrong("is missing")
        try:
            return kind(**{name: readers[name](field.at(value, f".{name}")) for name, value in found.items()})
        except ValueError as error:  # what the value itself refuses, MalformedError too
            if isinstance(error, MalformedError):
                raise
            raise field.wrong(str(error)) from None

    return read


def _member(field: Field, kind: type[Enum]) -> Enum:
    try:
        return kind(field.value)
    except ValueError:
        known = ", ".join(str(each.value) for each in kind)
        raise field.wrong(f"is none of {known}; a newer version may know it") from None


def whole(field: Field, name: str) -> int:
    """The number that a key is; raises the field's fault where it is none."""
    if not name.isascii() or not name.isdigit() or len(name) > 20:  # noqa: PLR2004 - int() of thousands is slow
        raise field.wrong("has a key that is no number")
    return int(name)


def _float(field: Field) -> float:
    if isinstance(field.value, float) and math.isfinite(field.value):
        return field.value
    return float(field.integer(-_MOST, _MOST))


_PLAIN: Mapping[Any, Callable[[Field], object]] = {
    int: lambda field: field.integer(-_MOST, _MOST),
    float: _float,
    bool: Field.flag,
    str: lambda field: field.text(_LONGEST),
}
