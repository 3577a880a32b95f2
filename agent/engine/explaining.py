"""A pod that the engine knows, explained: `agent.core.explain` with what the engine remembers beside the ledger.

For the node page and whoever else holds a Snapshot; it needs no lock, and nothing is decided or written.
"""

from __future__ import annotations

from dataclasses import replace

from agent.core.cgroups.enforced import note
from agent.core.explain import Explanation, PodStanding, explain
from agent.engine.known import Snapshot


def explained(snapshot: Snapshot, uid: str, *, search: bool = True) -> Explanation | None:
    """The explanation of a pod; None for one that nobody knows.

    Args:
        snapshot: what was decided and saved last.
        uid: the pod.
        search: look for remedies, too; that tries many admissions.
    """
    known, record = snapshot.known.get(uid), snapshot.ledger.pods.get(uid)
    if known is None:
        return explain(snapshot.node, snapshot.ledger, record.pod, search=search) if record else None
    standing = PodStanding(refusal=known.refusal, exempt=known.exempt, given=snapshot.given.get(uid, {}))
    found = explain(snapshot.node, snapshot.ledger, known.pod, ask=known.ask, standing=standing, search=search)
    said = note(snapshot.unenforced.get(uid, {}))
    return replace(found, notes=(said, *found.notes)) if said else found
