"""Puts a change into functions of modules that are imported already, where that comes to the same as importing anew.

It does where nothing but bodies of functions changed, and none of these had run before: then nothing that was made at
import or while the tests were collected can come from what the change is about.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType

Place = tuple[str, str, int]
"""File, qualified name and first line of a function's code."""
_ABOUT = (
    "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_flags", "co_argcount",
    "co_posonlyargcount", "co_kwonlyargcount", "co_exceptiontable",
)  # fmt: skip
"""All that a code does, without where its lines are: a change may move those behind it."""


class ElsewhereError(Exception):
    """More changed than bodies of functions."""


@dataclass(frozen=True)
class Changed:
    """A function's code as it is, and with the change."""

    old: CodeType
    new: CodeType


def changed(path: str, old: bytes, new: bytes) -> list[Changed]:
    """The outermost functions whose body a change of a file is in.

    Raises:
        ElsewhereError: it changes what runs at import, too.
    """
    before, after = (compile(text, path, "exec", dont_inherit=True) for text in (old, new))
    return list(_changed(before, after))


def live(folder: str) -> dict[Place, list[FunctionType]]:
    """Every function of files below a folder, by its code's place."""
    found: dict[Place, list[FunctionType]] = {}
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename.startswith(folder):
            found.setdefault(_place(each.__code__), []).append(each)
    return found


def fits(
    changes: Iterable[Changed], functions: Mapping[Place, Collection[FunctionType]], ran: Collection[int]
) -> bool:
    """Whether changes of one file can be put into its living functions, no line of which is among those that ran."""
    return all(
        functions.get(_place(each.old))
        and _lines(each.old).isdisjoint(ran)
        and each.old.co_freevars == each.new.co_freevars
        for each in changes
    )


def put(changes: Iterable[Changed], functions: Mapping[Place, Collection[FunctionType]]) -> None:
    """Put them in."""
    for each in changes:
        for function in functions[_place(each.old)]:
            function.__code__ = each.new


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _nested(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _lines(code: CodeType) -> set[int]:
    """Those of its body, with all functions in it; that of `def` runs at import: none, unless all is there."""
    found = set[int]()
    for start, _, line in code.co_lines():
        if start and line is not None:
            found.add(line)
    found -= {code.co_firstlineno} if len(found) > 1 else set()
    return found.union(*map(_lines, _nested(code)))


def _changed(old: CodeType, new: CodeType) -> Iterator[Changed]:
    """Of two codes that run at import: a module's, or a class's."""
    if not _alike(old, new):
        raise ElsewhereError
    for before, after in zip(_nested(old), _nested(new), strict=True):
        if before.co_flags & inspect.CO_NEWLOCALS and before.co_name.isidentifier():
            if not _same(before, after):
                yield Changed(before, after)
        elif before.co_flags & inspect.CO_NEWLOCALS:  # a comprehension or a lambda
            if not _same(before, after):
                raise ElsewhereError
        else:
            yield from _changed(before, after)


def _alike(one: CodeType, other: CodeType) -> bool:
    """Whether they are the same but for the functions and classes in them."""
    return (
        all(getattr(one, each) == getattr(other, each) for each in _ABOUT)
        and one.co_qualname == other.co_qualname
        and len(one.co_consts) == len(other.co_consts)
        and all(
            isinstance(first, CodeType)
            if isinstance(second, CodeType)
            else type(first) is type(second) and repr(first) == repr(second)
            for first, second in zip(one.co_consts, other.co_consts, strict=True)
        )
    )


def _same(one: CodeType, other: CodeType) -> bool:
    return _alike(one, other) and all(map(_same, _nested(one), _nested(other)))
