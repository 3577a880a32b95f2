"""Whatever a configuration holds, `parse` gives settings or a SettingsError of one line: never a traceback."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import SettingsError
from agent.settings import Settings, parse
from tests.examples import examples
from tools.chart.settings_schema import schema

WORDS = [
    "none", "None", "static", "Static", "restricted", "pod", "wait", "cgroup", "true", "0-3", "1Gi", "10%", "5m",
    "02",
    "full-pcpus-only", "memory.available", "memory", "cpu", "hugepages-2Mi", "numalign.io/nic",
    "limit", "numaNode", "limits", "resource", "class", "addresses", "a/b",
]  # fmt: skip
words = st.sampled_from(WORDS) | st.text(max_size=6)
scalars: st.SearchStrategy[object] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), words, st.just(10**4000), st.binary(max_size=3)
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | scalars, inner, max_size=3),
    max_leaves=8,
)


keys = st.sampled_from(sorted(schema()["properties"])) | words
bodies = st.dictionaries(keys, anything, max_size=5)


def _parsed(body: object) -> tuple[Settings, tuple[str, ...]] | SettingsError:
    try:
        return parse(body)
    except SettingsError as error:
        return error


@settings(max_examples=examples(200), deadline=None)
@given(bodies | anything)
def test_any_document_is_settings_or_one_sentence(body: Any) -> None:  # noqa: ANN401 - anything
    """No document ends in another exception; an error is one short line; settings can be written back."""
    found = _parsed(body)
    if isinstance(found, SettingsError):
        assert "\n" not in str(found)
        assert 0 < len(str(found)) < 600
        return
    parsed, warnings = found
    assert parse(parsed.shown())[0] == parsed
    assert all("\n" not in warning for warning in warnings)
