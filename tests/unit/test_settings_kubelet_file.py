"""A kubelet's own file means to numalign what it means to the kubelet: numbers, empty keys, gates, merges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.app.setup import made
from agent.app.statedir.node_allocatable import NodeAllocatable
from agent.cli.config import command
from agent.core.machines.synthetic import parse_synthetic
from agent.errors import SettingsError
from agent.host.settings_file import read_text
from agent.model.machine import Machine
from agent.model.rules import CpuOptions, Minor
from agent.settings import Settings, parse, rules_of
from agent.settings.reserved_cpus import reserved_count
from agent.settings.to_rules import cpu_options_of, reserved_memory

MACHINE = parse_synthetic("2 sockets x 4 cores x 2 threads, 8G per node")
KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def of(text: str) -> Settings:
    """The settings of a file."""
    return read_text(text.encode(), "config.yaml").settings


def check(*words: str, given: str | None = None) -> Result:
    """`numalign config check`."""
    return CliRunner().invoke(command, ["check", *words], input=given)


@pytest.mark.parametrize(
    ("text", "seconds", "between"),
    [
        ("0s", 10.0, 10.0), ("0", 10.0, 10.0), ("0h0m", 10.0, 10.0), ("5s", 5.0, 5.0), ("+1m", 60.0, 60.0),
        ("500ms", 0.5, 1.0), ("-5s", -5.0, 1.0), (".5s", 0.5, 1.0), ("100us", 0.0001, 1.0), ("100µs", 0.0001, 1.0),
        ("3ns", 3e-9, 1.0), ("9999h", 35996400.0, 35996400.0), ("1h30m0.5s", 5400.5, 5400.5),
    ],
)  # fmt: skip
def test_a_reconcile_period_is_read_as_go_reads_it(text: str, seconds: float, between: float) -> None:
    """Zero is unset, as any Go program writes it; numalign compares at most once a second."""
    settings = parse({"cpuManagerReconcilePeriod": text})[0]
    assert settings.cpu_manager_reconcile_period == seconds
    assert settings.reconcile_seconds == between
    assert parse(json.loads(json.dumps(settings.shown())))[0] == settings


def test_the_file_of_a_kubeadm_node_is_usable(tmp_path: Path) -> None:
    """A Go program writes durations that are not set as 0s; the keys that are not needed make one line."""
    file = tmp_path / "config.yaml"
    file.write_text(
        f"{KUBELET}authentication: {{anonymous: {{enabled: false}}}}\ncgroupDriver: systemd\nclusterDNS: [10.0.0.1]\n"
        "cpuManagerReconcilePeriod: 0s\nevictionPressureTransitionPeriod: 0s\nlogging: {flushFrequency: 0}\n"
        "memorySwap: {}\nstaticPodPath: /etc/kubernetes/manifests\n"
    )
    result = check(str(file))
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert sum("does not need" in line for line in lines) == 1
    assert lines[-1].endswith(
        "authentication, cgroupDriver, clusterDNS, evictionPressureTransitionPeriod, logging, memorySwap, "
        "staticPodPath"
    )


EMPTY = (
    "cpuManagerPolicy", "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod", "evictionHard", "featureGates",
    "kubeReserved", "memoryManagerPolicy", "mergeDefaultEvictionSettings", "reservedMemory", "reservedSystemCPUs",
    "systemReserved", "topologyManagerPolicy", "topologyManagerPolicyOptions", "topologyManagerScope", "maxPods",
)  # fmt: skip


@pytest.mark.parametrize("key", EMPTY)
@pytest.mark.parametrize("value", ["", " ~", " null"])
def test_a_key_without_a_value_is_unset(key: str, value: str) -> None:
    """It is what is left where the lines below are commented out, or of a template."""
    assert of(f"{key}:{value}") == Settings()


@pytest.mark.parametrize(
    "key",
    [
        "cpuManagerPolicy",
        "memoryManagerPolicy",
        "topologyManagerPolicy",
        "topologyManagerScope",
        "reservedSystemCPUs",
    ],
)
def test_an_empty_text_is_unset(key: str) -> None:
    """As for the kubelet, whose defaults come in for an empty text."""
    assert of(f'{key}: ""') == Settings()


@pytest.mark.parametrize("value", ['""', "", "null"])
@pytest.mark.parametrize("key", ["kubeReservedCgroup", "systemReservedCgroup"])
def test_an_emptied_cgroup_name_goes_with_reserved_cpus(key: str, value: str) -> None:
    """Distributions set these names, and reservedSystemCPUs needs them emptied; a name that is set is refused."""
    assert str(of(f'reservedSystemCPUs: "0-1"\n{key}: {value}').reserved_system_cpus) == "0-1"
    with pytest.raises(SettingsError, match=f'remove one of them, or set {key}: ""'):
        of(f'reservedSystemCPUs: "0-1"\n{key}: /kube.slice')


SUM = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "4Gi"}}]}


def test_a_sum_that_needs_no_machine_is_checked_without_one() -> None:
    """The sentence names the parts; a share of the machine's memory needs the machine."""
    reserved = {"kubeReserved": {"memory": "2Gi"}, "systemReserved": {"memory": "2Gi"}}
    with pytest.raises(SettingsError, match=r'"4196Mi".*\(2Gi \+ 2Gi \+ 100Mi\)$'):
        parse({**SUM, **reserved})
    settings = parse({**SUM, **reserved, "evictionHard": {"memory.available": "5%"}})[0]
    with pytest.raises(SettingsError, match=r"is not equal .*\(2Gi \+ 2Gi \+ \d+\)$"):
        rules_of(settings, MACHINE)
    assert parse({**SUM, **reserved, "evictionHard": {"memory.available": "0%"}})


