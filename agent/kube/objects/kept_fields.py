"""What of a pod's object is kept while the pod is there: what the agent wrote, what ends it, when it ended.

An object may have a megabyte of what its author likes, and a node has a hundred pods and more. Kept by
`agent.kube.publishing.pod_reporter`; read again by `agent.kube.pod_report`, `refusal_limiter`, `cleanup` and
`agent.core.cgroups.writers`, which find what they look for as in the object itself. Nothing in it is trusted.
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
"""Characters of an annotation of ours, and of any other text; what is longer is kept cut: it is not what we wrote."""
MOST = 64
_MARKS = frozenset(f"kubernetes.io/config.{part}" for part in ("hash", "mirror", "source"))
_NAMES = ("uid", "name", "namespace", "resourceVersion", "deletionTimestamp", "creationTimestamp")
_ANY = ({"name": "any"},)


def slim(body: Raw) -> dict[str, Any]:
    """The same pod, without what nobody asks for again. A writer of cpusets, which no tenant makes, is kept whole."""
    if pod_writes(body):
        return dict(body)
    metadata, spec, status = (mapping_of(body.get(part)) for part in ("metadata", "spec", "status"))
    notes = mapping_of(metadata.get("annotations"))
    return {
        "metadata": {
            **_words(metadata, *_NAMES),
            "annotations": {
                key: text[:LONGEST_NOTE]
                for key, text in ((key, notes[key]) for key in sorted(OURS | _MARKS) if key in notes)
                if isinstance(text, str)
            },
            "ownerReferences": [
                {"controller": True, **_words(each, "uid")}
                for each in mappings_in(metadata.get("ownerReferences"), MOST)
                if each.get("controller") is True
            ],
            "managedFields": [
                _words(each, "subresource", "time")
                for each in mappings_in(metadata.get("managedFields"), MOST)
                if each.get("subresource") == "status"
            ],
        },
        "spec": {
            **_words(spec, "nodeName", "priorityClassName"),
            **{key: spec[key] for key in ("activeDeadlineSeconds", "priority") if isinstance(spec.get(key), int)},
            "containers": list(_ANY),
        },
        "status": {
            **_words(status, "phase", "reason"),
            "conditions": [
                _words(each, "type", "status", "reason", "message", "lastTransitionTime")
                if each.get("type") in CONDITIONS
                else _words(each, "type", "lastTransitionTime")
                for each in mappings_in(status.get("conditions"), MOST)
            ],
            **{
                kind: [
                    {"state": {"terminated": _words(_ended(each), "finishedAt")}} for each in mappings_in(found, MOST)
                ]
                for kind in ("initContainerStatuses", "containerStatuses")
                if (found := status.get(kind))
            },
        },
    }


def _ended(container: Raw) -> Raw:
    return mapping_of(mapping_of(container.get("state")).get("terminated"))


def _words(found: Raw, *names: str) -> dict[str, str]:
    return {name: found[name][:LONGEST] for name in names if isinstance(found.get(name), str)}
