"""Frozen values as a JSON-able mapping and back, by the types of their fields: for values that travel between agents.

What equals its field's default is left out, so that a reader of an older version understands a newer writer who does
not use what is new. It refuses what it does not know, and names it. Sets of CPUs and nodes are texts in the kernel's
list format, as in `agent.model.ledgerjson`. Nothing that is read is trusted: bounds are `agent.model.fields`'.

Thousands of such values are read at once: a path is made only for a fault, on its way up, and what is equal is read
once and shared, as far as the caller keeps a `Shared`.
"""

from __future__ import annotations

import marshal
import math
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from agent.errors import MalformedError
from agent.model.fields import SHOWN, Field
from agent.model.idset import IdSet
from agent.model.podjson import MANY, ids

T = TypeVar("T")
_MOST = 2**80
_LONGEST = 4096
"""Characters of a text."""
SMALL = 8
"""Members of a mapping that is worth to be shared."""


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


class Shared:
    """Values that were read before, by what was written: equal parts of many documents are one object in memory.

    Sets of ids, tuples of dataclasses and small mappings are shared, and must not be changed by anybody.

    Args:
        kinds: dataclasses that are shared as a whole, too.
    """

    MOST = 100_000
    """So many are kept; then it begins anew: whoever writes documents may write no two alike."""

    def __init__(self, *kinds: type) -> None:
        self.kinds = frozenset(kinds)
        self._known: dict[tuple[int, bytes], object] = {}

    def read(self, reader: Reader, value: object) -> object:
        """What a reader, which lives as long as the program, makes of a value of JSON."""
        # tells 1, 1.0 and true apart; from version 3 on the same values may be other bytes
        key = (id(reader), marshal.dumps(cast("Any", value), 2))
        if key not in self._known:
            if len(self._known) >= self.MOST:
                self._known.clear()
            self._known[key] = reader(value, self)
        return self._known[key]


Reader = Callable[[Any, Shared | None], object]


class _WrongError(MalformedError):
    """What is wrong with a part of the value; the path grows on the way up."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(why)
        self.path, self.why = path, why

    def within(self, step: str) -> Self:
        self.path = step + (self.path if self.path.startswith(("[", ".")) or not self.path else f".{self.path}")
        return self


def value_from_json(field: Field, kind: type[T], shared: Shared | None = None) -> T:
    """The value of a kind that `value_to_json` wrote; raises the field's fault, naming the path."""
    try:
        return cast("T", _reader(cast("Any", kind))(field.value, shared))
    except _WrongError as fault:
        raise field.at(None, fault.path).wrong(fault.why) from None


def _field(value: object) -> Field:
    """To say what is wrong with a value."""
    return Field(value, "", lambda path, why: _WrongError("" if path == "document" else path, why))


@cache
def _default(kind: Any, name: str) -> object:  # noqa: ANN401 - a dataclass, which is no type for the checker
    found = next(each for each in fields(kind) if each.name == name)
    return found.default if found.default_factory is MISSING else found.default_factory()


