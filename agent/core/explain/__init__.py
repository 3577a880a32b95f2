"""Why a pod was refused, where it would fit, and what it has: one pod explained, as a value. Pure.

    explain(node, ledger, pod, ...) -> Explanation     explainer   runs the admission again, with a trace
    PodStanding                                        standing    what it is told beside the ledger
    to_json(explanation), lines(explanation)           serialize   the stable JSON shape; plain lines
    with_cause(node, case, refusal) -> Refusal         cause       a refusal with its cause: one sentence, and values

Called by `numalign explain`, the node page and `simulate`. What it says comes from a real run of `Node.admit`: the
merge's own trace, the managers' own refusals, and remedies that were tried. Modules: values, words, case (an
admission to try), requested, supply (what is free), merges, obstacles and ranking (the merge in words), refusals
(the managers' own), grants, candidates and remedies (changes that were tried), nearer, remarks (what is said beside
the place). The numbers of a new refusal go into `refusals`.
"""