def test_reserved_memory_alone_stands_where_the_node_reserves_elsewhere() -> None:
    """The usual form where a node's systemReserved is made by something else: sums agree, and a mismatch is said."""
    body = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}]}
    for kept, said in (
        (None, "not compared"), (NodeAllocatable(1000, 1124 << 20, known=True), ""),
        (NodeAllocatable(1000, 2048 << 20, known=True), "capacity less allocatable is 2Gi: make them equal"),
    ):  # fmt: skip
        found = made(parse(body)[0], MACHINE, (), kept)
        assert found.node.rules.memory.reserved == {0: {"memory": 1124 << 20}}
        assert said in " ".join(found.remarks)
        assert bool(found.remarks) is bool(said)


def test_under_the_kubelets_answers_sums_are_the_kubelets() -> None:
    """The sum of reservedMemory must be what the Node keeps back, or what the file says where there is no Node."""
    body = {
        "memoryManagerPolicy": "Static", "compatibility": "kubelet", "kubeReserved": {"cpu": 1},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
    }  # fmt: skip
    settings = parse(body)[0]
    assert made(settings, MACHINE, (), NodeAllocatable(1000, 1124 << 20, known=True)).node.rules.memory.static
    for kept in (None, NodeAllocatable(), NodeAllocatable(1000, 2048 << 20, known=True)):
        with pytest.raises(SettingsError, match="is not equal to the value"):
            made(settings, MACHINE, (), kept)


def test_static_memory_alone_is_what_it_is_on_a_node() -> None:
    """`config check --root`, `run` and `explain` take what `simulate` and a cluster take, and say whence."""
    found = made(parse({"memoryManagerPolicy": "Static"})[0], MACHINE)
    assert sum(each["memory"] for each in found.node.rules.memory.reserved.values()) == 100 << 20
    assert found.remarks[0].startswith("reservedMemory is not set: on a node it follows from the Node's allocatable")


