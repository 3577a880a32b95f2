"""The generated protobuf modules are those of their .proto files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from grpc_tools import protoc

AGENT = Path(__file__).parents[2] / "agent"


@pytest.mark.parametrize("proto", sorted(AGENT.rglob("*.proto")), ids=lambda path: path.name)
def test_generated_modules_are_up_to_date(proto: Path, tmp_path: Path) -> None:
    """Regenerating changes nothing but the generator's version (remedy: make protos)."""
    assert (
        protoc.main(["protoc", f"-I{proto.parent}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", proto.name])
        == 0
    )
    for name in (f"{proto.stem}_pb2.py", f"{proto.stem}_pb2.pyi"):
        fresh, kept = ((folder / name).read_text() for folder in (tmp_path, proto.parent))
        assert descriptors(fresh) == descriptors(kept)


def descriptors(text: str) -> list[str]:
    """The lines that carry content: serialized descriptors, classes and fields."""
    return [line for line in text.splitlines() if re.search(r"AddSerializedFile|class |: ", line)]
