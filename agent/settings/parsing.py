"""From the configuration file's mapping to Settings: one sentence per error, a warning per key that is not needed.

Used by `agent.settings` only. The order of the checks: the document itself, unknown keys, kinds and values, then what
cannot stand together. Only the first error is told: the ones after it often follow from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from agent.errors import SettingsError
from agent.model.fields import plain
from agent.model.likely import likely
from agent.model.rules import Minor
from agent.settings.conflicts import check_together
from agent.settings.gates import GATES, needed
from agent.settings.kubelet_names import IGNORED
from agent.settings.kubelet_values import POLICIES, TAKEN, as_the_kubelet_reads
from agent.settings.model import (
    DeviceSettings,
    ExclusiveSettings,
    NodeReservation,
    Page,
    RefusalSettings,
    Settings,
    WaitingSettings,
)
from agent.settings.wrapped import find
from agent.settings.wrapped.part import Load

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

KUBELET_VERSION = "kubelet.config.k8s.io/v1beta1"
KUBELET_KIND = "KubeletConfiguration"
_SECTIONS: Mapping[str, type[BaseModel]] = {
    "devices": DeviceSettings, "reservedMemory": NodeReservation, "waiting": WaitingSettings,
    "refusals": RefusalSettings, "page": Page, "exclusiveCPUs": ExclusiveSettings,
}  # fmt: skip


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
    for name in document:
        if name not in IGNORED and name not in _names(Settings):
            raise _unknown(name, name, [*_names(Settings), *sorted(IGNORED)])
    try:
        settings = Settings.model_validate({key: value for key, value in document.items() if key not in IGNORED})
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        raise SettingsError(_key(found["loc"]), _sentence(found)) from None
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
            raise SettingsError("kind", f"{_shown(kind)} is no configuration; name the agent's, or the kubelet's")
        if kind not in (None, KUBELET_KIND):
            raise SettingsError(
                "kind", f"{_shown(kind)} ({str(version)[:60]}) is no form in which numalign reads a kubelet's "
                "configuration; give the KubeletConfiguration itself, or numalign's config:"
            )  # fmt: skip
        raise SettingsError(
            "apiVersion", f'{_shown(version)} cannot be read; remove it, or write "{KUBELET_VERSION}"'
        )
    if kind not in (None, KUBELET_KIND):
        raise SettingsError("kind", f'{_shown(kind)} cannot be read; remove it, or write "{KUBELET_KIND}"')
    return document


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


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
            yield f"ignored: featureGates.{gate[:60]}: no decision of numalign depends on it{_nearest(gate, GATES)}"


def _unknown(key: str, name: str, known: Iterable[str]) -> SettingsError:
    whose = f"is not a setting of numalign or of a kubelet up to {max(Minor)}"
    return SettingsError(key[:120], f"{whose}{_nearest(name, known)}; correct its name or remove it")


def _nearest(name: str, known: Iterable[str]) -> str:
    """The suggestion, or nothing: close by spelling, whatever the case."""
    meant = likely(name, known)
    return f" (did you mean {meant}?)" if meant else ""


def _key(location: Sequence[str | int]) -> str:
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step[:60]}"
    return text.removeprefix(".").removesuffix(".[key]")


def _sentence(found: ErrorDetails) -> str:
    """What is wrong and what to write, from pydantic's kind of error."""
    kind, value, context = found["type"], found["input"], found.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "enum":
        allowed = str(context["expected"])
        near = (
            _nearest(value, allowed.replace("'", "").replace(" or ", ", ").split(", "))
            if isinstance(value, str)
            else ""
        )
        return f"{_shown(value)} is not possible{near}; write {allowed}"
    if kind == "extra_forbidden":
        section = _SECTIONS.get(str(found["loc"][0]))
        known = _names(section) if section else []
        return f"is not a setting here{_nearest(str(found['loc'][-1]), known)}; possible are {', '.join(known)}"
    if kind == "missing":
        return "is missing; add it"
    if kind in _LIMITS:
        bound = next(iter(context.values()))
        return f"{_shown(value)} is {_LIMITS[kind]} {bound}; write a value within the bounds"
    return f"{_shown(value)} {_KINDS.get(kind, 'is not possible')}; {_remedy(found['loc'])}"