@pytest.mark.parametrize(
    ("amount", "minor", "count"),
    [
        ("1.0004", Minor.V1_36, 2), ("1.0004", Minor.V1_37, 1), ("1.0005", Minor.V1_37, 2), ("400u", Minor.V1_36, 1),
        ("0.9999999", Minor.V1_37, 1), ("1500m", Minor.V1_37, 2),
    ],
)  # fmt: skip
def test_kubelet_1_37_rounds_reserved_cpus_to_the_nearest_thousandth(amount: str, minor: Minor, count: int) -> None:
    """Older ones round up; what the file says stays exact when it is shown and read again."""
    settings = parse({"kubeReserved": {"cpu": amount}, "compatibility": f"kubelet-{minor}"})[0]
    again = parse(json.loads(json.dumps(settings.shown())))[0]
    assert reserved_count(settings, MACHINE, 0, minor) == reserved_count(again, MACHINE, 0, minor) == count


def test_kubelet_1_37_reserves_nothing_of_less_than_half_a_thousandth() -> None:
    """It then does not start; parts are rounded one by one."""
    settings = parse(
        {"kubeReserved": {"cpu": "400u"}, "systemReserved": {"cpu": "400u"}, "compatibility": "kubelet"}
    )[0]
    with pytest.raises(SettingsError, match="unable to determine reserved CPU resources"):
        reserved_count(settings, MACHINE, 0, Minor.V1_37)


def test_parts_of_a_byte_are_added_before_they_are_rounded() -> None:
    """Quantities are exact until their sum is made bytes."""
    body = {"kubeReserved": {"memory": "1.5"}, "systemReserved": {"memory": "1.5"}, "evictionHard": {}}
    assert reserved_memory(parse(body)[0], MACHINE) == 3


ALPHA_OPTION = {"cpuManagerPolicyOptions": {"align-by-socket": "true"}}
BETA_OPTION = {"cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"}}


@pytest.mark.parametrize(
    ("body", "gates", "opens"),
    [
        (ALPHA_OPTION, {}, False), (ALPHA_OPTION, {"AllAlpha": True}, True),
        (ALPHA_OPTION, {"AllAlpha": True, "CPUManagerPolicyAlphaOptions": False}, False),
        (BETA_OPTION, {}, True), (BETA_OPTION, {"AllBeta": False}, False),
        (BETA_OPTION, {"AllBeta": False, "CPUManagerPolicyBetaOptions": True}, True),
    ],
)  # fmt: skip
def test_gates_of_a_stage_open_and_close_options(body: Any, gates: dict[str, bool], *, opens: bool) -> None:  # noqa: ANN401 - a document
    """AllAlpha and AllBeta stand for the gates that are not named; naming one goes before."""
    whole = {**body, "featureGates": gates, "compatibility": "kubelet-1.35"}
    if opens:
        assert cpu_options_of(parse(whole)[0]) != CpuOptions()
        return
    with pytest.raises(SettingsError, match="-level Options not enabled"):
        parse(whole)


@pytest.mark.parametrize(
    ("answers", "on"),
    [("kubelet-1.35", False), ("kubelet-1.36", False), ("kubelet-1.37", True), ("fixed", True)],
)
def test_all_beta_opens_what_is_beta_in_that_minor(answers: str, *, on: bool) -> None:
    """Pod-level managers became beta, and stay off by default, in 1.37; fixed goes by the newest."""
    settings, said = parse({"featureGates": {"AllBeta": True}, "compatibility": answers, "kubeReserved": {"cpu": 1}})
    assert rules_of(settings, MACHINE).pod_level_managers is on
    assert said == ()


@pytest.mark.parametrize(
    ("gates", "answers", "why"),
    [
        ({"CPUManagerPolicyOptions": False}, "kubelet-1.34", "locked to true in kubelet 1.34"),
        ({"TopologyManagerPolicyOptions": False}, "kubelet-1.35", ""),
        ({"TopologyManagerPolicyOptions": False}, "kubelet-1.36", "locked to true"),
        ({"DisableCPUQuotaWithExclusiveCPUs": False}, "kubelet-1.36", ""),
        ({"DisableCPUQuotaWithExclusiveCPUs": False}, "kubelet-1.37", "locked to true"),
        ({"PodLevelResources": False}, "kubelet-1.35", ""),
        ({"PodLevelResources": False}, "kubelet-1.37", "PodLevelResourcesFixDefaulting"),
        ({"AllBeta": False}, "kubelet-1.37", ""),
        ({"CPUManagerPolicyOptions": False}, "fixed", ""),
    ],
)
def test_gates_with_which_a_kubelet_does_not_start_are_refused_where_it_is_named(
    gates: dict[str, bool], answers: str, why: str
) -> None:
    """Locked gates, and gates that other gates depend on, by minor."""
    body = {"featureGates": gates, "compatibility": answers}
    if not why:
        assert parse(body)
        return
    with pytest.raises(SettingsError, match=why):
        parse(body)


