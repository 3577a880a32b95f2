"""Explain a pod that the engine knows: `agent.core.explain`, with what the engine remembers beside the ledger.

For the node page and every other reader of a State. It takes no lock, decides nothing and writes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from agent.core.cgroups.enforced import note
from agent.core.explain.explainer import explain
from agent.core.explain.standing import PodStanding
from agent.core.explain.values import Explanation
from agent.core.request.exclusive import EXCLUSIVE
from agent.core.request.late import PLACING, late
from agent.core.request.mixed import MIXED
from agent.model.pod import Pod
from agent.node.standing import UNDECIDED
from agent.node.state import State


def explained(state: State, uid: str, *, search: bool = True) -> Explanation | None:
    """Explain a pod; None for a pod that is in neither the state nor its ledger.

    Args:
        state: the state that counts.
        uid: the pod.
        search: look for remedies, too; that tries many admissions.
    """
    known, record = state.pods.get(uid), state.shown.pods.get(uid)
    if known is None:
        return explain(state.node, state.shown, record.pod, search=search) if record else None
    standing = PodStanding(refusal=known.refusal, exempt=known.exempt, given=state.given.get(uid, {}))
    found = explain(state.node, state.shown, known.pod, settings=known.settings, standing=standing, search=search)
    said = [note(state.unenforced.get(uid, {})), _late(known.pod, record.pod) if record else ""]
    said.append(state.node.barred() if known.refusal else "")
    said += [str(each) for each in late(known.pod.annotations, record, PLACING)] if record else []
    said += [] if known.decided else [UNDECIDED]
    return replace(found, notes=(*filter(None, said), *found.notes)) if any(said) else found


def _late(now: Pod, admitted: Pod) -> str:
    """Say which annotations on containers' CPUs changed after a pod's admission: a running container stays put."""
    names = [each for each in (EXCLUSIVE, MIXED) if now.annotations.get(each) != admitted.annotations.get(each)]
    return f"{' and '.join(names)} changed after its admission, which counts for a new pod" if names else ""
