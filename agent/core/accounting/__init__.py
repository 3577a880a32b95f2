"""The ledger's books: rules that never break, what each pod uses, and how large a request still fits.

    invariants       the rules, checked after each decision and each load
    ceiling          how many exclusive CPUs the pods of a namespace may hold (exclusiveCPUs)
    usage            what each NUMA node has and what is in use; fragmentation: the largest aligned request that fits

A rule that a pod breaks is a refusal (`ceiling`); one that a ledger breaks is a fault of numalign (`invariants`).
"""