NODE = "reservedMemory: [{{numaNode: {}, limits: {{memory: {}}}}}]"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("featureGates: {CPUManagerPolicyAlphaOptions: n}", "featureGates: {CPUManagerPolicyAlphaOptions: false}"),
        ("featureGates: {CPUManagerPolicyAlphaOptions: }", "featureGates: {CPUManagerPolicyAlphaOptions: false}"),
        ("mergeDefaultEvictionSettings: Y", "mergeDefaultEvictionSettings: true"),
        (NODE.format("010", "1e3"), NODE.format("8", "1000")),
        (NODE.format("0o10", "1Ki"), NODE.format("8", "1024")),
        (NODE.format("08", "1Ki"), NODE.format("8", "1024")),
        (NODE.format("1.0", "1Ki"), NODE.format("1", "1024")),
        ("pcieLocality: off", 'pcieLocality: "off"'),
        ("pcieLocality: no", 'pcieLocality: "off"'),
        ('{"kubeReserved": {"cpu": "1"}}', "kubeReserved: {cpu: 1}"),
        ('{\n\t"kubeReserved": {\n\t\t"cpu": "1"\n\t}\n}\n', "kubeReserved: {cpu: 1}"),
    ],
)  # fmt: skip
def test_yaml_is_read_as_the_kubelet_reads_it(text: str, same: str) -> None:
    """Short booleans, octal and floating numbers, JSON with tabs; a bare off is off."""
    assert of(text) == of(same)


def test_an_amount_that_no_policy_reads_may_be_negative() -> None:
    """Kubelets start with it under policy None, which keeps nothing back, and so does numalign."""
    text = f"{KUBELET}cpuManagerPolicy: none\n{NODE.format(1, '-1Mi')}\n"
    found = json.loads(check("-", "--output", "json", given=text).output)
    assert found["settings"]["memoryManagerPolicy"] == "None"
    assert found["settings"]["reservedMemory"] == [{"numaNode": 1, "limits": {"memory": "-1048576"}}]
    assert rules_of(of(NODE.format(1, "-1Mi")), MACHINE).memory.reserved == {}


def test_sixties_are_no_numbers() -> None:
    """1:30 would be 90 CPUs in YAML 1.1; Go has no such number."""
    with pytest.raises(SettingsError, match='"1:30" is not a quantity'):
        of("kubeReserved: {cpu: 1:30}")


MERGED = "systemReserved: &base {cpu: 2}\nkubeReserved: {cpu: 3, <<: *base}\n"


@pytest.mark.parametrize(
    ("more", "cpus"), [("", 3000), ("compatibility: kubelet-1.37\n", 2000), ("compatibility: kubelet\n", 2000)]
)
def test_a_merge_key_after_a_key_wins_as_in_the_kubelet_only_for_its_answers(more: str, cpus: int) -> None:
    """In YAML a mapping's own key wins wherever the merge key stands."""
    assert of(MERGED + more).kube_reserved["cpu"] == cpus


def test_a_merge_of_several_goes_by_their_order() -> None:
    """The first of a list of mappings wins, before the mapping's own earlier keys under the kubelet's answers."""
    text = "systemReserved: &a {cpu: 2}\nkubeReserved: {cpu: 3, <<: [*a, {cpu: 9, memory: 1Gi}]}\n"
    assert of(text).kube_reserved == {"cpu": 3000, "memory": 1000 << 30}
    assert of(f"{text}compatibility: kubelet\n").kube_reserved == {"cpu": 2000, "memory": 1000 << 30}


