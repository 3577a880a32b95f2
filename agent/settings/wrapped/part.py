"""A part of a document that configures a kubelet, and how such parts are reached in untrusted documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Document = Mapping[str, object]
Load = Callable[[str], list[object]]
"""The documents of a text that stands in a document; none where it is no YAML."""
LONGEST_NAME = 120


@dataclass(frozen=True, slots=True)
class KubeletPart:
    """What a document says of a kubelet, by KubeletConfiguration's names.

    Attributes:
        body: the settings.
        where: the place in the document, in words; "" for the document itself.
        kubelet: a kubelet's own, whose defaults hold for what it leaves out; otherwise numalign's configuration.
        flags: from the command line, which goes before the kubelet's file.
        adds: goes over the parts before it, as nodeadm merges several NodeConfigs.
        notes: what was not derived, in sentences.
    """

    body: Document
    where: str
    kubelet: bool = True
    flags: bool = False
    adds: bool = False
    notes: tuple[str, ...] = ()


def merged(below: Document, above: Document) -> dict[str, object]:
    """One mapping over another, mapping by mapping."""
    found = dict(below)
    for key, value in above.items():
        under = found.get(key)
        found[key] = merged(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return found


def mapping_at(document: object, path: str) -> Document | None:
    """The mapping at a path of keys with dots between; None where there is none."""
    found = value_at(document, path)
    return found if isinstance(found, Mapping) else None


def value_at(document: object, path: str) -> object:
    """The value at a path of keys with dots between; None where there is none."""
    for key in path.split("."):
        if not isinstance(document, Mapping):
            return None
        document = document.get(key)
    return document


def entries_at(document: object, path: str) -> Iterator[tuple[str, Document]]:
    """The mappings of a list at a path, each with its own path: "spec.workers[0]"."""
    found = value_at(document, path)
    for number, each in enumerate(found if isinstance(found, list) else ()):
        if isinstance(each, Mapping):
            yield f"{path}[{number}]", each


def kind_of(document: Document) -> tuple[str, str]:
    """(API group, kind): ("", "ConfigMap") for v1; texts of any kind where the document has none."""
    version, kind = document.get("apiVersion"), document.get("kind")
    group = version.partition("/")[0] if isinstance(version, str) and "/" in version else ""
    return group, kind if isinstance(kind, str) else ""


def named(document: Document) -> str:
    """The kind and the name: "KubeletConfig worker-numa"."""
    kind = kind_of(document)[1]
    name = value_at(document, "metadata.name")
    return f"{kind} {name}"[:LONGEST_NAME] if isinstance(name, str) and name else kind


def place(path: str, document: Document) -> str:
    """Where a part lies, in words: "spec.kubeletConfig of KubeletConfig worker-numa"."""
    whole = named(document)
    return f"{path} of {whole}" if whole else path
