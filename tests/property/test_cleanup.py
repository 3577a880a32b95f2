"""S12: whatever a pod looks like, it is deleted only if it is one that we refused and ended."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.kube.publishing.cleanup import remaining
from tests.unit.cleanup_cases import END, OTHERS, RULE, changed, ours

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("Failed") | st.just("node-1"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sets(st.sampled_from(sorted(OTHERS))))
def test_s12_of_others_nothing_is_ever_due(names: set[str]) -> None:
    """Any mix of ways to be somebody else's keeps a pod for ever; only with none of them it is due."""
    assert (remaining(changed(*sorted(names)), END + 1e9, RULE) is None) == bool(names)


@given(st.sampled_from(["metadata", "spec", "status"]), st.data(), JUNK)
def test_s12_a_malformed_pod_is_no_error_and_not_due_without_our_word(part: str, data: Any, junk: object) -> None:  # noqa: ANN401 - hypothesis
    """Any field may hold anything: there is an answer, and it is no where the word, phase or node is not right."""
    body = ours()
    field = data.draw(st.sampled_from([None, *sorted(body[part])]))
    if field is None:
        body[part] = junk
    else:
        body[part][field] = junk
    found = remaining(body, END + 1e9, RULE)
    if field in {None, "uid", "annotations", "nodeName", "activeDeadlineSeconds", "phase", "reason", "conditions"}:
        assert found is None or body[part] == ours()[part]
