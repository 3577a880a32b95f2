"""numalign.io/exclusive and exclusiveContainers: which containers take part, and the sentence for each mistake."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.explain.requested import why_shared
from agent.core.request import exclusive
from agent.core.request.amounts import exclusive_count, memory_requests, pod_exclusive_count
from agent.model.exclusive import NO_CONTAINER, Selection, parsed
from agent.model.notes import bounded
from agent.model.pod import Container, ContainerKind, Pod, Qos
from agent.model.rules import Rules
from agent.settings import parse
from tests.world.nodes import managers_of
from tests.world.pods import pod

AUTO = Rules(exclusive=Selection(auto=True))
GIB = 1 << 30
EQUAL = "request and limit must be equal"


def part(
    name: str, cpu: str, limit: str = "=", memory: str = "", kind: ContainerKind = ContainerKind.APP
) -> Container:
    """A container by its request and limit in thousandths; "=" for a limit that equals it, "" for none."""
    limits = {"cpu": int((cpu if limit == "=" else limit) or 0)} if limit else {}
    requests = {"cpu": int(cpu)} if cpu else {}
    amounts = {"memory": 1000 * GIB} if memory else {}
    bound = amounts if memory == "fixed" else {}
    return Container(name, kind, {**requests, **amounts}, {**(limits if cpu else {}), **bound})


APP, PROXY, ONE, FREE = (
    part("app", "8000"),
    part("proxy", "100", "2000"),
    part("one", "1000"),
    part("free", "2000", ""),
)
BURST = part("x", "4000", "8000")
INIT = part("init", "3000", kind=ContainerKind.INIT)
SIDE = part("side", "2000", kind=ContainerKind.SIDECAR)
ALL = (INIT, SIDE, APP, PROXY, ONE, FREE)


def asking(value: str | None, *containers: Container, qos: Qos = Qos.BURSTABLE, namespace: str = "default") -> Pod:
    """A pod of these containers, with the annotation."""
    notes = {} if value is None else {exclusive.EXCLUSIVE: value}
    return replace(pod("p", *(containers or ALL), qos=qos, annotations=notes), namespace=namespace)


def counts(found: Pod, rules: Rules | None = None) -> dict[str, int]:
    """Who gets how many."""
    all_of_them = {each.name: exclusive_count(found, each, rules or Rules()) for each in found.containers}
    return {name: count for name, count in all_of_them.items() if count}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, {}), ("none", {}), ("", {}), ("yes please", {}), ("auto,app", {}), ("none,app", {}), ("-app", {}),
        ("auto", {"init": 3, "side": 2, "app": 8, "one": 1}), ("auto,-one,-init", {"side": 2, "app": 8}),
        ("auto, -one, -nobody", {"init": 3, "side": 2, "app": 8}), ("app", {"app": 8}),
        ("app, side", {"side": 2, "app": 8}), ("proxy", {}), ("free", {}), ("app,typo", {"app": 8}),
    ],
)  # fmt: skip
def test_who_takes_part_in_a_burstable_pod(value: str | None, expected: dict[str, int]) -> None:
    """Whole CPUs, at least one, with an equal limit, of init containers and sidecars too; as the value has it."""
    assert counts(asking(value)) == expected
    assert pod_exclusive_count(asking(value), Rules()) == max(
        expected.get("side", 0) + expected.get("app", 0) + expected.get("one", 0), expected.get("init", 0)
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, ["app", "one"]), ("auto", ["app", "one"]), ("auto,-one", ["app"]), ("none", []), ("app", ["app"]),
     ("typo", []), ("a b", ["app", "one"])],
)  # fmt: skip
def test_a_guaranteed_pod_can_only_take_it_from_some(value: str | None, expected: list[str]) -> None:
    """`none` opts out, a list pins these alone; what cannot be read changes nothing, nor does the node's setting."""
    guaranteed = asking(value, APP, ONE, part("half", "500"), qos=Qos.GUARANTEED)
    for rules in (Rules(), AUTO, Rules(exclusive=Selection(names=frozenset({"one"})))):
        assert list(counts(guaranteed, rules)) == expected


