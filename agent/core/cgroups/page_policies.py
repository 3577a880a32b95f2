"""Which containers get a memory policy (numalign.io/memory-policy), over which nodes, and what is said of it. Pure.

Asked by the answers to the runtime (`agent.host.nri.decisions`), by the look at what the kernel shows
(`agent.app.service.memory_policies`), by explanations and by a release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.core.cgroups.desired import share
from agent.core.request.memory_policy import MEMORY_POLICY, MemoryPolicyWish, PagePolicy, wish_in, wish_of
from agent.model.idset import NodeSet
from agent.model.ledger import Ledger
from agent.model.machine import Machine
from agent.model.rules import Rules

_ONE = f"{MEMORY_POLICY} is not followed: the memory of none of its containers is bound to several NUMA nodes"
NEEDED = "a container gets it only when it is created, by NRI 0.12 and runc 1.4 (runc --version on the node tells it)"
MOVED = "the memory nodes changed after the start, and the kernel mapped the policy, or the program set it"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of the policy of one container.

    Attributes:
        shown: the policy in /proc/PID/numa_maps, "" where it could not be read.
        why: why it could not be read.
    """

    shown: str = ""
    why: str = ""


def page_policies(ledger: Ledger, uid: str, rules: Rules, machine: Machine) -> dict[str, PagePolicy]:
    """List the containers of a pod that get a policy; none of most pods."""
    record = ledger.pods.get(uid)
    wish = wish_of(record.pod, rules) if record else None
    found = dict[str, PagePolicy]()
    for container in record.pod.containers if record and wish else ():
        sets = share(ledger, uid, container.name, rules, machine)
        mems = sets.mems or NodeSet()
        if wish and len(mems) > 1:
            first = wish is MemoryPolicyWish.PREFERRED and sets.exclusive
            near = machine.nodes_of(sets.own) & mems if first else mems
            found[container.name] = PagePolicy(wish, near or mems)
    return found


def asked(ledger: Ledger, uid: str, rules: Rules, machine: Machine) -> tuple[str, ...]:
    """Say in sentences what a pod's containers ask the runtime for; none where the pod asks for nothing."""
    record = ledger.pods.get(uid)
    if record is None or wish_of(record.pod, rules) is None:
        return ()
    found = page_policies(ledger, uid, rules, machine)
    return tuple(
        f"numalign asks the runtime for the memory policy {policy} when it creates container {name} "
        f"({MEMORY_POLICY}); the condition numalign.io/Aligned says whether the kernel shows it"
        for name, policy in found.items()
    ) or (_ONE,)


def note(policies: Mapping[str, PagePolicy], seen: Mapping[str, Seen], runtime: str) -> str:
    """Say which policies of a pod that asks for one are in force: one sentence without an end; "" for none yet.

    Args:
        policies: of its containers.
        seen: of those that run.
        runtime: name and version of what creates containers; "" where it does not ask numalign.
    """
    if not policies:
        return _ONE
    return "; ".join(
        _told(name, policies[name], seen[name], runtime) for name in sorted(policies.keys() & seen.keys())
    )


def _told(name: str, policy: PagePolicy, seen: Seen, runtime: str) -> str:
    if seen.shown == str(policy):
        return f"container {name} has the memory policy {policy}"
    begin = f"the memory policy {policy} of container {name} is not in force"
    if seen.why:
        return f"{begin} as far as can be seen: {seen.why}"
    if seen.shown.partition(":")[0] == str(policy).partition(":")[0]:
        return f'{begin}: the kernel shows "{seen.shown}"; {MOVED}'
    whose = f"the runtime is {runtime}" if runtime else "no runtime asks numalign by NRI"
    return f'{begin}: the kernel shows "{seen.shown}", and {whose}; {NEEDED}'


def kept(ledger: Ledger) -> str:
    """Say what a release leaves of policies; "" where no pod asks for one."""
    pods = sum(wish_in(record.pod) is not None for record in ledger.pods.values())
    if not pods:
        return ""
    asks = "1 pod asks" if pods == 1 else f"{pods} pods ask"
    keeps = "a container that got it keeps it until it is started again, and the kernel may map it to other nodes"
    return f"{asks} for a memory policy ({MEMORY_POLICY}): {keeps}"