def test_standard_input_is_read() -> None:
    """The kubelet's /configz comes by a pipe; errors name standard input."""
    result = check("-", "--output", "json", given=f"{KUBELET}cpuManagerPolicy: static\n")
    assert json.loads(result.output)["settings"]["cpuManagerPolicy"] == "static"
    wrong = check("-", "--output", "json", given="cpuManagerPolcy: static\n")
    assert json.loads(wrong.output)["key"] == "cpuManagerPolcy"
    assert json.loads(wrong.output)["error"].startswith("standard input: cpuManagerPolcy: ")


@pytest.mark.parametrize(
    ("text", "key", "error"),
    [
        ("cpuManagerPolicy: fast", "cpuManagerPolicy", "c.yaml: cpuManagerPolicy: "),
        ("a: 1\na: 2", "", "c.yaml:2: "),
        ("[]", "", "c.yaml: the configuration must be"),
    ],
)
def test_the_key_of_a_json_answer_has_no_path(tmp_path: Path, text: str, key: str, error: str) -> None:
    """Programs read the key; people read the error, which has the file."""
    file = tmp_path / "c.yaml"
    file.write_text(text)
    answer = json.loads(check(str(file), "--output", "json").output)
    assert (answer["usable"], answer["key"]) == (False, key)
    assert f"{tmp_path}/{error}" in answer["error"]


def test_a_file_that_pins_nothing_says_so(tmp_path: Path) -> None:
    """Policy none is what the kubelet of a node that numalign serves says of itself."""
    file = tmp_path / "c.yaml"
    file.write_text(f"{KUBELET}cpuManagerPolicy: none\ntopologyManagerPolicy: none\n")
    assert "cpuManagerPolicy is none: no pod gets CPUs of its own" in check(str(file)).output
    on_machine = check(str(file), "--root", "synthetic:1 socket x 4 cores, 8G per node").output
    assert on_machine.count("no pod gets CPUs of its own") == 1
    found = made(of(file.read_text()), Machine(MACHINE.cpus, MACHINE.nodes))
    assert "no pod gets CPUs of its own" in found.remarks[0]


def test_what_no_machine_was_held_against_is_named(tmp_path: Path) -> None:
    """A CPU or a NUMA node that does not exist is only found on the machine."""
    file = tmp_path / "c.yaml"
    file.write_text('reservedSystemCPUs: "0-1"\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n')
    assert "not tried on a machine: reservedMemory, reservedSystemCPUs; --root" in check(str(file)).output
    assert "not tried" not in check(str(file), "--root", "synthetic:1 socket x 4 cores, 8G per node").output


UNCORE = "prefer-align-cpus-by-uncorecache"


