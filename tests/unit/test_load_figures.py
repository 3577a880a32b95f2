"""What the load benchmark finds wrong, shown phases that are wrong; and its sums."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.bench import paper
from tools.bench.figures import FIRST, bookmarks, broken, figures
from tools.bench.phases import Phase, Plan
from tools.bench.relay import Traffic

AGENTS = 10
MARKS = Traffic(received=AGENTS * 2 * 294, open=30)


def phase(name: str, **different: object) -> Phase:
    """A phase of a minute in which only bookmarks arrive and the server uses 2 s of CPU."""
    usual: dict[str, object] = {
        "others": 0, "seconds": 60.0, "changes": 0, "pods": 0, "traffic": MARKS, "requests": {}, "served": {},
        "sent": {}, "watches": {}, "events": 0, "strangers": 0, "server_cpu": 2.0, "etcd_cpu": 0.0, "agents_cpu": 0.1,
        "server_rss": 0,
    }  # fmt: skip
    return Phase(name, **{**usual, **different})  # type: ignore[arg-type] # built from a table


def good() -> list[Phase]:
    """A run in which everything held: an own pod costs 3 requests and 20 ms."""
    own = {
        "pods": 10, "requests": {"PATCH pods/status": 10, "PATCH noderesourcetopologies": 20},
        "traffic": replace(MARKS, received=200_000 + MARKS.received),
    }  # fmt: skip
    busy = {"changes": 3000, "sent": {"pods": 2600, "nodes": 500}}
    return [
        phase("start", requests={"LIST pods": 10, FIRST: 10}, pods=0),
        phase("idle"),
        phase("own", server_cpu=3.0, events=50, **own),
        phase("others", others=1000, server_cpu=8.0, **busy),
        phase("own", others=1000, server_cpu=9.0, events=50, **own),
        phase("restart", others=1000, requests={"LIST pods": 10}),
        phase("alone-idle", others=1000, server_cpu=1.4, traffic=Traffic()),
        phase("alone-others", others=1000, server_cpu=7.4, traffic=Traffic(), **busy),
        phase("alone-own", others=1000, pods=10, server_cpu=2.2, traffic=Traffic()),
    ]


def test_a_good_run_is_not_faulted() -> None:
    """None of the rules complains where nothing is wrong."""
    assert broken(good(), AGENTS) == []


@pytest.mark.parametrize(
    ("index", "wrong", "sentence"),
    [
        (3, {"strangers": 1}, "other nodes' pods"),
        (3, {"events": 1}, "none expected"),
        (3, {"requests": {"LIST pods": 1}}, "none expected"),
        (3, {"requests": {"WATCH pods": AGENTS}}, "none expected"),
        (3, {"traffic": Traffic(received=bookmarks(AGENTS, 60) + 1)}, "more than bookmarks"),
        (3, {"sent": {"pods": 2600 * AGENTS, "nodes": 500}}, "events per change"),
        (4, {"requests": {"PATCH pods/status": 20, "PATCH noderesourcetopologies": 20}}, "without others"),
        (4, {"traffic": Traffic(received=400_000)}, "more than"),
        (5, {"requests": {"PATCH pods/status": 1}}, "a restart wrote"),
        (2, {"requests": {"PATCH pods/status 429": 1}}, "refused"),
        (5, {"requests": {FIRST: 1}}, "refused"),
    ],
)
def test_each_rule_speaks_when_it_is_broken(index: int, wrong: dict[str, object], sentence: str) -> None:
    """One thing wrong at a time, and it is named."""
    phases = good()
    phases[index] = replace(phases[index], **wrong)  # type: ignore[arg-type] # from a table
    assert any(sentence in each for each in broken(phases, AGENTS)), broken(phases, AGENTS)


def test_sums_take_off_what_the_cluster_costs_by_itself() -> None:
    """3.0 - 2.0 s with agents less 2.2 - 1.4 s without, over 10 pods: 20 ms each; the idle agents' part is 0.6 s."""
    found = figures(good(), AGENTS, present=5)
    assert found.pod.cpu == pytest.approx(20)
    assert (found.pod.total, found.pod.down) == (3, 20_000)
    assert found.minute.cpu == pytest.approx(60)
    assert found.minute.down == 588
    assert found.change_alone == pytest.approx(2)
    assert found.change_beside == pytest.approx(2)
    assert found.connections == 3


def test_the_page_says_what_it_means_for_5000_nodes() -> None:
    """150 requests a second at 50 pods a second; 10,000 watches; a broken rule is on the page."""
    found = figures(good(), AGENTS, present=5)
    text = paper.page(Plan(agents=AGENTS), good(), found, "a server", [])
    assert "10,000 open watches over about 15,000 connections" in text
    assert "150 requests a second" in text
    assert "Not all held: it is slow" in paper.page(Plan(agents=AGENTS), good(), found, "a server", ["it is slow"])
