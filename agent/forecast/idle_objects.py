"""Why an object makes no pods now: suspended, stopped, finished, being deleted.

Read by `agent.forecast.workload_kinds`.
Operators write the same few words in the same few places; nothing here is trusted, and what is malformed is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.model.fields import mapping_of, mappings_in
from agent.model.object_ids import word

MOST_CONDITIONS = 100
_OVER = frozenset({"COMPLETE", "COMPLETED", "SUCCEEDED", "FAILED", "FINISHED", "STOPPED", "ABORTED", "TERMINATED"})
"""What operators write in a status when the pods have run to their end, in capitals."""
_DONE = frozenset({"Complete", "Completed", "Succeeded", "Failed", "Finished", "SuccessCriteriaMet", "FailureTarget"})
"""Conditions of a Job, and of operators' jobs, that are True when no pod is made any more."""


def idle(body: Mapping[str, Any]) -> str:
    """Why an object makes no pods now, whatever its templates say; "" where it does."""
    spec, status = mapping_of(body.get("spec")), mapping_of(body.get("status"))
    if spec.get("suspend") is True or mapping_of(spec.get("runPolicy")).get("suspend") is True:
        return "it is suspended"
    if spec.get("runStrategy") == "Halted" or spec.get("running") is False:
        return "it is stopped"
    told = [
        status.get("phase"), status.get("state"), mapping_of(status.get("state")).get("phase"),
        status.get("jobDeploymentStatus"), status.get("terminalState"),
        mapping_of(status.get("applicationState")).get("state"),
    ]  # fmt: skip
    conditions = mappings_in(status.get("conditions"), MOST_CONDITIONS)
    done = any(word(each.get("type")) in _DONE and each.get("status") == "True" for each in conditions)
    if done or any(isinstance(each, str) and each.upper() in _OVER for each in told):
        return "it has finished"
    return "it is being deleted" if mapping_of(body.get("metadata")).get("deletionTimestamp") else ""
