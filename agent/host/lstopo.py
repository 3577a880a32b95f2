"""Reads the XML of lstopo, with care: the file may come from anybody.

No entity may be declared (that is how a small file becomes a huge one), nothing outside the file is opened (expat
never does by itself), and size, depth and number of elements are bounded. What the elements mean is
`agent.core.machines.lstopo`'s. Called by `agent.host.machines`.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from xml.parsers import expat

from agent.core.machines.lstopo import machine_from
from agent.core.machines.lstopo_element import Element
from agent.errors import HostError, MalformedError
from agent.host import bounded
from agent.model.machine import Machine

LARGEST = 64 << 20
"""Bytes; a machine with 4096 CPUs has about 6 MiB."""
MOST_ELEMENTS = 1_000_000
DEEPEST = 200
LONGEST_TEXT = 1 << 20


def is_lstopo(path: Path) -> bool:
    """Whether a file looks like it: by its name, or its first bytes."""
    if not path.is_file():
        return False
    if path.suffix == ".xml":
        return True
    with suppress(OSError):  # a file that cannot be read is reported by `read_lstopo`
        return bounded.read(path, 64).lstrip().startswith((b"<?xml", b"<topology"))
    return False


def read_lstopo(path: Path, name: str) -> Machine:
    """The machine that a file describes.

    Raises:
        HostError: the file cannot be read, is no XML, or is not lstopo's; names line and element.
    """
    try:
        data = bounded.read(path, LARGEST + 1)
        if len(data) > LARGEST:
            raise HostError(str(path), f"is larger than {LARGEST >> 20} MiB, which no machine is")
        return machine_from(parse(data), name)
    except OSError as error:
        raise HostError(str(path), f"cannot be read: {error.strerror}") from None
    except MalformedError as error:
        raise HostError(str(path), str(error)) from None


def parse(data: bytes) -> Element:
    """The root element; raises MalformedError naming the line."""
    builder = _Builder()
    try:
        builder.parser.Parse(data, True)  # noqa: FBT003 - expat's signature: this is all of it
    except expat.ExpatError as error:
        raise MalformedError(f"line {error.lineno}: is no XML: {expat.ErrorString(error.code)}") from None
    except (ValueError, LookupError) as error:
        if isinstance(error, MalformedError):
            raise
        raise MalformedError(f"is no XML that can be read: {error}") from None
    if builder.root is None:
        raise MalformedError("has no element: no machine")
    return builder.root


class _Builder:
    """Makes elements from expat's calls."""

    def __init__(self) -> None:
        self.root: Element | None = None
        self._open: list[tuple[str, dict[str, str], list[Element], list[str], int]] = []
        self._count = self._text = 0
        self.parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._entity

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        line = self.parser.CurrentLineNumber
        if self._count > MOST_ELEMENTS or len(self._open) >= DEEPEST:
            raise MalformedError(
                f"line {line}: has more than {MOST_ELEMENTS} elements, or {DEEPEST} inside each other"
            )
        self._open.append((tag, attributes, [], [], line))

    def _end(self, _tag: str) -> None:
        tag, attributes, children, text, line = self._open.pop()
        element = Element(tag, attributes, tuple(children), "".join(text), line)
        if self._open:
            self._open[-1][2].append(element)
        else:
            self.root = element

    def _characters(self, text: str) -> None:
        self._text += len(text)
        if self._open and not text.isspace():
            if self._text > LONGEST_TEXT:
                raise MalformedError(f"line {self.parser.CurrentLineNumber}: has too much text")
            self._open[-1][3].append(text)

    def _entity(self, name: str, *_rest: object) -> None:
        line = self.parser.CurrentLineNumber
        raise MalformedError(f"line {line}: declares the entity {name[:40]}, which no file of lstopo does; refused")
