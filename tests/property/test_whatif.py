"""What-if on random nodes: a plan admits as the managers do, keeps every rule, and changes nothing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.accounting import invariants
from agent.core.admission.node import Node
from agent.errors import SettingsError
from agent.forecast.whatif import Difference, WhatIf, what_if
from agent.model.ledger import Ledger
from agent.model.pod import Pod
from agent.model.rules import Policy, Scope
from tests.examples import examples
from tests.world.nodes import managers_of
from tests.world.pods import container, pod
from tests.world.strategies import case_of, filled


@settings(max_examples=examples(60), deadline=None)
@given(filled())
def test_the_same_rules_and_order_give_the_same_node(world: tuple[Node, Ledger, list[Pod]]) -> None:
    """Nobody left since: admitted anew in their order, all pods get what they have, and the refused are refused."""
    node, ledger, refused = world
    answer = what_if(WhatIf(node, node, ledger, refused), repack=False)
    assert {line.uid: line.change for line in answer.lines} == {
        **dict.fromkeys(ledger.pods, Difference.SAME),
        **{pod.uid: Difference.STILL_REFUSED for pod in refused},
    }
    assert answer.ledger.cpus.assigned == ledger.cpus.assigned
    assert answer.before == answer.after


@settings(max_examples=examples(80), deadline=None)
@given(world=filled(), policy=st.sampled_from(list(Policy)), scope=st.sampled_from(list(Scope)), repack=st.booleans())
def test_a_plan_is_what_the_managers_would_do(
    world: tuple[Node, Ledger, list[Pod]], policy: Policy, scope: Scope, *, repack: bool
) -> None:  # fmt: skip
    """The ledger of a plan keeps every rule, holds whoever is not refused, and a refusal is the managers' own."""
    node, ledger, refused = world
    try:
        then = node.with_topology(policy, scope)
    except SettingsError:  # CPU options that this policy excludes
        return
    answer = what_if(WhatIf(node, then, ledger, refused), repack=repack)
    invariants.check(answer.ledger, then)
    assert {line.uid for line in answer.lines} == {*ledger.pods, *(pod.uid for pod in refused)}
    out = {line.uid for line in answer.lines if line.change in (Difference.REFUSED, Difference.STILL_REFUSED)}
    assert set(answer.ledger.pods) == {line.uid for line in answer.lines} - out
    for line in answer.lines:
        assert line.why or line.change in (Difference.SAME, Difference.ELSEWHERE)
        if line.change is Difference.SAME:
            assert line.aligned_now == line.aligned_then, "the same CPUs, but told otherwise, is no sameness"
    if not repack:
        replayed = then.start()
        for pod in WhatIf(node, then, ledger, refused).pods():
            replayed = case_of(then, replayed, pod).admit(then).ledger
        assert answer.ledger == replayed
    else:
        plain = what_if(WhatIf(node, then, ledger, refused), repack=False)
        assert answer.count(Difference.REFUSED, Difference.STILL_REFUSED) <= plain.count(
            Difference.REFUSED, Difference.STILL_REFUSED
        )


def test_who_would_be_aligned_where_it_lies_is_told_of() -> None:
    """A pod that lost CPUs to a fault that is mended by now: made anew it has the same, and is aligned again."""
    node = managers_of("2 sockets x 1 node x 4 cores", {"reservedSystemCPUs": "0"})
    one = pod("p", container("app", cpus=2))
    ledger = node.admit(node.start(), one).ledger
    record = replace(ledger.pods[one.uid], aligned={"app": False}, why={"app": "it lost CPUs 5; it keeps 1-2"})
    (line,) = what_if(WhatIf(node, node, replace(ledger, pods={one.uid: record}), []), repack=False).lines
    assert (line.change, line.aligned_now, line.aligned_then) == (Difference.ELSEWHERE, False, True)
    assert line.now == line.then


def test_who_is_left_alone_has_no_place_in_a_plan() -> None:
    """Who is exempt, or asks for that itself, is told as left alone, and why: a plan that moved it would be wrong."""
    node = managers_of("2 sockets x 1 node x 4 cores", {"reservedSystemCPUs": "0"})
    system, own = pod("system", container("app", cpus=2)), pod("own", container("app", cpus=2))
    own = replace(own, annotations={"numalign.io/pin": "false"})
    asked = WhatIf(node, node, node.start(), [system, own], exempt=lambda each: "spared" * (each.uid == "system"))
    answer = what_if(asked, repack=False)
    assert {line.uid: (line.change, line.why) for line in answer.lines} == {
        "system": (Difference.LEFT_ALONE, "spared"),
        "own": (Difference.LEFT_ALONE, "its annotation numalign.io/pin is false"),
    }
    assert answer.ledger == node.start()


def test_where_only_whole_cores_are_given_the_room_left_is_of_whole_cores() -> None:
    """Under full-pcpus-only the sibling of a reserved CPU is no room: who plans by the figure would be refused."""
    options = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
    for more, cpus in (({}, 7), (options, 6)):
        node = managers_of("1 socket x 1 node x 4 cores x 2 threads", {"reservedSystemCPUs": "0", **more})
        assert what_if(WhatIf(node, node, node.start(), []), repack=False).before["cpu"] == cpus
