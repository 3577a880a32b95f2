"""Standard output of the command line: a fault of it is a fault of ours, and ends in one sentence.

click and rich answer a pipe without a reader with exit code 1, which here means "the answer is no". So the fault is
raised below them, as an exception that neither of them knows.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent.errors import HostError, NumalignError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_THE_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG})


class ReaderGoneError(NumalignError):
    """The reader of our output has closed its end: `numalign topology | head`."""

    def __init__(self) -> None:
        super().__init__("standard output: its reader has closed it")


class _Standard(io.RawIOBase):
    """File descriptor 1. After a fault it takes the rest and drops it, so that the interpreter's end is silent."""

    def __init__(self) -> None:
        super().__init__()
        self._faulty = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return sys.__stdout__.fileno() if sys.__stdout__ is not None else 1

    def isatty(self) -> bool:
        return os.isatty(self.fileno())

    def write(self, data: ReadableBuffer, /) -> int:
        if self._faulty:
            return memoryview(data).nbytes
        try:
            return os.write(self.fileno(), data)
        except BrokenPipeError:
            self._faulty = True
            raise ReaderGoneError from None
        except OSError as error:
            self._faulty = True
            raise HostError("standard output", f"cannot be written: {error.strerror}") from error


def guard() -> None:
    """Make `sys.stdout` raise faults of our own tree.

    Raises:
        HostError: standard output is closed.
    """
    if sys.stdout is None:
        raise HostError("standard output", "is closed; redirect it to a file, or to /dev/null")
    own = sys.__stdout__
    if own is None or sys.stdout is not own:
        return  # the program that replaced it looks after it
    own.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Standard()), encoding=own.encoding, errors=own.errors,
        line_buffering=bool(own.line_buffering),
    )  # fmt: skip


def not_written(path: Path, error: OSError, option: str = "--file") -> Exception:
    """What to raise where the file that an option names takes no output: a full disk is no wrong input."""
    if error.errno in _THE_DISK:
        return HostError(str(path), f"cannot be written: {error.strerror}")
    return click.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint=option)


def many(count: int, word: str, style: str = "") -> str:
    """A number and its word; `style` as `format` has it: "," groups thousands."""
    return f"{count:{style}} {word}{'' if count == 1 else 's'}"