@cache
def _reader(kind: Any) -> Reader:  # noqa: ANN401 - a type, or a form of typing
    """What reads one kind of value."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is None:
        return _PLAIN.get(kind) or _named_reader(kind)
    if origin is tuple:
        return _tuple_reader(parts)
    if origin in (Union, types.UnionType):  # X | None
        inner = _reader(next(each for each in parts if each is not types.NoneType))
        return lambda value, shared: None if value is None else inner(value, shared)
    if origin is frozenset:
        items = _tuple_reader((parts[0], Ellipsis))
        return lambda value, shared: frozenset(cast("tuple[object, ...]", items(value, shared)))
    return _reader(parts[0]) if origin is Annotated else _mapping_reader(*parts)


def _named_reader(kind: type) -> Reader:
    if issubclass(kind, IdSet):
        return _ids_reader(kind)
    if issubclass(kind, Enum):
        return _member_reader(kind)
    return _dataclass_reader(kind)


def _tuple_reader(parts: tuple[Any, ...]) -> Reader:
    readers = [_reader(each) for each in parts if each is not Ellipsis]
    if Ellipsis not in parts:
        return _pair_reader(readers)
    inner = readers[0]

    def read(value: Any, shared: Shared | None) -> object:  # noqa: ANN401 - JSON
        items, found = _listed(value, MANY), list[object]()
        try:
            for each in items:
                found.append(inner(each, shared))
        except _WrongError as fault:
            raise fault.within(f"[{len(found)}]") from None
        return tuple(found)

    if not is_dataclass(parts[0]):
        return read
    return lambda value, shared: read(value, None) if shared is None else shared.read(read, value)


def _pair_reader(readers: list[Reader]) -> Reader:
    def read(value: Any, shared: Shared | None) -> object:  # noqa: ANN401 - JSON
        items = _listed(value, len(readers))
        if len(items) != len(readers):
            raise _field(value).wrong(f"must have {len(readers)} items, not {len(items)}")
        found = list[object]()
        try:
            for inner, each in zip(readers, items, strict=True):
                found.append(inner(each, shared))
        except _WrongError as fault:
            raise fault.within(f"[{len(found)}]") from None
        return tuple(found)

    return read


def _listed(value: Any, most: int) -> list[Any]:  # noqa: ANN401 - JSON
    return value if type(value) is list and len(value) <= most else [each.value for each in _field(value).items(most)]


def _mapping_reader(key: type, inner: Any) -> Reader:  # noqa: ANN401 - a type
    reader, numbers = _reader(inner), key is int

    def read(value: Any, shared: Shared | None) -> object:  # noqa: ANN401 - JSON
        if type(value) is not dict or len(value) > MANY:
            value = {name: each.value for name, each in _field(value).members(MANY)}
        found, name = dict[Any, object](), ""
        try:
            for name, each in value.items():
                found[whole(_field(value), name) if numbers else name] = reader(each, shared)
        except _WrongError as fault:
            raise fault.within(f".{name[:SHOWN]}") from None
        return found

    def small_or_parts(value: Any, shared: Shared | None) -> object:  # noqa: ANN401 - JSON
        small = shared is not None and type(value) is dict and len(value) <= SMALL
        return shared.read(read, value) if shared and small else read(value, shared)

    return small_or_parts


def _dataclass_reader(kind: type) -> Reader:
    hints = get_type_hints(kind, include_extras=True)
    readers = {each.name: _reader(hints[each.name]) for each in fields(kind) if each.init}
    needed = dict.fromkeys(name for name in readers if _default(kind, name) is MISSING).keys()
    empty = {name: _default(kind, name) for name in readers if name not in needed}

    def read(value: Any, shared: Shared | None) -> object:  # noqa: ANN401 - JSON
        if type(value) is not dict:
            value = _field(value).mapping()
        if not (value.keys() <= readers.keys() and value.keys() >= needed):
            raise _names_wrong(value, readers, needed)
        found, name = dict(empty) if shared else dict[str, object](), ""
        try:
            for name, each in value.items():
                found[name] = readers[name](each, shared)
        except _WrongError as fault:
            raise fault.within(f".{name}") from None
        try:
            return kind(**found)
        except ValueError as error:  # what the value itself refuses, MalformedError too
            raise _field(value).wrong(str(error)) from None

    def whole_or_parts(value: Any, shared: Shared | None) -> object:  # noqa: ANN401 - JSON
        return read(value, shared) if shared is None or kind not in shared.kinds else shared.read(read, value)

    return whole_or_parts


def _names_wrong(value: Any, readers: Mapping[str, Reader], needed: Iterable[str]) -> MalformedError:  # noqa: ANN401 - JSON
    unknown = next((name for name in value if name not in readers), None)
    if unknown is not None:
        return _field(value).at(None, f".{unknown}").wrong("is not known to this version")
    missing = next(name for name in needed if name not in value)
    return _field(value).at(None, f".{missing}").wrong("is missing")


def _ids_reader(kind: type[IdSet]) -> Reader:
    def read(value: Any, _shared: Shared | None) -> object:  # noqa: ANN401 - JSON
        return ids(_field(value), kind)

    return lambda value, shared: read(value, None) if shared is None else shared.read(read, value)


def _member_reader(kind: type[Enum]) -> Reader:
    members = {each.value: each for each in kind}

    def read(value: Any, _shared: Shared | None) -> object:  # noqa: ANN401 - JSON
        try:
            return members[value]
        except (KeyError, TypeError):
            known = ", ".join(map(str, members))
            raise _field(value).wrong(f"is not one of {known}; a newer version may know it") from None

    return read


def whole(field: Field, name: str) -> int:
    """The number that a key is; raises the field's fault where it is none."""
    if not name.isascii() or not name.isdigit() or len(name) > 20:  # noqa: PLR2004 - int() of thousands is slow
        raise field.wrong("has a key that is no number")
    return int(name)


def _integer(value: Any, _shared: Shared | None) -> int:  # noqa: ANN401 - JSON
    return value if type(value) is int and -_MOST <= value <= _MOST else _field(value).integer(-_MOST, _MOST)


def _float(value: Any, shared: Shared | None) -> float:  # noqa: ANN401 - JSON
    return value if type(value) is float and math.isfinite(value) else float(_integer(value, shared))


def _flag(value: Any, _shared: Shared | None) -> bool:  # noqa: ANN401 - JSON
    return _field(value).flag()


def _text(value: Any, _shared: Shared | None) -> str:  # noqa: ANN401 - JSON
    return value if type(value) is str and len(value) <= _LONGEST else _field(value).text(_LONGEST)


_PLAIN: Mapping[Any, Reader] = {int: _integer, float: _float, bool: _flag, str: _text}
