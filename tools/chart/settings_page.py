"""All settings as a Markdown page: `python -m tools.chart.settings_page`, kept in deploy/docs/settings.md.

Made from the model itself, so that no setting can be missing; a test checks that the page is up to date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from agent.model.rules import NODE_OPTIONS
from agent.settings.cpu_options import KEY as CPU_OPTIONS
from agent.settings.model import Settings
from tools.chart.settings_schema import schema

KUBELET = "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/"
HEAD = f"""# Settings

`make settings` makes this page from agent/settings/model.py. All settings are one YAML file: `config:` of the chart,
or `--config FILE`. numalign takes names and values of
[KubeletConfiguration]({KUBELET})
as they are, so you can paste the managers' part of a kubelet's file. It ignores other valid keys of a kubelet with a
warning. An unknown key is an error. Changes take effect while the agent runs, within a second. They never
move a running pod. A wrong file changes nothing but the kill switch: the agent keeps the old settings, obeys
`observeOnly: true`, and says why. `numalign config check FILE` says it beforehand.
"""
_RULE = re.compile(r" \(safety rule S\d+\)")
OPTIONS = f"""
## {CPU_OPTIONS}

The kubelet has a gate for alpha options (`CPUManagerPolicyAlphaOptions`) and one for beta options
(`CPUManagerPolicyBetaOptions`). In numalign both are open unless `featureGates` closes them. Under
`compatibility: kubelet` numalign closes the first unless `featureGates` opens it. Pods set options by the
annotation `numalign.io/cpu-options`.

| Option | In the kubelet | A pod may set it | Not together with |
|---|---|---|---|"""
COLUMNS = "| Setting | Values | Default | Meaning |\n|---|---|---|---|"


def page() -> str:
    """The page."""
    whole = schema()
    defaults = Settings().shown()
    shown = {key: what for key, what in whole["properties"].items() if key in defaults}
    parts = [HEAD, COLUMNS, *_rows(whole, shown, defaults), OPTIONS, *_cpu_options()]
    for key, what in shown.items():
        section = _section(whole, what)
        if section is not None:
            inner = defaults[key] if isinstance(defaults[key], dict) else {}
            each = " (each entry)" if _type(what) == "array" else ""
            parts += ["", f"## {key}{each}", "", _RULE.sub("", section.get("description", "")), "", COLUMNS]
            parts += _rows(whole, section["properties"], inner)
    return "\n".join(parts) + "\n"


def _rows(whole: Mapping[str, Any], properties: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[str]:
    for key, what in properties.items():
        default = defaults.get(key)
        shown = "" if default in (None, "", [], {}) or isinstance(default, dict) else f"`{_plain(default)}`"
        meaning = what.get("description", "")
        if _section(whole, what) is not None:
            meaning = f"{meaning} See [below](#{key.lower()}{'-each-entry' if _type(what) == 'array' else ''})."
        yield f"| `{key}` | {_values(whole, what)} | {shown} | {meaning.strip()} |"


def _cpu_options() -> Iterator[str]:
    for name, option in NODE_OPTIONS.items():
        others = [other for other, each in NODE_OPTIONS.items() if other in option.excludes or name in each.excludes]
        bars = [*others, *([f"topologyManagerPolicy: {option.never_under}"] if option.never_under else [])]
        listed = ", ".join(f"`{each}`" for each in bars)
        yield f"| `{name}` | {option.maturity} | {'yes' if option.per_pod else 'no'} | {listed} |"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _section(whole: Mapping[str, Any], what: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = _resolved(whole, what.get("items", what))
    return found if "properties" in found else None


def _resolved(whole: Mapping[str, Any], what: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" in what:
        found: Mapping[str, Any] = whole["$defs"][what["$ref"].rpartition("/")[2]]
        return found
    return what


def _type(what: Mapping[str, Any]) -> str:
    """The kind of a value that is there: what a kubelet's file may leave without one has null beside it."""
    kind = what.get("type")
    return str(kind[0] if isinstance(kind, list) else kind)


def _values(whole: Mapping[str, Any], what: Mapping[str, Any]) -> str:
    """What may be written, in a few words."""
    if "anyOf" in what:
        return next(_values(whole, each) for each in what["anyOf"] if each.get("type") != "null")
    found = _resolved(whole, what)
    if "enum" in found:
        return ", ".join(f"`{each}`" for each in found["enum"])
    if _type(found) == "array":
        return "a list" if _section(whole, what) else f"a list of {_values(whole, found['items'])}"
    if "properties" in found:
        return "a section"
    kinds = {"string": "text", "boolean": "`true`, `false`", "integer": "a number", "object": "a mapping"}
    if _type(found) == "integer" and {"minimum", "maximum"} <= found.keys():
        return f"{found['minimum']} to {found['maximum']}"
    return kinds.get(_type(found), "text")


if __name__ == "__main__":
    sys.stdout.write(page())
