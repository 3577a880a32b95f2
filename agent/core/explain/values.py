"""What an explanation consists of: frozen values, read by the command line, the node page and `simulate`.

    Explanation    one pod: verdict, summary and reasons in plain words, then the evidence
      Asked        what each container asked for, and why it gets no CPUs of its own where it gets none
      Merge        one merge of hints: what every list said, which set won, by which rule, and why the rest lost
      Got          what each container holds (or would)
      Remedy       one change that would have let the pod in; each was tried, none is guessed

Node sets are NodeSets, amounts whole CPUs, bytes or devices. `agent.core.explain.serialize` writes them as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agent.model.hint import Hint
from agent.model.idset import CpuSet, NodeSet
from agent.model.ledger import Block
from agent.model.outcome import Refusal
from agent.model.rules import Policy, Scope


class Verdict(StrEnum):
    """What came of it."""

    ALIGNED = "aligned"
    NOT_PREFERRED = "not-preferred"  # it is in, but not as well placed as its policy wishes
    SHARED = "shared"  # nothing to place: it runs on the shared pool
    REFUSED = "refused"
    UNSCHEDULABLE = "unschedulable"  # it requests more than the machine has for pods
    LEFT_ALONE = "left-alone"  # numalign does not touch it (safety rule S2), or its pod says so


class AsOf(StrEnum):
    """Which ledger the evidence was found on."""

    ADMISSION = "admission"  # reproduced: the same decision as the one that stands in the ledger
    NOW = "now"


class Origin(StrEnum):
    """Where a policy or scope comes from."""

    POD = "pod"  # its annotation, or its namespace's
    NODE = "node"  # the settings
    ADMISSION = "admission"  # the settings at that time; they have changed since
    CONFINED = "confined"  # numalign.io/align makes it the pod's scope


@dataclass(frozen=True, slots=True)
class RequestedResources:
    """What one container asks for.

    Attributes:
        container, kind: whose.
        cpus: exclusive CPUs; 0 when it shares.
        milli: its CPU request in thousandths.
        memory: resource -> bytes that the memory manager places; empty where it places none.
        devices: resource -> count.
        shares: why it gets no CPUs of its own, one sentence; "" when it does.
    """

    container: str
    kind: str
    cpus: int
    milli: int
    memory: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    shares: str = ""


class ListStance(StrEnum):
    """What one hint list says as a whole."""

    INDIFFERENT = "no preference"
    IMPOSSIBLE = "impossible"
    HINTS = "hints"


@dataclass(frozen=True, slots=True)
class HintList:
    """One hint list.

    Attributes:
        provider: "devices", "cpus", "memory", or another's name.
        resource: what it is about; "" where the provider as a whole had nothing to say.
        stand: what it says as a whole.
        amount: what is asked for; 0 where it is not known.
        free, capacity: by NUMA node, what may be granted now and on an empty node; empty where it is not counted.
        size: node count of the preferred sets; None where it is not known.
        least: the fewest nodes that would do now; None where none does, or it is not known.
        preferred: the preferred node sets, the first of them.
        preferred_count, other_count: how many hints there are; None on machines with too many nodes to list them.
        hints: all of them in the kubelet's order; None as above.
        sentence: all of this in words.
    """

    provider: str
    resource: str
    stand: ListStance
    amount: int = 0
    free: Mapping[int, int] = field(default_factory=dict)
    capacity: Mapping[int, int] = field(default_factory=dict)
    size: int | None = None
    least: int | None = None
    preferred: tuple[NodeSet, ...] = ()
    preferred_count: int | None = None
    other_count: int | None = None
    hints: tuple[Hint, ...] | None = None
    sentence: str = ""


class MergeRule(StrEnum):
    """How a node set won (rule 3.5): preferred first, then fewer nodes, then (if on) closer ones, then lower ids."""

    INDIFFERENT = "indifferent"  # no list prefers anything: any node
    ONLY = "only"  # no other set is preferred by every list
    NARROWER = "narrower"
    CLOSER = "closer"
    LOWER = "lower"
    FIRST = "first"  # many nodes: the narrowest, then closest or lowest; the second best was not looked for
    NEAREST = "nearest"  # none is preferred by all: as many nodes as the neediest list needs, or near to that
    TOGETHER = "together"  # none is preferred by all: the devices give way to CPUs and memory (D17, best-effort)
    AHEAD = "ahead"  # a container after this one needs it (D19)
    NOTHING = "nothing"  # no set serves all lists: all nodes, not preferred


class LossReason(StrEnum):
    """Why a node set that some list prefers lost."""

    NOT_OFFERED = "not offered"
    NOT_PREFERRED = "not preferred"
    FILTERED = "more than one node"  # single-numa-node
    WIDER = "wider"
    FARTHER = "farther"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """A node set that some list prefers, and that did not win; `by` names the resources that had objections."""

    nodes: NodeSet
    why: LossReason
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge.

    Attributes:
        container: whose, "" for the pod as a whole.
        hint_lists: all hint lists, in the order of the providers.
        winner: the node set that won, None for any node. After a refusal: what best-effort would have taken.
        preferred: whether every list prefers it.
        admit: whether the policy lets the pod in.
        exact: False if the search ended before the answer was proved.
        rule, rule_text: by what the winner won, and that in words.
        losers: sets that some list prefers, best first; `more_losers` are left out.
        obstacles: why nothing is preferred by all, or nothing was let in; sentences without the pod's name.
    """

    container: str
    hint_lists: tuple[HintList, ...]
    winner: NodeSet | None
    preferred: bool
    admit: bool
    exact: bool
    rule: MergeRule
    rule_text: str
    losers: tuple[RunnerUp, ...] = ()
    more_losers: int = 0
    obstacles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Holding:
    """What one container holds, or would hold.

    Attributes:
        container: whose.
        cpus: exclusive CPUs, None on the shared pool.
        pool: the CPUs that it may run on when it shares.
        nodes: the NUMA nodes of its CPUs, memory and confinement.
        memory: its blocks.
        devices: resource -> ids.
        affinity: the merged hint, None where nothing was merged.
        aligned: whether it lies as its policy wants.
        why: if not, one sentence.
        confined: the NUMA nodes that its pod is kept on (numalign.io/align), None where it is not.
        beside: the shared CPUs that it has beside its own (numalign.io/mixed).
        caches: how its own CPUs lie in L3 caches, where prefer-align-cpus-by-uncorecache is on; "" elsewhere.
    """

    container: str
    cpus: CpuSet | None
    pool: CpuSet
    nodes: NodeSet
    memory: tuple[Block, ...] = ()
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    affinity: Hint | None = None
    aligned: bool = True
    why: str = ""
    confined: NodeSet | None = None
    beside: CpuSet = CpuSet()
    caches: str = ""


