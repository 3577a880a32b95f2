"""From the configuration file's mapping to Settings: one sentence per error, a warning per key that is not needed.

Used by `agent.settings` only. The order of the checks: the document itself, unknown keys, kinds and values, then what
cannot stand together. Only the first error is told: the ones after it often follow from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.errors import SettingsError
from agent.model.fields import plain
from agent.model.rules import Minor
from agent.settings.conflicts import check_together
from agent.settings.fields import nearest, told
from agent.settings.gates import GATES, needed
from agent.settings.kubelet_names import IGNORED
from agent.settings.kubelet_values import as_the_kubelet_reads
from agent.settings.model import Settings
from agent.settings.wrapped import find
from agent.settings.wrapped.part import Load

KUBELET_VERSION = "kubelet.config.k8s.io/v1beta1"
KUBELET_KIND = "KubeletConfiguration"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a configuration says.

    Attributes:
        settings: all settings.
        named: the settings that it names.
        ignored: what of it is not needed, in sentences.
        notes: what it means and does not say, in sentences.
        taken: where in a document of another form it lies; "" for the document itself.
    """

    settings: Settings
    named: frozenset[str] = frozenset()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    taken: str = ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that is to be told of it."""
        return (*([f"taken: {self.taken}"] if self.taken else []), *self.notes, *self.ignored)


def parse(body: object) -> tuple[Settings, tuple[str, ...]]:
    """The settings of a document, and sentences on what is ignored and what it means; see `read`."""
    found = read(body)
    return found.settings, found.sentences


def read_documents(documents: Sequence[object], load: Load) -> Reading:
    """Read the settings of a file's documents, wherever in them they lie.

    Args:
        documents: parsed, untrusted.
        load: reads the documents of a text that stands in another.

    Raises:
        SettingsError: no part configures, several do and differ, or see `read`.
    """
    try:
        part = find(documents, load)
    except SettingsError as error:
        raise _plain(error) from None
    try:
        found = read(part.body, kubelet=part.kubelet)
    except SettingsError as error:
        where = f" (in {plain(part.where)})" if part.where else ""
        raise SettingsError(error.key, f"{_why(error)}{where}") from None
    return replace(found, taken=plain(part.where), notes=(*map(plain, part.notes), *found.notes))


def read(body: object, *, kubelet: bool = False) -> Reading:
    """Read the settings.

    Args:
        body: the parsed YAML or JSON document, untrusted: a mapping, or None where the file is empty.
        kubelet: it is a kubelet's, whether its kind says so or not: policies that it leaves out are the kubelet's.

    Raises:
        SettingsError: the first thing that is unknown, malformed or impossible, with its key and the remedy.
    """
    try:
        found = _read(body, kubelet=kubelet)
    except SettingsError as error:
        raise _plain(error) from None
    ignored, notes = ([plain(text) for text in texts] for texts in (found.ignored, found.notes))
    return replace(found, ignored=tuple(ignored), notes=tuple(notes))


def _plain(error: SettingsError) -> SettingsError:
    return SettingsError(plain(error.key), plain(_why(error)))


def _why(error: SettingsError) -> str:
    return str(error).removeprefix(f"{error.key}: ") if error.key else str(error)


def _read(body: object, *, kubelet: bool) -> Reading:
    raw = _document(body)
    kubelet = kubelet or (isinstance(body, Mapping) and body.get("kind") == KUBELET_KIND)
    document = as_the_kubelet_reads(raw)
    beside = {name: value for name, value in document.items() if name in IGNORED}
    known = [*Settings.fields(), *sorted(IGNORED)]
    for name in document:
        if name not in known:
            raise _unknown(name, known)
    settings = Settings.read({key: value for key, value in document.items() if key not in IGNORED})
    check_together(settings, beside=beside)
    named = frozenset(document) - frozenset(beside)
    notes = tuple(_left_out(settings, document)) if kubelet else ()
    return Reading(settings, named, (*_ignored(beside), *_unneeded(settings)), notes)


def _document(body: object) -> dict[str, object]:
    if body is None:
        return {}
    if not isinstance(body, Mapping):
        raise SettingsError("", f"the configuration must be a mapping of keys to values, not a {type(body).__name__}")
    for key in body:
        if not isinstance(key, str):
            raise SettingsError("", f"the configuration has a key that is a {type(key).__name__}; keys are texts")
    document = dict(body)
    version, kind = document.pop("apiVersion", None), document.pop("kind", None)
    if version not in (None, KUBELET_VERSION):
        if version == "v1" and kind is not None:
            raise SettingsError("kind", f"{told(kind)} is no configuration; name the agent's, or the kubelet's")
        if kind not in (None, KUBELET_KIND):
            raise SettingsError(
                "kind", f"{told(kind)} ({str(version)[:60]}) is no form in which numalign reads a kubelet's "
                "configuration; give the KubeletConfiguration itself, or numalign's config:"
            )  # fmt: skip
        raise SettingsError("apiVersion", f'{told(version)} cannot be read; remove it, or write "{KUBELET_VERSION}"')
    if kind not in (None, KUBELET_KIND):
        raise SettingsError("kind", f'{told(kind)} cannot be read; remove it, or write "{KUBELET_KIND}"')
    return document


def _ignored(names: Iterable[str]) -> Iterator[str]:
    listed = ", ".join(names)
    if listed:
        yield f"ignored: settings of the kubelet that numalign does not need: {listed}"


def _left_out(settings: Settings, document: Mapping[str, object]) -> Iterator[str]:
    """The kubelet's defaults are none; numalign's are those of safety rule S1."""
    for name, value in (
        ("cpuManagerPolicy", settings.cpu_manager_policy),
        ("topologyManagerPolicy", settings.topology_manager_policy),
    ):
        if name not in document:
            yield f"{name} is not set: numalign takes {value}, where the kubelet takes none"


def _unneeded(settings: Settings) -> Iterable[str]:
    for gate in sorted(settings.feature_gates):
        if not needed(gate):
            yield f"ignored: featureGates.{gate[:60]}: no decision of numalign depends on it{nearest(gate, GATES)}"


def _unknown(name: str, known: Iterable[str]) -> SettingsError:
    whose = f"is not a setting of numalign or of a kubelet up to {max(Minor)}"
    return SettingsError(name[:120], f"{whose}{nearest(name, known)}; correct its name or remove it")
