"""Why a pod was refused, where it would fit, and what it has: one pod explained, as a value. Pure.

    explain(node, ledger, pod, ...) -> Explanation     explainer   runs the admission again, with a trace
    PodStanding                                        standing    what it is told beside the ledger
    shown.to_json(explanation)                         shown       the stable JSON shape; plain lines

Called by `numalign explain`, the node page and `simulate`. What it says comes from a real run of `Node.admit`: the
merge's own trace, the managers' own refusals, and remedies that were tried. Modules: values, words, case (an
admission to try), requested, supply (what is free), merges and obstacles (the merge in words), refusals, grants,
remedies, remarks (what is said beside the place).
"""
