"""topologyManagerPolicy, -Scope and -PolicyOptions as raw strings -> TopologyRules, checked as the kubelet does.

The checks, their order and their sentences are those of the kubelet's start (rule 3.2). Each SettingsError carries
the kubelet's sentence first and the remedy after a semicolon. Used by `agent.settings`, for the file and annotations.
Kubelet 1.34 has max-allowable-numa-nodes as beta; later ones have no option that is not stable, so that the gates
TopologyManagerPolicyAlphaOptions and -BetaOptions change nothing there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent.errors import MalformedError, SettingsError
from agent.model.go import parse_bool, quoted
from agent.model.machine import Machine
from agent.model.rules import Compatibility, Minor, Policy, Scope, TopologyRules

PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_NODES = "max-allowable-numa-nodes"
LEAST_LIMIT = 8

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_OPTIONS = "topologyManagerPolicyOptions"


def topology_rules(
    policy: str,
    scope: str = "container",
    options: Mapping[str, str] | None = None,
    *,
    machine: Machine | None = None,
    compatibility: Compatibility = Compatibility.FIXED,
    beta: bool = True,
) -> TopologyRules:
    """Check the three settings, against a machine too where one is given.

    Under Compatibility.KUBELET, policy none looks at nothing else (rule 2.3: scopes are not even read), and a machine
    with more NUMA nodes than max-allowable-numa-nodes is refused; otherwise everything is checked, and no machine is
    too large. Without `beta` the option that is beta in kubelet 1.34 is refused, as there without its gate.

    Raises:
        SettingsError: the first of the kubelet's checks that fails.
    """
    if policy == Policy.NONE and compatibility is Compatibility.KUBELET:
        return TopologyRules()
    closest, limit = parse_options(options or {})
    if MAX_NODES in (options or {}) and not beta:
        raise _fault(
            f"{_OPTIONS}.{MAX_NODES}",
            f'topology manager policy beta-level options not enabled, but option "{MAX_NODES}" provided',
            "set the feature gate TopologyManagerPolicyBetaOptions to true",
        )
    if machine is not None:
        _check_machine(machine, limit, closest=closest, compatibility=compatibility)
    if policy not in set(Policy):
        raise _fault("topologyManagerPolicy", f"unknown policy: {quoted(policy)}", f"one of {', '.join(Policy)}")
    if scope not in set(Scope):
        raise _fault("topologyManagerScope", f"unknown scope: {quoted(scope)}", f"one of {', '.join(Scope)}")
    return TopologyRules(Policy(policy), Scope(scope), closest, limit)


def no_options(options: Mapping[str, str]) -> SettingsError:
    """Why there may be no options while the gate for them is switched off."""
    asked = " ".join(f"{name}:{value}" for name, value in sorted(options.items()))[:200]
    return _fault(
        _OPTIONS,
        f'topology manager policy options map[{asked}] require feature gates "TopologyManagerPolicyOptions" enabled',
        "do not switch that gate off, or remove the options",
    )


def parse_options(options: Mapping[str, str]) -> tuple[bool, int]:
    """(prefer-closest-numa-nodes, max-allowable-numa-nodes); raises SettingsError."""
    closest, limit = False, LEAST_LIMIT
    for name, value in sorted(options.items()):  # the kubelet's order is random where several are wrong
        key = f"{_OPTIONS}.{name}"
        if name == PREFER_CLOSEST:
            closest = _boolean(key, name, value)
        elif name == MAX_NODES:
            limit = _limit(key, name, value)
        else:
            raise _fault(
                _OPTIONS,
                f"unknown Topology Manager Policy option: {quoted(name)}",
                f"kubelets up to {max(Minor)} know {PREFER_CLOSEST} and {MAX_NODES}",
            )
    return closest, limit


def _boolean(key: str, name: str, value: str) -> bool:
    try:
        return parse_bool(value)
    except MalformedError as error:
        raise _fault(key, f'bad value for option "{name}": {error}', 'write "true" or "false"') from None


def _limit(key: str, name: str, value: str) -> int:
    if not _INTEGER.fullmatch(value):
        raise _not_an_integer(key, name, value, "invalid syntax")
    limit = int(value) if len(value) <= len("-9223372036854775808") else 1 << 63
    if not -(1 << 63) <= limit < 1 << 63:
        raise _not_an_integer(key, name, value, "value out of range")
    if limit < LEAST_LIMIT:
        raise _fault(
            key,
            f'the minimum value of "{name}" should not be less than {LEAST_LIMIT}',
            "leave it out, or raise it to the number of NUMA nodes",
        )
    return limit


def _not_an_integer(key: str, name: str, value: str, why: str) -> SettingsError:
    sentence = f'unable to convert policy option to integer "{name}": strconv.Atoi: parsing {quoted(value)}: {why}'
    return _fault(key, sentence, f"write a whole number of at least {LEAST_LIMIT}")


def _check_machine(machine: Machine, limit: int, *, closest: bool, compatibility: Compatibility) -> None:
    if closest and not all(node.distances for node in machine.nodes):
        silent = ", ".join(str(node.id) for node in machine.nodes if not node.distances)
        raise _fault(
            f"{_OPTIONS}.{PREFER_CLOSEST}",
            "cannot discover NUMA topology: error getting NUMA distances from cadvisor",
            f"NUMA node {silent} of this machine has no distance file; leave the option out",
        )
    if len(machine.nodes) > limit and compatibility is Compatibility.KUBELET:
        raise _fault(
            f"{_OPTIONS}.{MAX_NODES}",
            f"unsupported on machines with more than {limit} NUMA Nodes",
            f"this machine has {len(machine.nodes)}; set it to at least that, or compatibility to fixed",
        )


def _fault(key: str, sentence: str, remedy: str) -> SettingsError:
    return SettingsError(key, f"{sentence}; {remedy}")
