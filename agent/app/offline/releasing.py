"""Put cgroups back, as `numalign release` does.

A release leaves no container confined (safety rule S17): after one switch stopped the agent (S3), and before it is
uninstalled (S18). `agent.core.cgroups.release` makes the plan. Afterwards the tree is read again, and
`agent.core.cgroups.remains` says what still has a set of its own.
"""

from __future__ import annotations

from agent.app.offline.offline import Leftovers
from agent.core.cgroups.cuts import NONE, saved_in, standing
from agent.core.cgroups.release import release_plan
from agent.core.cgroups.remains import Released, remaining


def release(left: Leftovers) -> Released:
    """Widen everything, empty what may be emptied, put the quotas back, and look again.

    Raises:
        HostError: the tree cannot be read afterwards.
    """
    cut = standing(saved_in(left.saved.extra), left.observed) if left.saved else NONE
    written = left.cgroups.apply(release_plan(left.ledger, left.names, left.observed, cut))
    return Released(written, remaining(written, left.cgroups.observe()))
