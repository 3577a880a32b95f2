"""cpuManagerPolicyOptions as raw strings -> CpuOptions, checked as the kubelet does at its start (rules 0.3, 4.1).

Which options there are, and what excludes what, is in the table (`agent.model.rules.CpuOptions`). Each SettingsError
carries the kubelet's sentence first and the remedy after a semicolon. Used by `agent.settings` for the file, and by
the parity harness. `check_machine` needs the hardware: `agent.core.cpus.provider` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.errors import MalformedError, SettingsError
from agent.model.go import parse_bool, quoted
from agent.model.rules import NODE_OPTIONS, CpuOption, CpuOptions, Maturity, Minor, Policy

KEY = "cpuManagerPolicyOptions"


def cpu_options(
    options: Mapping[str, str], *, alpha: bool = True, beta: bool = True, minor: Minor | None = None
) -> CpuOptions:
    """Check the options of the static policy.

    Args:
        options: option -> text, as in the file.
        alpha: gate CPUManagerPolicyAlphaOptions. numalign leaves it open unless it is switched off by name.
        beta: gate CPUManagerPolicyBetaOptions.
        minor: the kubelet whose stages of the options count; None: the newest.

    Raises:
        SettingsError: the first of the kubelet's checks that fails.
    """
    closed = {Maturity.ALPHA: not alpha, Maturity.BETA: not beta}
    chosen: dict[str, bool] = {}
    for name, value in sorted(options.items()):  # the kubelet's order is random where several are wrong
        option = _available(name, closed, minor)
        try:
            chosen[option.field] = parse_bool(value)
        except MalformedError as error:
            raise SettingsError(
                f"{KEY}.{name}", f'bad value for option "{name}": {error}; write "true" or "false"'
            ) from None
    found = CpuOptions(**chosen)
    clash = found.clash()
    if clash:
        first, second = clash
        raise SettingsError(
            KEY, f"static policy options {first} and {second} can not be used at the same time; leave one of them out"
        )
    return found


def check_machine(options: CpuOptions, policy: Policy, *, sockets: int, nodes: int) -> None:
    """Check the options against the Topology Manager's policy and the hardware.

    Args:
        options: the options in force.
        policy: topologyManagerPolicy.
        sockets: sockets of the machine.
        nodes: NUMA nodes that have CPUs.

    Raises:
        SettingsError: with the kubelet's sentence.
    """
    barred = options.barred(policy)
    if barred:
        raise SettingsError(
            f"{KEY}.{barred}",
            f"Topolgy manager {policy} policy is incompatible with CPUManager {barred} policy option; "
            "choose another topologyManagerPolicy, or leave the option out",
        )
    if options.align_by_socket and sockets > nodes:
        raise SettingsError(
            f"{KEY}.align-by-socket",
            "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA; "
            "leave the option out on this machine",
        )


def _available(name: str, closed: Mapping[Maturity, bool], minor: Minor | None) -> CpuOption:
    if name not in NODE_OPTIONS:
        raise SettingsError(
            KEY,
            f"unknown CPU Manager Policy option: {quoted(name)}; "
            f"kubelets up to {max(Minor)} know {', '.join(sorted(NODE_OPTIONS))}",
        )
    option = NODE_OPTIONS[name]
    stage = option.stage(minor)
    if closed.get(stage):
        word = stage.capitalize()
        raise SettingsError(
            f"{KEY}.{name}",
            f'CPU Manager Policy {word}-level Options not enabled, but option "{name}" provided; '
            f"set the feature gate CPUManagerPolicy{word}Options to true",
        )
    return option
