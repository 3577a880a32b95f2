"""The table of CPU options: it says what the kubelet says, and all that knows options reads it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path

import pytest

from agent.core.admission.node import Node
from agent.core.admission.pod import Trace
from agent.core.cpus.provider import CpuManager
from agent.core.explain.candidates import possible
from agent.core.explain.case import Case
from agent.core.explain.remedies import remedies
from agent.core.explain.values import Lever, Remedy
from agent.core.machines.synthetic import parse_synthetic
from agent.core.request.annotations import CPU_OPTIONS, PodSettings, pod_settings
from agent.errors import MalformedError, SettingsError
from agent.model.devices import DeviceInventory
from agent.model.go import parse_bool
from agent.model.outcome import Outcome, Refused
from agent.model.pod import Container, Pod
from agent.model.rules import NODE_OPTIONS, POD_OPTIONS, CpuOptions, CpuRules, Maturity, Policy, Rules
from agent.settings.cpu_options import KEY, check_machine, cpu_options
from tests.world import pods
from tools.chart.settings_schema import schema

MACHINE = parse_synthetic("2 sockets x 1 node x 4 cores x 2 threads")
CORE = Path(__file__).parents[2] / "agent" / "core"
ACROSS_CORES, ACROSS_NUMA = "distribute-cpus-across-cores", "distribute-cpus-across-numa"
CLASHES = [
    ("full-pcpus-only", ACROSS_CORES),
    (ACROSS_NUMA, ACROSS_CORES),
    ("prefer-align-cpus-by-uncorecache", ACROSS_CORES),
    ("prefer-align-cpus-by-uncorecache", ACROSS_NUMA),
]
"""In the order in which the kubelet looks, and in its order of words."""


def told(*names: str) -> str:
    """What the settings say of options that are on; nothing where they take them."""
    try:
        cpu_options(dict.fromkeys(names, "true"))
    except SettingsError as error:
        return str(error)
    return ""


def sets() -> Iterator[tuple[str, ...]]:
    """Every set of options."""
    for size in range(len(NODE_OPTIONS) + 1):
        yield from combinations(NODE_OPTIONS, size)


def chosen(*names: str) -> CpuOptions:
    """Options that are on, unchecked."""
    return CpuOptions(**{NODE_OPTIONS[name].field: True for name in names})


def pod(options: str = "", cpus: int = 0) -> Pod:
    """A Guaranteed pod."""
    asks = pods.container("c", cpus=cpus, memory=1 << 20) if cpus else Container("c")
    return pods.pod("u", asks, annotations={CPU_OPTIONS: options} if options else {})


def test_the_table_is_whole() -> None:
    """Each field has one row with a name of its own, and rows name each other rightly: no pair twice."""
    assert [option.field for option in NODE_OPTIONS.values()] == [each.name for each in fields(CpuOptions)]
    assert all(name == option.name for name, option in NODE_OPTIONS.items())
    pairs = [{name, other} for name, option in NODE_OPTIONS.items() for other in option.excludes]
    assert all(len(pair) == 2 and pair <= set(NODE_OPTIONS) for pair in pairs)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)


def test_conflicts_in_the_kubelets_order_and_words() -> None:
    """Options that exclude each other (rule 4.1), bit for bit; of several conflicts the first is told."""
    assert [(name, other) for name, option in NODE_OPTIONS.items() for other in option.excludes] == CLASHES
    for names in sets():
        pair = next((each for each in CLASHES if set(each) <= set(names)), None)
        sentence = pair and f"static policy options {pair[0]} and {pair[1]} can not be used at the same time"
        assert told(*names) == (f"{KEY}: {sentence}; leave one of them out" if sentence else "")


@pytest.mark.parametrize("policy", Policy)
def test_settings_annotations_and_explanations_agree(policy: Policy) -> None:
    """A set of options that one of them refuses, all refuse, in every combination and under every policy."""
    for names in sets():
        options = chosen(*names)
        refused = bool(told(*names))
        try:
            check_machine(options, policy, sockets=0, nodes=0)
        except SettingsError:
            refused = True
        node = Node(MACHINE, Rules(), DeviceInventory())
        case = Case(node.start(), pod(), PodSettings(policy=policy, cpu_options=options))
        assert possible(case, node) is not refused, names
        if set(names) <= set(POD_OPTIONS):
            text = ",".join(f"{name}=true" for name in names)
            settings = pod_settings(pod(text), CpuOptions(), policy)
            assert settings.cpu_options == (None if refused or not text else options), names
            assert bool(settings.problems) is refused, names


@pytest.mark.parametrize("name", NODE_OPTIONS)
def test_every_option_is_known_everywhere(name: str) -> None:
    """In settings, in the schema, and either in the annotation or as the node's alone."""
    option = NODE_OPTIONS[name]
    assert cpu_options({name: "true"}) == chosen(name)
    words = schema()["properties"][KEY]["description"].rstrip(".").split(", ")
    assert words == list(NODE_OPTIONS)
    problems = pod_settings(pod(f"{name}=true"), CpuOptions(), Policy.NONE).problems
    assert bool(problems) is not option.per_pod
    for value in (True, False):
        base = replace(CpuOptions(), **{option.field: value})
        asked = replace(CpuOptions(), **{option.field: not value})
        assert getattr(base.for_pod(asked), option.field) is (value is not option.per_pod)


