"""The drawing's colours: every text stands out from what it is written on, in light and dark."""

from __future__ import annotations

from itertools import pairwise

import pytest

from agent.observe.drawing.look import _BOXES, _INK, COLOURS, PATTERNS, STYLES, style_of
from agent.observe.drawing.side import HOT, WARM, opacity

LIGHT, DARK = 0, 1
ON = {
    "t": ("page", "socket", "die", "node", "cache", "core", "cpu", "small", "alone", "kept", "chip", "fold"),
    "d": ("page", "socket", "die", "node", "cache", "chip", "fold"),
    "warn": ("node", "page"),
}
"""Ink -> boxes that it is written on."""


def rgb(text: str) -> tuple[float, ...]:
    """Red, green, blue of #rrggbb."""
    return tuple(int(text[at : at + 2], 16) for at in (1, 3, 5))


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """WCAG 2's contrast ratio, 1 to 21 (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""

    def light(colour: tuple[float, ...]) -> float:
        parts = [each / 255 for each in colour]
        linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
        return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))

    more, less = sorted((light(one), light(other)), reverse=True)
    return (more + 0.05) / (less + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize(("ink", "box"), [(ink, box) for ink, boxes in ON.items() for box in boxes])
def test_texts_stand_out(ink: str, box: str, theme: int) -> None:
    """4.5 to 1 at least, which is WCAG's AA for small texts."""
    assert contrast(rgb(_INK[ink][theme]), rgb(_BOXES[box][theme][0])) >= 4.5


@pytest.mark.parametrize(("fill", "ink"), COLOURS)
def test_letters_of_pods_stand_out(fill: str, ink: str) -> None:
    """On each colour of Okabe and Ito, in its own ink; a halo of the colour keeps the pattern away from them."""
    assert contrast(rgb(fill), rgb(ink)) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_numbers_stand_out_at_every_distance(theme: int) -> None:
    """The fields of the heat map go from nothing to a full colour; the ink changes where another one reads better.

    Where both read alike, no ink has more than 4 to 1 on a colour between them.
    """
    fill, page = rgb(_BOXES["heat"][theme][0]), rgb(_BOXES["page"][theme][0])
    for step in range(101):
        heat = step / 100
        field = tuple(f * opacity(heat) + p * (1 - opacity(heat)) for f, p in zip(fill, page, strict=True))
        ink = "hot" if heat > HOT else "warm" if heat > WARM else "t"
        assert contrast(rgb(_INK[ink][theme]), field) >= 3.9, heat


def test_neighbours_differ_in_colour_and_pattern() -> None:
    """So that colour is never the only sign; as many pods as there are pairs are told apart."""
    styles = [style_of(number) for number in range(STYLES)]
    assert len(set(styles)) == STYLES == len(COLOURS) * len(PATTERNS)
    assert all(a[0] != b[0] and a[1] != b[1] for a, b in pairwise(styles))
