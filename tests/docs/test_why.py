"""deploy/docs/why.md has every sentence with which a pod is refused, waits, or runs otherwise than it asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest

from agent.model.outcome import Reason
from tests.docs import pages, refusal_sites, refusals

PAGE = pages.DOCS / "why.md"


@cache
def produced() -> tuple[dict[str, str], refusal_sites.Recorder]:
    """Every case brought about once: its sentence, and where in the code refusals were made."""
    with refusal_sites.Recorder() as recorder:
        return {name: made() for name, made in refusals.CASES.items()}, recorder


def entries() -> Iterator[tuple[str, list[str], str]]:
    """Of each entry of the page: its heading, the sentences that it begins with, and what follows them."""
    for part in re.split(r"^##+ ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        head, _, rest = part.partition("\n")
        before, fence, after = rest.partition("```text\n")
        if fence:
            sentences, _, after = after.partition("```\n")
            yield head, sentences.splitlines(), before + after


@pytest.mark.parametrize("name", refusals.CASES)
def test_the_page_has_every_sentence(name: str) -> None:
    """What the product says when it refuses like this begins an entry of the page, word for word."""
    said = produced()[0][name]
    assert said
    assert said in {each for _, sentences, _ in entries() for each in sentences}


def test_every_sentence_of_the_page_is_the_products() -> None:
    """Nothing on the page is made up or out of date, and every entry says what to do."""
    said = set(produced()[0].values())
    for head, sentences, rest in entries():
        assert set(sentences) <= said, head
        assert "**Remedy.** " in rest, head


def test_every_place_that_refuses_is_on_the_page() -> None:
    """Each call that makes a refusal in core and engine was reached by a case; so was each end of a wait."""
    _, recorder = produced()
    assert [site for site in refusal_sites.sites() if not recorder.reached(site)] == []
    assert set(refusal_sites.finals()) == recorder.finals


def test_every_text_of_the_code_is_on_the_page() -> None:
    """The constants of modules that refuse, and all that a resize can be told: each is the form of some sentence."""
    said = produced()[0].values()
    for name, text in refusal_sites.texts():
        form = re.escape(text).replace(r"\{\}", ".+")
        assert any(re.search(form, each) for each in said), name
    for text in refusal_sites.resize_texts():
        form = re.escape(f"resize not followed{text}").replace(r"\*", ".+")
        assert any(re.fullmatch(form, each) for each in said), text


def test_every_reason_has_its_heading() -> None:
    """Who sees the Event finds its reason."""
    heads = set(re.findall(r"^## (\w+)$", PAGE.read_text("utf-8"), re.MULTILINE))
    assert {each.value for each in Reason} <= heads
