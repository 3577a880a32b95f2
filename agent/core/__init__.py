"""Decisions: pure functions of values, without files, clock or network.

    demand    what node sets would do, described instead of listed
    masks, needs, order   node sets as ints, sums they must reach, which of two is better
    search    the bounded exact search for the best node set (prices: what its steps cost)
    merge     the Topology Manager's merge, all four policies (sides: the answers as it reads them; merge_lists and
              merge_demands: the two ways; reasons and merge_reasons: why, for whoever asks)
    cpus      who gets which exclusive CPUs; takecpus picks them
    memory    which nodes' memory a container gets
    devices   which devices a container gets
    admit     one pod through all providers: Admitted | Refused
    invariants  the rules that never break, checked after every decision
    plan      what must be written to the cgroups, in which order

The rules are the kubelet's (v1.36.3), written down in the docstring of each module.
"""
