"""cpuManagerPolicyOptions as raw strings -> CpuOptions, checked as the kubelet does at its start (rules 0.3, 4.1).

Each SettingsError carries the kubelet's sentence first and the remedy after a semicolon. Used by `agent.settings` for
the file, and by the parity harness. `check_machine` needs the hardware: `agent.core.cpus` calls it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields

from agent.errors import SettingsError
from agent.model.rules import CpuOptions, Policy

KEY = "cpuManagerPolicyOptions"

NAMES = {
    "full-pcpus-only": "full_pcpus_only",
    "strict-cpu-reservation": "strict_reservation",
    "prefer-align-cpus-by-uncorecache": "prefer_uncore",
    "distribute-cpus-across-numa": "distribute_across_numa",
    "align-by-socket": "align_by_socket",
    "distribute-cpus-across-cores": "distribute_across_cores",
}
"""Option -> field of CpuOptions, by maturity: three stable, one beta, two alpha."""

_ALPHA = frozenset({"align-by-socket", "distribute-cpus-across-cores"})
_BETA = frozenset({"distribute-cpus-across-numa"})
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_CLASHES = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)
"""In the order in which the kubelet looks, and in its order of words."""


def cpu_options(options: Mapping[str, str], *, alpha: bool = True, beta: bool = True) -> CpuOptions:
    """Check the options of the static policy.

    Args:
        options: option -> text, as in the file.
        alpha: gate CPUManagerPolicyAlphaOptions. numalign leaves it open unless it is switched off by name.
        beta: gate CPUManagerPolicyBetaOptions.

    Raises:
        SettingsError: the first of the kubelet's checks that fails.
    """
    chosen = {each.name: False for each in fields(CpuOptions)}
    for name, value in sorted(options.items()):  # the kubelet's order is random where several are wrong
        _available(name, alpha=alpha, beta=beta)
        if value not in _TRUE | _FALSE:
            sentence = f'bad value for option "{name}": strconv.ParseBool: parsing {_quoted(value)}: invalid syntax'
            raise SettingsError(f"{KEY}.{name}", f'{sentence}; write "true" or "false"')
        chosen[NAMES[name]] = value in _TRUE
    for first, second in _CLASHES:
        if chosen[NAMES[first]] and chosen[NAMES[second]]:
            raise SettingsError(
                KEY,
                f"static policy options {first} and {second} can not be used at the same time; leave one of them out",
            )
    return CpuOptions(**chosen)


def check_machine(options: CpuOptions, policy: Policy, *, sockets: int, nodes: int) -> None:
    """Check align-by-socket against the Topology Manager's policy and the hardware.

    Args:
        options: the options in force.
        policy: topologyManagerPolicy.
        sockets: sockets of the machine.
        nodes: NUMA nodes that have CPUs.

    Raises:
        SettingsError: with the kubelet's sentence.
    """
    if not options.align_by_socket:
        return
    key = f"{KEY}.align-by-socket"
    if policy is Policy.SINGLE_NUMA_NODE:
        raise SettingsError(
            key,
            "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option; "
            "choose another topologyManagerPolicy, or leave the option out",
        )
    if sockets > nodes:
        raise SettingsError(
            key,
            "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA; "
            "leave the option out on this machine",
        )


def _available(name: str, *, alpha: bool, beta: bool) -> None:
    if name not in NAMES:
        raise SettingsError(
            KEY, f"unknown CPU Manager Policy option: {_quoted(name)}; known are {', '.join(sorted(NAMES))}"
        )
    for group, gate, word in ((_ALPHA, alpha, "Alpha"), (_BETA, beta, "Beta")):
        if name in group and not gate:
            raise SettingsError(
                f"{KEY}.{name}",
                f'CPU Manager Policy {word}-level Options not enabled, but option "{name}" provided; '
                f"set the feature gate CPUManagerPolicy{word}Options to true",
            )


def _quoted(text: str) -> str:
    """As Go's %q for the texts that occur; long ones are cut."""
    return json.dumps(text[:80], ensure_ascii=False)
