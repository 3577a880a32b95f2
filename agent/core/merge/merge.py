"""The Topology Manager's merge: one affinity out of what all providers offer, exactly the kubelet's (rules 3.3-3.6).

Called by `agent.core.admission.node` for each container or pod. The kubelet walks the product of all hint lists, of
up to 2^n hints each. Here nothing of that size is ever built; that the answer is the same rests on the theorems
below.

Words. D: all nodes. |m|: node count of mask m. *better*: `agent.core.merge.order`. A list's masks are compared and
counted as they are ("raw"), before AND with D. B: the largest of the lists' fewest node counts. A *candidate* is (m,
p): m the AND of D and one mask of each list, not empty; p whether all these hints are preferred and their raw masks
equal.

T0  Order does not matter. `compare` (rule 3.5) returns the smaller of two candidates under the key (0, better) if
    preferred, else (1, |m| > B, abs(|m| - B), better). Proof: go through its lines. a == B keeps everything but a
    better b == B; a < B gives way to B and to larger counts below B, never to one above; a > B takes the better, so
    fewer nodes, which includes everything at or below B. The key is total, so a fold in any order, over any number of
    repetitions, ends with the least candidate.
T1  Preferred. Let N be the lists without a preferred hint that names no nodes. The preferred candidates are D & x for
    x in the intersection of the preferred masks of N; if N is empty, D itself and D & x for any preferred x.
    Proof: a preferred permutation has one raw mask x wherever it has one, and only lists outside N can have none.
T2  Not preferred. If T1 gives nothing, all candidates are equal in p: the answer depends on B and on the set of
    non-zero ANDs alone; without any it is (D, not preferred).
T4  single-numa-node. Its filter leaves single nodes, all preferred, and two different ones AND to nothing. So the
    answer is the lowest node that every list prefers; a mask equal to D (a machine of one node) becomes "any".
T5  Partition. Let list i be a family: all m within W_i that serve monotone needs. W: intersection of all W_i. A mask
    m within W is an AND of one mask of each family exactly if W without m splits into S_1..S_k such that W_i without
    S_i is in family i for every i. Proof: => Let x_i be the choice. Each node of W outside m is missing from some
    x_i; put it into the first such S_i. W_i without S_i contains x_i, and the family is closed upward. <= Choose
    x_i = W_i without S_i.
T6  Counts. The masks that T5 reaches are closed upward in W (move a node out of S_i), so their counts are an
    interval that ends at |W|: only |W| >= B needs a search; below B, W itself is the nearest to B.
T7  The providers' lists are such families, and a few masks named one by one (rules 4.5, 5.4, 6.2): sums of free CPUs,
    bytes or devices that must reach what is asked for, preferred at one node count that capacity dictates. See
    `agent.core.merge.demand`; this is what a Demand can say.
T8  Preferred, described. Without align-by-socket all families must prefer the same node count, or no mask of them all
    is preferred. Then one search finds it: T5 with a single bin that carries the needs of all lists.

Equal lists are *not* one list: with weights 1, 1, 2, 2 and a need of 3, one list gives {0,2}, two equal ones give
{0,1} = {0,1,2} & {0,1,3}, a mask that the list itself does not hold. Memory with a huge page size is such a pair.
Hence a non-preferred mask may be too small for every provider: the allocation then spills over, as in the kubelet.

Complexity, for k lists on n nodes. T1/T8 and T5 are a knapsack and a bin packing, exponential in the
worst case (many different byte amounts in several tight resources, or prefer-closest among many busy nodes), and a
few steps for each node otherwise; a budget of steps bounds them. An answer whose budget ran out is marked as not
`exact`, and these still hold: a preferred mask is preferred by every list and has the kubelet's node count (unless
align-by-socket is on, or a preferred mask is named besides a family of another count); a mask that is not preferred
is one the kubelet could compute, or D; and the same input gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.core.merge.described import merge_described, preferred_mask, single_node
from agent.core.merge.inputs import MergeQuestion, question_of
from agent.core.merge.masks import Positions
from agent.core.merge.needs import Budget
from agent.core.merge.order import Order
from agent.core.merge.provider import Answer
from agent.core.merge.reasoning import reasons_of
from agent.core.merge.reasons import MergeReasons
from agent.model.hint import ANY_NODES, Hint
from agent.model.rules import Policy, TopologyRules

_PLAIN = Order()


@dataclass(frozen=True, slots=True)
class Merged:
    """The merge's answer.

    Attributes:
        hint: the affinity; no nodes mean any node. After restricted refused described hints, no nodes either: what
            would have been the best is in the reasons.
        admit: whether the policy lets the pod in.
        exact: False if the budget ran out before the answer was proved; what holds then is said above.
    """

    hint: Hint
    admit: bool
    exact: bool = True


def merge_answers(
    answers: Sequence[Answer],
    positions: Positions,
    rules: TopologyRules,
    order: Order,
    *,
    trace: Callable[[MergeReasons], None] | None = None,
    budget: Budget | None = None,
) -> Merged:
    """Merge what the providers answered.

    Args:
        answers: one per provider; their order does not matter to the result.
        positions: the machine's nodes, those without CPUs too; the demands' masks are over these.
        rules: policy, and whether prefer-closest-numa-nodes is on.
        order: of the machine (`Order.of`), made once; its distances are used as the rules say.
        trace: gets the reasons; without it they cost nothing.
        budget: steps for this decision; 20,000 if not given.
    """
    if rules.policy is Policy.NONE:
        return Merged(ANY_NODES, admit=True)
    single = rules.policy is Policy.SINGLE_NUMA_NODE
    order = order if rules.prefer_closest and not single else _PLAIN  # rule 3.5: ignored under single-numa-node
    question = question_of(answers, positions)
    mask, preferred, exact = _merge(question, rules.policy, order, budget or Budget())
    nodes = None if mask is None or (single and mask == question.everything) else positions.nodes(mask)
    merged = Merged(Hint(nodes, preferred), preferred or rules.policy is Policy.BEST_EFFORT, exact)
    if trace is not None:
        trace(reasons_of(answers, positions, rules.policy, order, merged.hint, admit=merged.admit, exact=exact))
    return merged


def _merge(question: MergeQuestion, policy: Policy, order: Order, budget: Budget) -> tuple[int | None, bool, bool]:
    """(mask, preferred, exact)."""
    single = policy is Policy.SINGLE_NUMA_NODE
    if single:
        return *single_node(question), True
    if policy is Policy.RESTRICTED:  # a mask that is not preferred would be refused: it is not looked for
        best, proved = preferred_mask(question, order, budget)
        return best, best is not None, proved
    return merge_described(question, order, budget)
