"""Frozen values as JSON and back, by the types of their fields: the one codec of all that is saved or published.

A `Form` says how: what a summary and the state file have (`PLAIN`), and what the saved ledger has
(`agent.model.ledgerjson`). Sets of CPUs and nodes are texts in the kernel's list format. In a plain form what equals
its field's default is left out, so that an older reader understands a newer writer that does not use what is new. A
reader refuses what it does not know, and names it. Nothing that is read is trusted: bounds are
`agent.model.fields`'.

Thousands of such values are read at once: readers and writers are made once for each type, a path is made only for a
fault, on its way up, and what is equal is read once and shared, as far as the caller keeps a `Shared`.
"""

from __future__ import annotations

import json
import marshal
import math
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from agent.errors import MalformedError
from agent.model.fields import SHOWN, Field, show
from agent.model.idset import IdSet
from agent.model.pod import UNSAVED

T = TypeVar("T")
MANY = 1_000_000
"""Entries in one mapping or list that are read: beyond any node, below what exhausts memory."""
_MOST = 2**80  # bytes or thousandths: above the cap of quantities, times containers
SMALL = 8
"""Members of a mapping that is worth to be shared."""


@dataclass(frozen=True, eq=False)
class Form:
    """How dataclasses stand in JSON. Compared by identity: readers and writers are kept for each.

    Attributes:
        rows: dataclasses that are lists of their fields' values; defaults at the end are left out.
        absent: dataclass -> its fields that stand elsewhere, with what a reader fills in.
        complete: every field is written, and must be there; otherwise those that differ from their default.
        longest: characters of a text that is read.
    """

    rows: frozenset[type] = frozenset()
    absent: Mapping[type, Mapping[str, object]] = field(default_factory=dict)
    complete: bool = False
    longest: int = 4096

    def names(self, kind: Any) -> list[str]:  # noqa: ANN401 - a dataclass, which is no type for the checker
        """The fields of a dataclass that are written."""
        absent = self.absent.get(kind, {})
        return [each.name for each in fields(kind) if each.metadata != UNSAVED and each.name not in absent]

    def encoded(self, value: object) -> object:
        """One level of a value that JSON does not know, for `json.dumps(default=)`; raises TypeError."""
        return _writer(cast("Any", type(value)), self)(value)


PLAIN = Form()
"""What agents publish."""
SAVED = Form(longest=MANY)
"""What an agent saves for itself."""


def value_to_json(value: object, form: Form = PLAIN) -> Any:  # noqa: ANN401 - JSON
    """A value as mappings, lists, texts, numbers and flags.

    Args:
        value: a dataclass of dataclasses, sets of ids, enumerations, tuples, mappings with texts or numbers as keys,
            frozen sets, texts, numbers, flags and None.
        form: how its dataclasses stand there.
    """
    return json.loads(json.dumps(value, default=form.encoded))


@cache
def _writer(kind: Any, form: Form) -> Callable[[Any], object]:  # noqa: ANN401 - a type
    if issubclass(kind, IdSet | Enum):
        return str if issubclass(kind, IdSet) else attrgetter("value")
    if issubclass(kind, frozenset):
        return lambda value: sorted(value, key=str)
    return _dataclass_writer(kind, form) if is_dataclass(kind) else dict  # another mapping; a TypeError for all else


def _dataclass_writer(kind: Any, form: Form) -> Callable[[Any], object]:  # noqa: ANN401 - a dataclass
    names = form.names(kind)
    values = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
    if kind in form.rows:
        spare = [_default(kind, name) for name in names]

        def row(value: Any) -> object:  # noqa: ANN401 - a value of the kind
            found = [*values(value)]
            while found and found[-1] == spare[len(found) - 1]:
                found.pop()
            return found

        return row
    if form.complete:
        return lambda value: dict(zip(names, values(value), strict=True))
    defaults = [(name, _default(kind, name)) for name in names]
    return lambda value: {
        name: part for (name, default), part in zip(defaults, values(value), strict=True) if part != default
    }


class Shared:
    """Values that were read before, by what was written: equal parts of many documents are one object in memory.

    Sets of ids, tuples of dataclasses and small mappings are shared, and must not be changed by anybody.

    Args:
        kinds: dataclasses that are shared as a whole, too.
    """

    MOST = 100_000
    """So many are kept; then the cache starts empty: the documents of a hostile writer may all differ."""

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


