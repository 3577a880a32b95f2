"""Own and shared CPUs of mixed containers, through any history of pods, resizes, other settings and restarts."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.core.accounting.invariants import check
from agent.core.cgroups.desired import share
from agent.model.idset import CpuSet
from agent.model.ledgerjson import ledger_from_json, ledger_to_json
from agent.model.podspec import pod_from
from agent.node.state import State
from tests.examples import examples
from tests.world.manifests import container, manifest
from tests.world.nodes import managers_of
from tests.world.steps import Changed, Ended, Event, Freed, Seen, at_first, step

MACHINE = "2 sockets x 1 node x 4 cores x 2 threads"
RESERVED = ("0", "15", "0-1", "3,8", "14-15")
SIDE: dict[str, Any] = {"resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}}}
node_settings = st.fixed_dictionaries(
    {
        "reservedSystemCPUs": st.sampled_from(RESERVED),
        "mixedSharedCPUs": st.sampled_from(["reserved", "reserved", "pool", "none"]),
        "cpuManagerPolicyOptions": st.sampled_from([{}, {}, {"strict-cpu-reservation": "true"}]),
        "exclusiveNamespaces": st.sampled_from([["*"], ["*", "default"]]),
    }
)
sizes = st.sampled_from(["1", "2", "3", "5", "1500m"])


class MixedMachine(RuleBasedStateMachine):
    """One node; `parts` is what a mixed container had for its shared part when it was admitted."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.now = 0, 1.0
        self.state: State | None = None
        self.pods: dict[str, dict[str, Any]] = {}
        self.parts: dict[str, CpuSet] = {}

    @initialize(document=node_settings)
    def begin(self, document: dict[str, Any]) -> None:
        """An empty node."""
        self.state = at_first(managers_of(MACHINE, document))

    def happens(self, event: Event) -> State:
        """One event, a second after the one before."""
        assert self.state is not None
        self.now += 1
        self.state = step(self.state, event, self.now).state
        return self.state

    def body(self, uid: str, drawn: dict[str, Any], cpu: str) -> dict[str, Any]:
        """A pod with two containers that may be mixed, and one that shares."""
        both = (container("a", cpu=cpu), container("b", cpu="1"), container("side", cpu="", memory="") | SIDE)
        return manifest(uid, *both[: 2 + drawn["side"]], created=int(uid[1:]), exclusive="auto", mixed=drawn["names"])

    @rule(names=st.sampled_from(["a", "a,b", "b", "side", "typo"]), side=st.booleans(), cpu=sizes)
    def admit(self, names: str, side: bool, cpu: str) -> None:  # noqa: FBT001 - drawn
        """A pod comes."""
        self.count += 1
        uid, drawn = f"p{self.count}", {"names": names, "side": side}
        state = self.happens(Seen(pod_from(self.body(uid, drawn, cpu))))
        self.pods[uid] = drawn
        for name, part in state.ledger.cpus.mixed.get(uid, {}).items():
            assert name in names.split(",")
            assert state.node.rules.mixed != "none"
            strict = state.node.rules.cpu.options.strict_reservation and state.node.rules.mixed == "reserved"
            assert not strict or "default" in state.node.rules.exclusive_namespaces
            assert bool(part) == (state.node.rules.mixed == "reserved")
            assert part.issubset(state.node.reserved)
            self.parts[f"{uid}/{name}"] = part

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), cpu=sizes)
    def resize(self, data: st.DataObject, cpu: str) -> None:
        """A pod asks for another number of CPUs, whole or not."""
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        self.happens(Seen(pod_from(self.body(uid, self.pods[uid], cpu))))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A pod ends, and its cgroups go."""
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        self.happens(Ended(uid))
        self.happens(Freed(uid))
        del self.pods[uid]
        self.parts = {spot: part for spot, part in self.parts.items() if not spot.startswith(f"{uid}/")}

    @rule(document=node_settings)
    def other_settings(self, document: dict[str, Any]) -> None:
        """Other CPUs are reserved, or others are to be shared: whoever runs keeps what it has."""
        self.happens(Changed(managers_of(MACHINE, document)))

    @rule()
    def restart(self) -> None:
        """The agent starts again over what it saved."""
        assert self.state is not None
        loaded = ledger_from_json(json.loads(json.dumps(ledger_to_json(self.state.ledger))))
        assert loaded == self.state.ledger
        self.state = at_first(self.state.node, loaded)

    @invariant()
    def the_shared_part_stays(self) -> None:
        """It is what it was at the admission, for as long as the pod is there."""
        if self.state is None:
            return
        mixed = self.state.ledger.cpus.mixed
        now = {f"{uid}/{name}": part for uid, parts in mixed.items() for name, part in parts.items()}
        assert now == self.parts

    @invariant()
    def nobody_is_on_anothers_own_cpus(self) -> None:
        """What every container may use meets nobody else's own CPUs; a mixed one's set is its own and its part."""
        if self.state is None:
            return
        ledger, node = self.state.ledger, self.state.node
        check(ledger, node, earlier=tuple(ledger.pods))
        sets = {
            (uid, each.name): share(ledger, uid, each.name, node.rules, node.machine)
            for uid, record in ledger.pods.items()
            for each in record.pod.containers
        }
        for spot, want in sets.items():
            own = ledger.grant(*spot).cpus or CpuSet()
            for other, its in sets.items():
                assert spot == other or not own & (its.cpus or CpuSet()), (spot, other)
            part = self.parts.get("/".join(spot))
            if own and part is not None:
                assert want.cpus == own | (part or ledger.cpus.shared)
                assert want.shared == (part or ledger.cpus.shared)
            else:
                assert want.cpus == (own or ledger.cpus.shared)


MixedMachine.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=12, deadline=None)
TestMixed = MixedMachine.TestCase