def test_the_setting_holds_where_pod_and_namespace_are_silent() -> None:
    """Then a pod's own `none` still opts out, and a mistake in its annotation leaves the setting in force."""
    assert list(counts(asking(None), AUTO)) == ["init", "side", "app", "one"]
    assert counts(asking("none"), AUTO) == {}
    assert counts(asking("?"), AUTO) == counts(asking(None), AUTO)
    assert counts(asking(None), Rules(exclusive=Selection(names=frozenset({"app"})))) == {"app": 8}
    assert counts(asking(None, qos=Qos.BEST_EFFORT), Rules()) == {}


def test_only_pods_of_named_namespaces_may() -> None:
    """ExclusiveNamespaces bounds annotation and setting; a Guaranteed pod needs no leave."""
    rules = replace(AUTO, exclusive_namespaces=("db",))
    assert counts(asking("app", namespace="db"), rules) == {"app": 8}
    assert counts(asking("app"), rules) == counts(asking(None), rules) == {}
    assert "namespace default (exclusiveNamespaces" in exclusive.problem(asking("app"), rules)
    assert counts(asking(None, APP, qos=Qos.GUARANTEED), rules) == {"app": 8}


@pytest.mark.parametrize("gate", [False, True])
def test_pod_level_resources_follow_the_kubelets_rules(gate: bool) -> None:  # noqa: FBT001 - two cases
    """The annotation neither gives nor takes there, and says so."""
    rules = replace(AUTO, pod_level_managers=gate)
    whole = replace(asking("auto", APP), requests={"cpu": 9000}, limits={"cpu": 9000})
    assert counts(whole, rules) == {}
    assert "pod-level resources" in exclusive.problem(whole, rules)
    guaranteed = replace(
        asking("none", part("app", "8000", memory="fixed"), qos=Qos.GUARANTEED), requests={"cpu": 9000}
    )
    assert counts(guaranteed, rules) == {"app": 8}


def test_memory_follows_the_cpus_where_it_is_fixed() -> None:
    """A container with CPUs of its own and memory request = limit is served by the Memory Manager; no other is."""
    bound, loose = part("bound", "2000", memory="fixed"), part("loose", "2000", memory="open")
    side = part("side", "100", "200", memory="fixed")
    found = asking("auto", bound, loose, side)
    asked = {each.name: memory_requests(found, each, Rules()) for each in found.containers}
    assert asked == {"bound": {"memory": GIB}, "loose": {}, "side": {}}
    assert all(not memory_requests(asking(None, bound), each, Rules()) for each in (bound, loose))


@pytest.mark.parametrize(
    ("value", "containers", "sentence"),
    [
        ("auto", ALL, ""), ("none", ALL, ""), ("app", ALL, ""), ("auto,-nobody", ALL, ""),
        ("perhaps, not", ALL, "names not, which is no container of the pod (init, side, app, proxy, one, free)"),
        ("Auto", ALL, "is not one of auto, none, names of containers, or auto,-NAME"),
        ("app,free", ALL, "names free: it requests 2 CPU and it has no limit; request and limit must be equal"),
        ("proxy", ALL, "names proxy: it requests 100m CPU, and only whole CPUs are given to one container alone"),
        ("x", (part("x", ""),), "names x: it requests no CPU"),
        ("auto", (PROXY, FREE), f"finds no container: free: it requests 2 CPU and it has no limit; {EQUAL}"),
        ("auto", (PROXY,), ""),
        ("auto", (BURST,), f"finds no container: x: it requests 4 CPU and its limit is 8; {EQUAL}"),
    ],
)  # fmt: skip
def test_each_mistake_has_its_sentence(value: str, containers: tuple[Container, ...], sentence: str) -> None:
    """Names that do not exist, and whole CPUs without an equal limit; what is merely not meant is no mistake."""
    assert exclusive.problem(asking(value, *containers), Rules()) == sentence


