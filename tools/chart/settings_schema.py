"""The JSON schema of the configuration, for the chart's values and for the page of settings.

Used by `tools.chart.values_schema` and `tools.chart.settings_page`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field
from typing import Any

from agent.settings.fields import Kind, Section
from agent.settings.kubelet_names import IGNORED
from agent.settings.kubelet_values import POLICIES, TAKEN
from agent.settings.model import Settings
from agent.settings.parsing import KUBELET_KIND, KUBELET_VERSION


def schema() -> dict[str, Any]:
    """Describe what may be written: the kubelet's unneeded keys are allowed too."""
    found = {"$defs": dict(sorted(_definitions(Settings))), **_section(Settings)}
    properties = found["properties"]
    for name, default in Settings().shown().items():
        properties[name]["default"] = default
    properties |= {name: {"description": "Ignored."} for name in sorted(IGNORED)}
    for key in (*POLICIES, "pcieLocality"):
        described = properties[key]
        # an empty text is unset; false is off, as YAML reads it without quotes
        also = False if key == "pcieLocality" else ""
        described["anyOf"] = [{"$ref": described.pop("$ref")}, {"const": also}]
    for key in TAKEN:
        _may_be_unset(properties[key])
    properties |= {"apiVersion": {"const": KUBELET_VERSION}, "kind": {"const": KUBELET_KIND}}
    return found


def _may_be_unset(described: dict[str, Any]) -> None:
    """A key without a value: Helm hands it on where the chart has no default for it."""
    kinds = described.get("anyOf")
    if kinds is None:
        described["type"] = [described["type"], "null"]
    elif {"type": "null"} not in kinds:
        kinds.append({"type": "null"})


def _definitions(section: type[Section]) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in section.fields().values():
        of = each.metadata["kind"].of
        if of and issubclass(of, Section):
            yield of.__name__, _section(of)
            yield from _definitions(of)
        elif of:
            words = [word.value for word in of]
            yield of.__name__, {"description": of.__doc__, "enum": words, "title": of.__name__, "type": "string"}


def _section(section: type[Section]) -> dict[str, Any]:
    fields = section.fields()
    needed = [key for key, each in fields.items() if each.default is each.default_factory]  # both are missing
    return {
        "additionalProperties": False,
        "description": section.__doc__,
        "properties": {key: _property(key, each) for key, each in fields.items()},
        **({"required": needed} if needed else {}),
        "title": section.__name__,
        "type": "object",
    }


def _property(key: str, each: Field[Any]) -> dict[str, Any]:
    kind: Kind[Any] = each.metadata["kind"]
    found = {**kind.schema, **each.metadata["more"]}
    if each.metadata["about"]:
        found["description"] = each.metadata["about"]
    if "$ref" not in found:
        found["title"] = key.title()
    if each.default is not MISSING:
        found["default"] = kind.show(each.default)
    return dict(sorted(found.items()))
