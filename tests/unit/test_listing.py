"""A list is cut into its objects wherever its bytes are split; what is not a whole list is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.errors import MalformedError
from agent.kube.objects import listing
from agent.kube.objects.listing import HEAD, LARGEST, Items

LIST: dict[str, Any] = {
    "kind": "PodList", "metadata": {"resourceVersion": "7", "continue": ""},
    "items": [
        {"a": 'x"}]\\', "b": [[], {}, {"c": {"d": [1, "é😀{[", '\\\\"]}']}}]}, {}, {"z": None, "items": [1, {}]},
        {"\u0001": "\u0001" * 40, "q": '"' * 80, "s": "\\" * 80 + '"', "items": {"items": []}},
    ],
}  # fmt: skip


def cut(raw: bytes, size: int = 1 << 16) -> tuple[list[Any], dict[str, Any]]:
    """The objects, and the rest."""
    items, found = Items(), list[Any]()
    for at in range(0, len(raw), size):
        found += [json.loads(each.raw) for each in items.feed(raw[at : at + size]) if each.whole]
    return found, items.close()


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_bytes_may_be_split_anywhere(indent: int | None, ascii_only: bool) -> None:  # noqa: FBT001 - a parameter
    """In chunks of every size, and in two parts at every byte: the same objects, and the list's own fields."""
    raw = json.dumps(LIST, indent=indent, ensure_ascii=ascii_only).encode()
    rest = {**LIST, "items": []}
    for size in range(1, len(raw) + 1):
        assert cut(raw, size) == (LIST["items"], rest)
    for at in range(len(raw)):
        items = Items()
        found = [*items.feed(raw[:at]), *items.feed(raw[at:])]
        assert [json.loads(each.raw) for each in found] == LIST["items"]


def test_half_a_surrogate_is_a_text_like_any_other() -> None:
    """Escapes are not looked into."""
    assert cut(rb'{"items":[{"a":"\ud83d"}]}') == ([{"a": "\ud83d"}], {"items": []})


@pytest.mark.parametrize("items", [b"[]", b"null", b" [ ] "])
def test_a_list_may_be_empty(items: bytes) -> None:
    """As Go writes it: null is a list of nothing."""
    assert cut(b'{"kind":"PodList","items":' + items + b"}") == ([], {"kind": "PodList", "items": json.loads(items)})


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"[]", b"null", b'{"kind":"Status","status":"Failure"}', b'{"items":{}}', b'{"items":[1]}',
        b'{"items":["a"]}', b'{"items":[{},"a",{}]}', b'{"items":[[]]}', b'{"items":[{},[{}]]}', b'{"items":[{}}',
        b'{"items":[{}]}}', b'{"items":[{}]} x', b"<html>", b'{"items":[{}],"items":[{}]}',
        b'{"metadata":{"continue":"more"},"items":[{}]}', b'{"a":"' + b"x" * 70_000 + b'","items":[]}',
    ],
)  # fmt: skip
def test_what_is_no_whole_list_is_an_error(raw: bytes) -> None:
    """A Status, a page, something else: never a list of fewer."""
    for size in (1, 1 << 16):
        with pytest.raises(MalformedError):
            cut(raw, size)


def test_s13_a_list_that_is_cut_off_is_an_error_at_every_byte() -> None:
    """However much of it came, it is not all."""
    raw = json.dumps(LIST).encode()
    for end in range(len(raw)):
        items = Items()
        with pytest.raises(MalformedError):
            [*items.feed(raw[:end]), items.close()]


def test_an_object_may_be_nested_as_deep_as_it_likes() -> None:
    """Ten thousand lists within each other are cut without recursion; who parses them bounds their depth."""
    deep = b'{"name":"deep","x":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    items, raw = Items(), b'{"items":[{"a":1},' + deep + b',{"b":2}]}'
    found = [each for at in range(0, len(raw), 7) for each in items.feed(raw[at : at + 7])]
    items.close()
    assert [each.raw for each in found] == [b'{"a":1}', deep, b'{"b":2}']


def test_an_object_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beginning is given, and the others are read; at the limit it is whole."""
    monkeypatch.setattr(listing, "LARGEST", 10_000)
    assert LARGEST > 6 * 262_144
    for length, whole in ((10_000, True), (10_001, False)):
        large = b'{"a":"' + b"x" * (length - 8) + b'"}'
        items, raw = Items(), b'{"items":[' + large + b',{"b":2}]}'
        found = [each for at in range(0, len(raw), 999) for each in items.feed(raw[at : at + 999])]
        items.close()
        assert [each.whole for each in found] == [whole, True]
        assert found[0].raw == large[: len(large) if whole else HEAD]