def value_from_json(field: Field, kind: type[T], shared: Shared | None = None, form: Form = PLAIN) -> T:
    """The value of a kind that `value_to_json` wrote; raises the field's fault, naming the path."""
    try:
        return cast("T", _reader(cast("Any", kind), form)(field.value, shared))
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
def _reader(kind: Any, form: Form) -> Reader:  # noqa: ANN401 - a type, or a form of typing
    """What reads one kind of value."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is None:
        return _SIMPLE.get(kind) or _named_reader(kind, form)
    if origin is tuple:
        return _tuple_reader(parts, form)
    if origin in (Union, types.UnionType):  # X | None
        inner = _reader(next(each for each in parts if each is not types.NoneType), form)
        return lambda value, shared: None if value is None else inner(value, shared)
    if origin is frozenset:
        items = _tuple_reader((parts[0], Ellipsis), form)
        return lambda value, shared: frozenset(cast("tuple[object, ...]", items(value, shared)))
    return _reader(parts[0], form) if origin is Annotated else _mapping_reader(parts[0], _reader(parts[1], form))


def _named_reader(kind: type, form: Form) -> Reader:
    if kind is str:
        return _text_reader(form.longest)
    if issubclass(kind, IdSet):
        return _ids_reader(kind)
    if issubclass(kind, Enum):
        return _member_reader(kind)
    return _row_reader(kind, form) if kind in form.rows else _dataclass_reader(kind, form)


def _tuple_reader(parts: tuple[Any, ...], form: Form) -> Reader:
    readers = [_reader(each, form) for each in parts if each is not Ellipsis]
    if Ellipsis not in parts:
        return _pair_reader(readers, len(readers))
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


def _pair_reader(readers: list[Reader], least: int) -> Callable[[Any, Shared | None], tuple[Any, ...]]:
    def read(value: Any, shared: Shared | None) -> tuple[Any, ...]:  # noqa: ANN401 - JSON
        items = _listed(value, len(readers))
        if len(items) < least:
            raise _field(value).wrong(f"must have {least} items, not {len(items)}")
        found = list[object]()
        try:
            for inner, each in zip(readers, items, strict=False):
                found.append(inner(each, shared))
        except _WrongError as fault:
            raise fault.within(f"[{len(found)}]") from None
        return tuple(found)

    return read


def _row_reader(kind: type, form: Form) -> Reader:
    hints, names = get_type_hints(kind, include_extras=True), form.names(kind)
    least = sum(_default(kind, name) is MISSING for name in names)
    row = _pair_reader([_reader(hints[name], form) for name in names], least)
    return lambda value, shared: kind(*row(value, shared))


def _listed(value: Any, most: int) -> list[Any]:  # noqa: ANN401 - JSON
    return value if type(value) is list and len(value) <= most else [each.value for each in _field(value).items(most)]


def _mapping_reader(key: type, reader: Reader) -> Reader:
    numbers = key is int

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


def _dataclass_reader(kind: type, form: Form) -> Reader:
    hints, absent = get_type_hints(kind, include_extras=True), form.absent.get(kind, {})
    readers = {name: _reader(hints[name], form) for name in form.names(kind)}
    needed = dict.fromkeys(name for name in readers if form.complete or _default(kind, name) is MISSING).keys()
    empty = {**absent, **{name: _default(kind, name) for name in readers if name not in needed}}

    def read(value: Any, shared: Shared | None) -> object:  # noqa: ANN401 - JSON
        if type(value) is not dict:
            value = _field(value).mapping()
        if not (value.keys() <= readers.keys() and value.keys() >= needed):
            raise _names_wrong(value, readers, needed)
        found, name = dict(empty if shared else absent), ""
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
        return _field(value).at(None, f".{unknown[:SHOWN]}").wrong("is not known to this version")
    missing = next(name for name in needed if name not in value)
    return _field(value).at(None, f".{missing}").wrong("is missing")


def _ids_reader(kind: type[IdSet]) -> Reader:
    def read(value: Any, _shared: Shared | None) -> object:  # noqa: ANN401 - JSON
        text = value if type(value) is str and len(value) <= MANY else _field(value).text(MANY)
        try:
            return kind.parse(text)
        except MalformedError as error:
            raise _field(value).wrong(str(error)) from None

    return lambda value, shared: read(value, None) if shared is None else shared.read(read, value)


def _member_reader(kind: type[Enum]) -> Reader:
    members = {each.value: each for each in kind}

    def read(value: Any, _shared: Shared | None) -> object:  # noqa: ANN401 - JSON
        try:
            return members[value]
        except (KeyError, TypeError):
            known = ", ".join(map(str, members))
            raise _field(value).wrong(f"{show(value)} is not one of {known}; a newer version may know it") from None

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
    return value if value is True or value is False else _field(value).flag()


def _text_reader(longest: int) -> Reader:
    def read(value: Any, _shared: Shared | None) -> str:  # noqa: ANN401 - JSON
        return value if type(value) is str and len(value) <= longest else _field(value).text(longest)

    return read


def _any(value: Any, _shared: Shared | None) -> object:  # noqa: ANN401 - JSON
    return value


_SIMPLE: Mapping[Any, Reader] = {int: _integer, float: _float, bool: _flag, object: _any}
