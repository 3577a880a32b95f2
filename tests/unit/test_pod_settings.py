"""A pod's annotations: what is understood; a mistake falls back to the default of the node with a helpful word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.request.annotations import PodSettings, pod_settings
from agent.model.notes import MORE
from agent.model.pod import Container
from agent.model.rules import CpuOptions, OnMisalignment, Policy, Scope
from tests.world.pods import pod


def read(options: CpuOptions | None = None, /, **annotations: str) -> PodSettings:
    """What a pod with these annotations (without the prefix, _ for -) asks for."""
    named = {f"numalign.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return pod_settings(pod("u", Container("c"), annotations=named), options or CpuOptions(), Policy.BEST_EFFORT)


@pytest.mark.parametrize(
    ("names", "more", "why"),
    [
        (["qqq"], "", ""),
        (["qqq", "scop"], "", "; nor are numalign.io/scop"),
        (["qqq", "scop", "x"], "", "; nor are numalign.io/scop, numalign.io/x"),
        (["qqq"], "7", " and 7 more"),
    ],
)
def test_a_typing_error_in_a_name_is_told_in_one_sentence(names: list[str], more: str, why: str) -> None:
    """An annotation that does nothing is named, with those that there are."""
    named = {f"numalign.io/{name}": "on" for name in names} | ({MORE: more} if more else {})
    (problem,) = pod_settings(pod("u", Container("c"), annotations=named), CpuOptions(), Policy.BEST_EFFORT).problems
    assert str(problem).startswith(f"numalign.io/{names[0]}: is no annotation of numalign")
    known = sorted(f"numalign.io/{name}" for name in ("policy", "scope", "pin", "devices", "move-memory"))
    said, _, also = problem.why.partition("move-memory")
    assert said.startswith("is no annotation of numalign, which are numalign.io/")
    assert set(known) <= set(f"{said}move-memory".replace("which are ", ", ").split(", "))
    assert also.endswith(why)
    assert ("; nor are" in also) == ("; nor are" in why)


def test_what_was_meant_stands_instead_of_all_names() -> None:
    """A name that is close to a known one is told with that one alone."""
    (problem,) = read(polcy="restricted").problems
    assert problem.why == "is no annotation of numalign"
    assert problem.meant == "numalign.io/policy"


def test_a_pod_that_asks_nothing_gets_the_defaults() -> None:
    """No annotation, no opinion, no problem."""
    assert read() == PodSettings()


def test_every_annotation_is_understood() -> None:
    """All of them together."""
    assert read(
        policy="restricted", scope="pod", on_misalignment="wait", cpu_options="full-pcpus-only=true",
        devices="numalign.io/nic=2, a.b/c=1", align="numa, memory", pin="false", move_memory="true",
    ) == PodSettings(
        policy=Policy.RESTRICTED, scope=Scope.POD, on_misalignment=OnMisalignment.WAIT,
        cpu_options=CpuOptions(full_pcpus_only=True), devices={"numalign.io/nic": 2, "a.b/c": 1}, pin=False,
        move_memory=True,
    )  # fmt: skip


def test_a_pods_options_are_laid_over_the_nodes() -> None:
    """What the pod does not name stays as the node has it; naming false turns an option off."""
    base = CpuOptions(full_pcpus_only=True, strict_reservation=True)
    assert read(base, cpu_options="align-by-socket=1").cpu_options == CpuOptions(
        full_pcpus_only=True, strict_reservation=True, align_by_socket=True
    )
    assert read(base, cpu_options="full-pcpus-only=false").cpu_options == CpuOptions(strict_reservation=True)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("policy", "strict", "none, best-effort, restricted, single-numa-node"),
        ("scope", "", "container, pod"),
        ("on_misalignment", "kill", "fail, wait, evict, run"),
        ("cpu_options", "full-pcpus=true", "full-pcpus-only"),
        ("cpu_options", "full-pcpus-only", "neither true nor false"),
        ("cpu_options", "full-pcpus-only=true,distribute-cpus-across-cores=true", "exclude each other"),
        ("cpu_options", "strict-cpu-reservation=true", "not one of"),
        ("devices", "nic", "numalign.io/nic=1"),
        ("devices", "a.b/c=0", "numalign.io/nic=1"),
        ("align", "socket", "numa | numa,memory"),
        ("pin", "maybe", "neither true nor false"),
        ("memory_policy", "interleaved", "interleave, preferred, bind"),
        ("memory_policy", "bind,interleave", "interleave, preferred, bind"),
        ("polcy", "restricted", "numalign.io/policy"),
    ],
)
def test_a_mistake_is_told_and_the_default_applies(key: str, value: str, told: str) -> None:
    """The problem names the annotation, the value and what is allowed; nothing else of the pod changes."""
    result = read(**{key: value})
    (problem,) = result.problems
    assert told in str(problem)
    assert "default of the node applies" in str(problem)
    others = {name: getattr(result, name) for name in PodSettings.__slots__ if name != "problems"}
    assert read() == PodSettings(**others)


def test_align_by_socket_excludes_single_numa_node() -> None:
    """As at the kubelet's start, but per pod."""
    result = read(policy="single-numa-node", cpu_options="align-by-socket=true")
    assert result.cpu_options is None
    assert "single-numa-node" in str(result.problems[0])


def test_what_the_agent_wrote_itself_is_no_problem() -> None:
    """The result annotations come back with every event of the pod."""
    assert read(assignment="{}", cpus="1", numa_nodes="0") == PodSettings()


@given(annotations=st.dictionaries(st.sampled_from(["policy", "cpu_options", "devices", "align", "x"]), st.text()))
def test_no_text_raises(annotations: dict[str, str]) -> None:
    """Any text is understood or a problem."""
    for problem in read(**annotations).problems:
        assert problem.annotation.startswith("numalign.io/")