@pytest.mark.parametrize(
    ("option", "answers", "refused"),
    [
        (UNCORE, "kubelet-1.34", True), (UNCORE, "kubelet-1.35", True), (UNCORE, "kubelet-1.36", False),
        (UNCORE, "fixed", False),
        ("strict-cpu-reservation", "kubelet-1.34", True), ("strict-cpu-reservation", "kubelet-1.35", False),
        ("distribute-cpus-across-numa", "kubelet-1.37", True), ("distribute-cpus-across-numa", "fixed", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("gate", ["CPUManagerPolicyBetaOptions", "AllBeta"])
def test_an_option_needs_the_gate_of_its_stage_in_that_kubelet(
    gate: str, option: str, answers: str, *, refused: bool
) -> None:
    """An option that became stable in a later minor is still beta in this one (kubelet rule 0.3)."""
    body = {
        "compatibility": answers, "kubeReserved": {"cpu": "1"}, "featureGates": {gate: False},
        "cpuManagerPolicyOptions": {option: "true"},
    }  # fmt: skip
    if not refused:
        assert rules_of(parse(body)[0], MACHINE).cpu.static
        return
    with pytest.raises(SettingsError, match=f'Beta-level Options not enabled, but option "{option}" provided'):
        parse(body)


def test_a_node_s_own_kubelet_decides_the_stage_of_an_option() -> None:
    """`compatibility: kubelet` names no minor: the Node does, when the rules are made."""
    settings = parse({
        "compatibility": "kubelet", "kubeReserved": {"cpu": "1"}, "cpuManagerPolicyOptions": {UNCORE: "true"},
        "featureGates": {"CPUManagerPolicyBetaOptions": False},
    })[0]  # fmt: skip
    assert rules_of(settings, MACHINE, kubelet="v1.36.3").cpu.static
    with pytest.raises(SettingsError, match="Beta-level Options not enabled"):
        rules_of(settings, MACHINE, kubelet="v1.35.4")


@pytest.mark.parametrize(
    ("gate", "answers", "why"),
    [
        ("TopologyManagerPolicyOptions", "kubelet-1.34", '"TopologyManagerPolicyOptions" enabled'),
        ("TopologyManagerPolicyOptions", "kubelet-1.35", r"map\[max-allowable-numa-nodes:8\] require feature gates"),
        ("TopologyManagerPolicyOptions", "kubelet-1.36", "feature is locked to true in kubelet 1.36"),
        ("TopologyManagerPolicyOptions", "fixed", "do not switch that gate off, or remove the options"),
        ("TopologyManagerPolicyBetaOptions", "kubelet-1.34", "beta-level options not enabled"),
        ("AllBeta", "kubelet-1.34", 'but option "max-allowable-numa-nodes" provided'),
        ("TopologyManagerPolicyBetaOptions", "kubelet-1.35", ""), ("TopologyManagerPolicyBetaOptions", "fixed", ""),
    ],
)  # fmt: skip
def test_a_gate_that_is_switched_off_bars_the_topology_manager_s_options(gate: str, answers: str, why: str) -> None:
    """1.34 and 1.35 let the gate for all options be switched off; max-allowable-numa-nodes is beta in 1.34."""
    body = {
        "compatibility": answers, "kubeReserved": {"cpu": "1"}, "featureGates": {gate: False},
        "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "8"},
    }  # fmt: skip
    if not why:
        assert rules_of(parse(body)[0], MACHINE).topology.max_nodes == 8
        return
    with pytest.raises(SettingsError, match=why):
        parse(body)


@pytest.mark.parametrize(
    ("reserved", "why"),
    [
        ("{memory: 17Gi}", r'Resource "memory" has a reservation of 17508Mi but capacity of 16Gi'),
        ("{memory: 8Ei}", r'Resource "memory" has a reservation of .* but capacity of 16Gi\. Expected'),
        ('{cpu: "17"}', r'Resource "cpu" has a reservation of 17000m but capacity of 16\. Expected capacity >= res'),
        ("{memory: 16284Mi, cpu: 15999m}", ""),
    ],
)  # fmt: skip
def test_a_kubelet_refuses_to_reserve_more_than_the_machine_has(reserved: str, why: str) -> None:
    """Whatever the policies are; hard eviction counts (kubelet rule 5.1)."""
    text = f"{KUBELET}cpuManagerPolicy: none\nsystemReserved: {reserved}\n"
    rules_of(of(text), MACHINE)
    kubelet = of(f"{text}compatibility: kubelet-1.37\n")
    if not why:
        rules_of(kubelet, MACHINE)
        return
    with pytest.raises(SettingsError, match=why):
        rules_of(kubelet, MACHINE)


@pytest.mark.parametrize("text", ["{cpu: }", '{cpu: ""}', "{cpu: null, memory: 1Gi}"])
@pytest.mark.parametrize("key", ["kubeReserved", "systemReserved"])
def test_reserved_system_cpus_replace_a_number_that_was_emptied(key: str, text: str) -> None:
    """The kubelet does not read it then; without reservedSystemCPUs an empty quantity is refused."""
    assert "cpu" not in of(f'{KUBELET}reservedSystemCPUs: "0"\n{key}: {text}\n').shown()[key]
    with pytest.raises(SettingsError, match=f"{key}: cpu: "):
        of(f"{KUBELET}{key}: {text}\n")