_LIMITS = {
    "greater_than_equal": "less than", "less_than_equal": "more than", "too_long": "longer than",
    "string_too_long": "longer than",
}  # fmt: skip
_KINDS = {
    "string_type": "is not a text", "bool_type": "is neither true nor false", "int_type": "is not a whole number",
    "dict_type": "is not a mapping", "model_type": "is not a mapping", "tuple_type": "is not a list",
    "string_pattern_mismatch": "has another form",
}  # fmt: skip
_EXAMPLES = {
    "excludedNamespaces": "write namespaces, like [kube-system, monitoring]",
    "includedPods": "write patterns of namespace/name, like [kube-system/coredns-*]",
    "class": 'write up to six lower-case hex digits in quotes, like "02" for network controllers',
    "vendor": 'write four lower-case hex digits in quotes, like "8086"',
    "device": 'write four lower-case hex digits in quotes, like "1572"',
    "driver": "write the name of a kernel driver, like vfio-pci",
    "addresses": 'write PCI addresses in quotes, like ["0000:3b:00.0"]',
    "devices": 'write a list of selectors, like [{resource: numalign.io/nic, class: "02"}]',
    "reservedMemory": "write a list, like [{numaNode: 0, limits: {memory: 1Gi}}]",
    "featureGates": "write gates with true or false, like {PodLevelResources: true}",
    "numaNode": "write the number of a NUMA node, like 0",
    "perNamespace": "write a number of CPUs, like 8",
    "exclusiveCPUs": "write numbers of CPUs, like {perNamespace: 8, limits: {batch: 0}}",
    "waiting": "write a mapping, like {limit: 10m}",
    "refusals": "write a mapping, like {perOwnerPerHour: 5}",
    "resource": "write a text, like numalign.io/nic",
}  # fmt: skip


def _remedy(location: Sequence[str | int]) -> str:
    for step in reversed(location):
        if isinstance(step, str) and step in _EXAMPLES:
            return _EXAMPLES[step]
    return "write true or false"


def _shown(value: Any) -> str:  # noqa: ANN401 - whatever the file holds
    if isinstance(value, StrEnum | str):
        return f'"{value[:40]}"'
    if isinstance(value, bool) or (isinstance(value, int | float) and abs(value) < 1 << 64):
        return str(value)
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def schema() -> dict[str, Any]:
    """The JSON schema of the configuration, for the chart's values: the kubelet's unneeded keys are allowed too."""
    found = Settings.model_json_schema()
    defaults = Settings().shown()
    for kind, part in ((WaitingSettings, "waiting"), (RefusalSettings, "refusals")):
        _write_defaults(found["$defs"][kind.__name__]["properties"], defaults[part])
    _write_defaults(found["properties"], defaults)
    found["properties"] |= {name: {"description": "Ignored."} for name in sorted(IGNORED)}
    for key in (*POLICIES, "pcieLocality"):
        described = found["properties"][key]
        # an empty text is unset; false is off, as YAML reads it without quotes
        also = False if key == "pcieLocality" else ""
        described["anyOf"] = [{"$ref": described.pop("$ref")}, {"const": also}]
    for key in TAKEN:
        _may_be_unset(found["properties"][key])
    found["properties"] |= {"apiVersion": {"const": KUBELET_VERSION}, "kind": {"const": KUBELET_KIND}}
    return found


def _may_be_unset(described: dict[str, Any]) -> None:
    """A key without a value: Helm hands it on where the chart has no default for it."""
    kinds = described.get("anyOf")
    if kinds is None:
        described["type"] = [described["type"], "null"]
    elif {"type": "null"} not in kinds:
        kinds.append({"type": "null"})


def _write_defaults(properties: dict[str, dict[str, Any]], shown: Mapping[str, object]) -> None:
    """As the file writes them: a duration is a text there."""
    for name, described in properties.items():
        described["default"] = shown[name]