@pytest.mark.parametrize("name", NODE_OPTIONS)
def test_the_gate_of_its_maturity_closes_an_option(name: str) -> None:
    """Rule 0.3: even when its value is false; the gate of another maturity changes nothing."""
    maturity = NODE_OPTIONS[name].maturity
    for closed in (Maturity.ALPHA, Maturity.BETA):
        alpha, beta = (each is not closed for each in (Maturity.ALPHA, Maturity.BETA))
        if maturity is not closed:
            assert cpu_options({name: "false"}, alpha=alpha, beta=beta) == CpuOptions()
            continue
        word = maturity.capitalize()
        with pytest.raises(SettingsError) as raised:
            cpu_options({name: "false"}, alpha=alpha, beta=beta)
        assert str(raised.value) == (
            f'{KEY}.{name}: CPU Manager Policy {word}-level Options not enabled, but option "{name}" provided; '
            f"set the feature gate CPUManagerPolicy{word}Options to true"
        )


def test_every_option_has_an_algorithm() -> None:
    """Some decision reads its field; explanations, which only try options out, do not count."""
    files = [path for path in CORE.rglob("*.py") if "explain" not in path.parts]
    trees = (ast.walk(ast.parse(path.read_text("utf-8"))) for path in files)
    read = {each.attr for tree in trees for each in tree if isinstance(each, ast.Attribute)}
    assert {option.field for option in NODE_OPTIONS.values()} <= read


def test_an_explanation_tries_every_option_that_a_pod_may_have() -> None:
    """On for those that are off, off for those that are on, each by itself."""
    node = Node(MACHINE, Rules(), DeviceInventory())
    tried: list[CpuOptions] = []

    class Watched(Case):
        """Tells which options an admission was tried with."""

        def admit(self, node: Node, trace: Trace | None = None) -> Outcome:
            tried.append(self.options(node))
            return super().admit(node, trace)

    for base in ((), *((name,) for name in POD_OPTIONS)):
        tried.clear()
        case = Watched(node.start(), pod(cpus=100), PodSettings(policy=Policy.BEST_EFFORT, cpu_options=chosen(*base)))
        assert isinstance(case.admit(node), Refused)
        remedies(node, case)
        for name in POD_OPTIONS:
            names = set(base) ^ {name}
            assert (chosen(*names) in tried) is not bool(told(*names)), names
            remedy = Remedy(Lever.CPU_OPTION, "", option=name, value=name not in base)
            assert case.changed(node, remedy).options(node) == chosen(*names)


def test_what_is_the_nodes_alone_stays_the_nodes() -> None:
    """A pod's options change neither these in the provider that picks its CPUs, nor the node's rules."""
    node_wide = [name for name, option in NODE_OPTIONS.items() if not option.per_pod]
    for base in (chosen(), chosen(*node_wide)):
        provider = CpuManager(MACHINE, Rules(cpu=CpuRules(options=base)))
        for asked in (chosen(), chosen(*node_wide)):
            assert provider.with_options(asked).options == base


@pytest.mark.parametrize("text", ["", "yes", "tRUE", " true", "10", "on", 'a"b'])
def test_go_takes_no_other_boolean(text: str) -> None:
    """A CPU manager option's value (rule 0.3) is refused in Go's words."""
    with pytest.raises(MalformedError, match=r"^strconv\.ParseBool: parsing \".*\": invalid syntax$"):
        parse_bool(text)


def test_gos_booleans() -> None:
    """Go takes exactly these spellings of a boolean (rule 0.3)."""
    assert all(parse_bool(text) for text in ("1", "t", "T", "TRUE", "true", "True"))
    assert not any(parse_bool(text) for text in ("0", "f", "F", "FALSE", "false", "False"))
