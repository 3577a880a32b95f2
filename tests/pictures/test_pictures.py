"""The README's picture is what the program prints today."""

from __future__ import annotations

from tests.pictures.__main__ import FILE, picture


def test_the_picture_is_up_to_date() -> None:
    """Redraw it with `make pictures` when this fails, and look at it."""
    assert FILE.read_text("utf-8") == picture()
