"""`python -m tests.cluster.fields`: the fields of a pod, from the OpenAPI of the Kubernetes versions that are served.

The list is kept in pod_fields.json: path -> the versions that have it, a value of its type, and the verdict: who
refuses it when an agent's token changes it. A field is one of metadata, spec or status, or one of what these hold:
`spec.tolerations` and `spec.tolerations[].key`. tests/cluster/test_stolen_token.py proves the verdicts on
a real API server. A field that a newer version adds has none here, and turns that test red until somebody has looked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.peers import tools

FIELDS = Path(__file__).with_name("pod_fields.json")
VERSIONS = {"1.32": "v1.32.13", "1.34": "v1.34.4", "1.37": "v1.37.2", "1.38": "v1.38.0-beta.0"}
"""The oldest that the chart takes, one between, the newest, a beta -> of k8s.io/kubernetes."""
BETA = "1.38"
_PARTS = {
    "metadata": "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    "spec": "io.k8s.api.core.v1.PodSpec",
    "status": "io.k8s.api.core.v1.PodStatus",
}
VERDICTS = "policy", "server", "left", "unserved"
"""The admission policy refuses it; or the server itself does, or ignores it, for anybody; or it may be changed; or
the server of the tests is older than the field, and drops it before the policy could see it: the policy compares
metadata, spec and status whole, so that it closes what it does not know, but nobody has seen that of this field."""
_SAMPLES = {"string": "changed", "integer": 7, "number": 7, "boolean": True}
_FORMATS = {"date-time": "2026-01-01T00:00:00Z", "int-or-string": 7}
_NAMED = {"io.k8s.apimachinery.pkg.api.resource.Quantity": "7"}
Json = dict[str, Any]


def generated() -> str:
    """The file's text; raises PeerMissingError where a version cannot be fetched."""
    found: dict[str, Json] = {}
    before = known()
    for version, module in VERSIONS.items():
        swagger = tools.module("k8s.io/kubernetes", module) / "api/openapi-spec/swagger.json"
        definitions = json.loads(swagger.read_text("utf-8"))["definitions"]
        for part, name in _PARTS.items():
            for path, sample in _fields(definitions, name, part, deeper=True):
                entry = found.setdefault(path, {"in": [], "verdict": before.get(path, {}).get("verdict", "")})
                entry["in"].append(version)
                if version != BETA or "sample" not in entry:  # the server of the tests is of a release
                    entry["sample"] = sample
    lines = (f"{json.dumps(path)}: {json.dumps(found[path], sort_keys=True)}" for path in sorted(found))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def known() -> Json:
    """As committed."""
    found: Json = json.loads(FIELDS.read_text("utf-8"))
    return found


def _fields(definitions: Json, name: str, path: str, *, deeper: bool) -> Iterator[tuple[str, Any]]:
    for key, schema in definitions[name].get("properties", {}).items():
        yield f"{path}.{key}", _sample(definitions, schema, 3)
        held, many = _held(schema)
        if deeper and held in definitions:
            yield from _fields(definitions, held, f"{path}.{key}{'[]' if many else ''}", deeper=False)


def _held(schema: Json) -> tuple[str, bool]:
    """The definition that a field refers to, "" for none; and whether it is a list of them."""
    many = "items" in schema
    return str((schema.get("items") if many else schema).get("$ref", "")).rpartition("/")[2], many  # type: ignore[union-attr] # JSON


def _sample(definitions: Json, schema: Json, depth: int) -> Any:  # noqa: ANN401 - JSON
    """A value of a field's type: of an object what it requires, or else the first that it has."""
    name = _held(schema)[0] if "items" not in schema else ""
    if name in _NAMED:
        return _NAMED[name]
    if name:
        schema = definitions[name]
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    if "items" in schema:
        return [_sample(definitions, schema["items"], depth)]
    if "additionalProperties" in schema:
        return {"changed": _sample(definitions, schema["additionalProperties"], depth)}
    if "properties" in schema and depth:
        properties = schema["properties"]
        chosen = schema.get("required") or sorted(properties, key=lambda key: _held(properties[key])[0] != "")[:1]
        return {key: _sample(definitions, properties[key], depth - 1) for key in chosen}
    return _SAMPLES.get(schema.get("type", ""), {})


def main() -> int:
    """Write the file."""
    FIELDS.write_text(generated(), "utf-8")
    print(f"{len(known())} fields in {FIELDS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
