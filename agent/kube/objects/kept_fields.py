"""Which fields of a pod are kept while the pod exists: what the agent wrote, what ends the pod, when it ended.

A pod's author may fill a megabyte, and a node has more than a hundred pods. `agent.kube.publishing.pod_reporter`
keeps the fields. These read them, with the same code as the whole object:

    agent.kube.pod_report                        our annotations and conditions
    agent.kube.publishing.pod_reporter           activeDeadlineSeconds, deletionTimestamp
    agent.kube.publishing.refusal_limiter        ownerReferences
    agent.kube.publishing.cleanup                when and why the pod ended, marks of a static pod, priority
    agent.core.cgroups.writers                   another writer of cpusets, which is kept whole

A field that one of them is to read belongs into `slim`. Nothing in the fields is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.core.cgroups.writers import pod_writes
from agent.kube.pod_report import CONDITIONS
from agent.model.fields import mapping_of, mappings_in
from agent.model.notes import OURS

Raw = Mapping[str, Any]
LONGEST_NOTE, LONGEST = 1 << 16, 1024
"""Characters of an annotation of ours, and of any other text. A longer text is cut: it is not what we wrote."""
MOST = 64
_MARKS = frozenset(f"kubernetes.io/config.{part}" for part in ("hash", "mirror", "source"))
_NAMES = ("uid", "name", "namespace", "resourceVersion", "deletionTimestamp", "creationTimestamp")
_PLACEHOLDER = ({"name": "any"},)


def slim(body: Raw) -> dict[str, Any]:
    """Reduce a pod to the fields that are read again. A writer of cpusets, which no tenant makes, is kept whole."""
    if pod_writes(body):
        return dict(body)
    metadata, spec, status = (mapping_of(body.get(part)) for part in ("metadata", "spec", "status"))
    notes = mapping_of(metadata.get("annotations"))
    return {
        "metadata": {
            **_texts(metadata, *_NAMES),
            "annotations": {
                key: text[:LONGEST_NOTE]
                for key, text in ((key, notes[key]) for key in sorted(OURS | _MARKS) if key in notes)
                if isinstance(text, str)
            },
            "ownerReferences": [
                {"controller": True, **_texts(each, "uid")}
                for each in mappings_in(metadata.get("ownerReferences"), MOST)
                if each.get("controller") is True
            ],
            "managedFields": [
                _texts(each, "subresource", "time")
                for each in mappings_in(metadata.get("managedFields"), MOST)
                if each.get("subresource") == "status"
            ],
        },
        "spec": {
            **_texts(spec, "nodeName", "priorityClassName"),
            **{key: spec[key] for key in ("activeDeadlineSeconds", "priority") if isinstance(spec.get(key), int)},
            "containers": list(_PLACEHOLDER),
        },
        "status": {
            **_texts(status, "phase", "reason"),
            "conditions": [
                _texts(each, "type", "status", "reason", "message", "lastTransitionTime")
                if each.get("type") in CONDITIONS
                else _texts(each, "type", "lastTransitionTime")
                for each in mappings_in(status.get("conditions"), MOST)
            ],
            **{
                kind: [
                    {"state": {"terminated": _texts(_ended(each), "finishedAt")}} for each in mappings_in(found, MOST)
                ]
                for kind in ("initContainerStatuses", "containerStatuses")
                if (found := status.get(kind))
            },
        },
    }


def _ended(container: Raw) -> Raw:
    return mapping_of(mapping_of(container.get("state")).get("terminated"))


def _texts(found: Raw, *names: str) -> dict[str, str]:
    return {name: found[name][:LONGEST] for name in names if isinstance(found.get(name), str)}