def test_what_is_told_beside_the_grant() -> None:
    """What stays Burstable's, the mistake, or why there is nothing; nothing of who does not ask."""
    assert exclusive.note(asking("auto"), Rules(), holds=True).startswith("the pod stays Burstable: its OOM score")
    assert exclusive.note(asking("typo"), Rules(), holds=False).startswith("numalign.io/exclusive: names typo")
    assert exclusive.note(asking(None), Rules(), holds=False) == ""
    assert exclusive.note(asking(None, APP, qos=Qos.GUARANTEED), AUTO, holds=True) == ""
    assert exclusive.note(asking("auto"), Rules(), holds=False) == "", "that there was no room is said elsewhere"
    half = asking("auto", part("app", "1500"), PROXY)
    assert exclusive.note(half, Rules(), holds=False) == (
        "no CPUs of its own: app: it requests 1500m CPU, and only whole CPUs are given to one container alone"
    )


def test_values_are_read_and_shown_alike() -> None:
    """Every value that is understood is shown so that it means the same again."""
    for text in ("none", "auto", "auto,-a", "auto,-b,-a", "a", "b, a"):
        found = parsed(text)
        assert found is not None
        assert parsed(str(found)) == found
    assert (str(NO_CONTAINER), parsed("auto,,"), parsed(",")) == ("none", None, None)


def test_the_setting_takes_the_same_values() -> None:
    """It is parsed at the start, shown again as written, and refused with its values named."""
    settings, _ = parse({"exclusiveContainers": "auto,-istio-proxy", "exclusiveNamespaces": ["db", "ml"]})
    assert settings.exclusive_containers == Selection(auto=True, names=frozenset({"istio-proxy"}))
    assert (settings.shown()["exclusiveContainers"], settings.exclusive_namespaces) == (
        "auto,-istio-proxy",
        ("db", "ml"),
    )
    assert parse({})[0].exclusive_containers == NO_CONTAINER
    with pytest.raises(Exception, match=r"exclusiveContainers.*is not one of auto, none"):
        parse({"exclusiveContainers": "auto,proxy"})


@pytest.mark.parametrize(
    ("value", "name", "words"),
    [
        (None, "app", "and pods that ask for them container by container (numalign.io/exclusive: auto)"),
        (None, "proxy", "get CPUs of their own"), ("auto", "app", ""),
        ("auto,-app", "app", "auto,-app leaves it out"),
        ("one", "app", "numalign.io/exclusive: one leaves it out"), ("auto", "free", "it has no limit"),
        ("auto", "proxy", "it requests 100m CPU"), ("none", "app", "the pod is Burstable"),
    ],
)  # fmt: skip
def test_explain_says_why_a_container_shares(value: str | None, name: str, words: str) -> None:
    """Of one that could have CPUs of its own, how; of one that is left out, by what; else its own reason."""
    node, found = managers_of("1 socket x 1 node x 32 cores x 1 thread"), asking(value)
    why = why_shared(node, found, next(each for each in found.containers if each.name == name))
    assert (words in why) if words else not why


def test_explain_says_who_may_not_ask() -> None:
    """The namespace, and where that is set."""
    node = managers_of("1 socket x 1 node x 32 cores x 1 thread", {"exclusiveNamespaces": ["db"]})
    found = asking("auto", APP)
    assert "is not for pods of namespace default (exclusiveNamespaces" in why_shared(node, found, APP)
    silent = managers_of(
        "1 socket x 1 node x 32 cores x 1 thread",
        {
            "exclusiveNamespaces": ["db"],
            "exclusiveContainers": "auto",
            "featureGates": {"PodLevelResourceManagers": True},
        },
    )  # fmt: skip
    assert "exclusiveNamespaces" in why_shared(silent, asking(None, APP), APP)
    whole = replace(asking(None, APP, namespace="db"), requests={"cpu": 9000}, limits={"cpu": 9000})
    assert "the kubelet's rules divide its pod-level resources" in why_shared(silent, whole, APP)


def test_a_value_that_is_too_long_is_told_so_and_asks_for_nothing() -> None:
    """Only its beginning is kept, which may read as something else: the node's setting holds, as without it."""
    long = asking(f"app,{','.join(['one'] * 200)}")
    cut = replace(long, annotations=bounded(long.annotations))
    for found in (long, cut):
        assert exclusive.problem(found, Rules()) == "goes on beyond 500 characters"
        assert counts(found) == {}
        assert counts(found, AUTO) == counts(asking("auto"))
    whole = replace(cut, qos=Qos.GUARANTEED)
    assert counts(whole) == counts(replace(whole, annotations={}))
