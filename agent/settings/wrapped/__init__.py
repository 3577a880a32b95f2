"""From the documents of a file to the part that configures: numalign's own, a kubelet's, or one that wraps it.

    find(documents, load) -> KubeletPart

`forms` knows the documents that providers and installers have, `flags` the command line, `names` what providers call
the settings otherwise, `openshift` what a PerformanceProfile stands for. Used by `agent.host.settings_file`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from agent.errors import SettingsError
from agent.settings.kubelet_names import IGNORED
from agent.settings.kubelet_values import TAKEN
from agent.settings.model import Settings
from agent.settings.wrapped import flags
from agent.settings.wrapped.forms import parts_of, parts_of_list
from agent.settings.wrapped.part import Document, KubeletPart, Load, merged, named
from agent.settings.wrapped.within import here_documents, parts_within

__all__ = ["KubeletPart", "find", "here_documents"]
SETTINGS = frozenset(Settings.fields().keys() | IGNORED)
_DEEP = 12
_MOST_NAMED = 8


def find(documents: Sequence[object], load: Load) -> KubeletPart:
    """The part of a file that configures.

    Args:
        documents: of the file, in its order, untrusted; texts are command lines.
        load: reads the documents of a text that stands in another.

    Raises:
        SettingsError: there is none, or there are several that differ.
    """
    found, own, others = _sorted([each for each in documents if each is not None], load)
    if own and (found or len(own) > 1):
        raise SettingsError(
            "",
            f"holds {len(own) + bool(found)} documents that could be the configuration, and one counts; give one of "
            "them, or name the kubelet's by kind: KubeletConfiguration",
        )
    if own:
        return own[0]
    if found:
        part = _one(found)
        return _with_notes(part, (f"left out: {', '.join(others)}",)) if others else part
    if len(others) == 1 and len(documents) == 1:
        raise _no_part(documents[0], others[0])
    if others:
        raise SettingsError("", f"holds no configuration of a kubelet: {', '.join(others[:_MOST_NAMED])}; {_REMEDY}")
    return KubeletPart({}, "", kubelet=False)


_REMEDY = "give the KubeletConfiguration itself, or numalign's config:"


def _sorted(documents: Sequence[object], load: Load) -> tuple[list[KubeletPart], list[KubeletPart], list[str]]:
    """The parts of documents of known forms, documents of numalign or of no known form, and names of the rest."""
    found: list[KubeletPart] = []
    own: list[KubeletPart] = []
    others: list[str] = []
    enclosed: list[KubeletPart] = []
    for each in documents:
        if isinstance(each, str) and flags.holds_flags(each):
            found.append(flags.part_of_text(each, "flags of the kubelet"))
        elif isinstance(each, list) and (inner := parts_of_list(each, load)):
            found += inner
        elif not isinstance(each, Mapping):
            own.append(KubeletPart(each, "", kubelet=False))  # type: ignore[arg-type]  # refused with its type by the reader
        elif (parts := parts_of(each, load)) is not None:
            found += parts
            if not parts:
                others.append(named(each) or "a document")
        elif not SETTINGS & {*each} and (inner := parts_within(each, load)):
            enclosed += inner
        elif each.get("kind") is not None and len(documents) > 1:
            others.append(str(named(each))[:60] or "a document")
        else:
            own.append(_guarded(each))
    if found or own:
        others += [part.where for part in enclosed]
    return (found or ([] if own else enclosed)), own, others


def _guarded(document: Document) -> KubeletPart:
    """A document of no known form: the settings' own check refuses it, unless a part of it looks like a kubelet's."""
    places = [] if SETTINGS & {*document} else list(_looking_like(document, ""))
    if places:
        what = named(document) or "this"
        raise SettingsError(
            "kind" if document.get("kind") else "",
            f"{what} is not a form that numalign reads; {' and '.join(places[:_MOST_NAMED])} looks like a kubelet's "
            "configuration: give that part by itself",
        )
    return KubeletPart(document, "", kubelet=False)


def _looking_like(value: object, path: str, depth: int = 0) -> Iterator[str]:
    """Places below a document that hold settings of the managers."""
    if depth > _DEEP:
        return
    if isinstance(value, Mapping):
        if path and TAKEN & {key for key in value if isinstance(key, str)}:
            yield path
            return
        for key, inner in value.items():
            yield from _looking_like(inner, f"{path}.{key}"[:200].lstrip("."), depth + 1)
    elif isinstance(value, list):
        for number, inner in enumerate(value[:100]):
            yield from _looking_like(inner, f"{path}[{number}]", depth + 1)


def _no_part(document: object, name: str) -> SettingsError:
    places = list(_looking_like(document, ""))
    if places:
        return SettingsError(
            "", f"{name} has nothing where a kubelet's configuration lies; {' and '.join(places[:_MOST_NAMED])} "
            "looks like one: give that part by itself"
        )  # fmt: skip
    return SettingsError("", f"{name} holds no configuration of a kubelet; {_REMEDY}")


def _one(parts: Sequence[KubeletPart]) -> KubeletPart:
    """The part that all agree on, with flags over the file's settings."""
    files = _distinct(_added_up([part for part in parts if not part.flags]))
    flagged = _added_up([part for part in parts if part.flags])
    lines = _distinct([part for part in flagged if part.body] or flagged[:1])
    for same in (files, lines):
        if len(same) > 1:
            listed = ", ".join(part.where or "KubeletConfiguration" for part in same[:_MOST_NAMED])
            raise SettingsError(
                "", f"holds {len(same)} configurations of kubelets that differ: {listed}; give one of them by itself"
            )
    if not files:
        return lines[0]
    if not lines or not lines[0].body:
        return _with_notes(files[0], lines[0].notes) if lines else files[0]
    file, line = files[0], lines[0]
    both = {**file.body, **line.body}
    gates = [body.get("featureGates") for body in (file.body, line.body)]
    if isinstance(gates[0], Mapping) and isinstance(gates[1], Mapping):
        both["featureGates"] = merged(gates[0], gates[1])
    where = " with ".join(part.where or "KubeletConfiguration" for part in (file, line))
    return KubeletPart(both, where, notes=(*file.notes, *line.notes))


def _added_up(parts: Sequence[KubeletPart]) -> list[KubeletPart]:
    """With parts that add to those before them put over these."""
    found: list[KubeletPart] = []
    for part in parts:
        if part.adds and found and found[-1].adds:
            where = found[-1].where if part.where == found[-1].where else f"{found[-1].where} and {part.where}"
            found[-1] = replace(part, body=merged(found[-1].body, part.body), where=where)
        else:
            found.append(part)
    return found


def _distinct(parts: Sequence[KubeletPart]) -> list[KubeletPart]:
    found: list[KubeletPart] = []
    for part in parts:
        if all(part.body != each.body for each in found):
            found.append(part)
    return found


def _with_notes(part: KubeletPart, notes: tuple[str, ...]) -> KubeletPart:
    return replace(part, notes=(*part.notes, *notes))
