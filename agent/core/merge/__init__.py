"""One affinity out of many answers: the Topology Manager's merge, exactly the kubelet's, without listing hints.

    provider       what the admission asks of each manager of resources with a place
    demand         which node sets would do for one resource, described instead of listed
    inputs         the answers as the merge reads them
    merge          all four policies, and the theorems that `described` carries out
    firm           under best-effort, CPUs and memory stay together before devices
    search         the best node set of a size, within a budget (slack: what a drop costs)
    masks, needs, order    node sets as ints, sums they must reach, which of two is better
    reasons        why, as data (reasoning: found after the merge, on request)

The theorems that carry it stand in `merge`.
"""
