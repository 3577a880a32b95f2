"""The pictures are what the program shows today, small, and used."""

from __future__ import annotations

import struct
import zlib

import pytest

from tools.pictures.__main__ import FOLDER, ROOT, pictures
from tools.pictures.palette import png

SCREENSHOTS = ("page-light.png", "page-dark.png", "page-narrow.png", "explanation.png")
MOST = 130_000
"""Bytes of a screenshot: everybody who clones the repository carries it."""


def test_the_pictures_are_up_to_date() -> None:
    """Redraw them with `make pictures` when this fails, and look at them."""
    for name, text in pictures().items():
        assert (FOLDER / name).read_text("utf-8") == text, name
        assert name in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", SCREENSHOTS)
def test_screenshots_are_there_small_and_shown(name: str) -> None:
    """A PNG with a palette, of a size that a README shows as it is, and some page shows it."""
    data = (FOLDER / name).read_bytes()
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert (depth, kind) == (8, 3)
    assert 400 <= width < 1400
    assert 300 < height < 1400
    assert len(data) < MOST
    pages = (ROOT / "README.md", *(ROOT / "deploy" / "docs").glob("*.md"))
    assert any(f"pictures/{name}" in page.read_text("utf-8") for page in pages)


def test_a_written_png_is_one() -> None:
    """Chunks carry their lengths and checks; rows are the indices, each after its filter byte."""
    data = png(2, 2, bytes(6), b"\0\1\1\0")
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, found = 8, {}
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(name + body)
        found[name], at = body, at + 12 + length
    assert list(found) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    assert zlib.decompress(found[b"IDAT"]) == b"\0\0\1\0\1\0"