class Lever(StrEnum):
    """What a remedy changes, in the order in which remedies are looked for."""

    POLICY = "policy"
    SCOPE = "scope"
    REQUEST = "request"
    DEPARTURE = "departure"
    CPU_OPTION = "cpu-option"


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change after which the pod gets in (or, for one that is in, is aligned). Tried, not guessed.

    Attributes:
        lever: what is changed; the fields for it are set, the others are not.
        sentence: in words.
        policy, scope: the other one.
        option, value: one of cpuManagerPolicyOptions and its other value.
        container, resource, requested, amount, unit: the request of a container, and the largest below it that fits;
            `amount + unit` does not (`unit` is 1 CPU, 1 device, 1Mi of memory or one huge page).
        departures: uids of the pods that would have to end; `names` are their namespace/name.
        aligned: whether the pod is aligned then.
        gives: what it would get, in words, by container.
    """

    lever: Lever
    sentence: str
    policy: Policy | None = None
    scope: Scope | None = None
    option: str = ""
    value: bool = False
    container: str = ""
    resource: str = ""
    requested: int = 0
    amount: int = 0
    unit: int = 0
    departures: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    aligned: bool = False
    gives: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """One pod explained.

    Attributes:
        pod, uid, qos: whose; `pod` is namespace/name.
        verdict: what came of it.
        fate: what happens to a pod that is refused, as a sentence; "" for others.
        summary: the answer in one sentence.
        reasons: why, sentence by sentence; may be empty.
        policy, policy_from, scope, scope_from: in force for it, and where they come from.
        requests: what it asks for, by container in order of admission.
        merges: every merge of hints, in order; none under policy none.
        holdings: what its containers hold, or would; empty when it was refused and does not run.
        refusal: the managers' own refusal, None when it is in.
        remedies: what would have let it in, smallest changes first, by lever.
        searched: what was looked for in vain, and how far; sentences.
        as_of: which moment `merges` and `remedies` speak of.
        notes: what else one should know: later events, caveats; sentences.
        answers: whose answers these are: "fixed", or "kubelet-1.37".
    """

    pod: str
    uid: str
    qos: str
    verdict: Verdict
    summary: str
    policy: Policy
    policy_from: Origin
    scope: Scope
    scope_from: Origin
    fate: str = ""
    reasons: tuple[str, ...] = ()
    requests: tuple[RequestedResources, ...] = ()
    merges: tuple[Merge, ...] = ()
    holdings: tuple[Holding, ...] = ()
    refusal: Refusal | None = None
    remedies: tuple[Remedy, ...] = ()
    searched: tuple[str, ...] = ()
    as_of: AsOf = AsOf.NOW
    notes: tuple[str, ...] = ()
    answers: str = ""
    first: tuple[str, ...] = ()

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Those that are read before the verdict, and the rest."""
        return (*self.first, *self.notes)
