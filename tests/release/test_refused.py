"""One byte of what was released is changed: whoever verifies is told, whatever was changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent import __version__
from tests.release.conftest import APART, Released
from tools import image
from tools.chart import rendering
from tools.release import ReleaseError, registry, sha256
from tools.release.artefacts import SUMS

pytestmark = [APART, pytest.mark.timeout(1800), pytest.mark.go]


@contextmanager
def one_byte(path: Path) -> Iterator[None]:
    """Changed in the middle of a file, and put back."""
    before = path.read_bytes()
    middle = len(before) // 2
    path.write_bytes(before[:middle] + bytes([before[middle] ^ 1]) + before[middle + 1 :])
    try:
        yield
    finally:
        path.write_bytes(before)


def test_a_layer_of_the_image_is_refused(released: Released) -> None:
    """In the registry itself: whoever pulls sees that the bytes are not those of the signed digest."""
    name = f"{released.plan.image}@{released.plan.digests()[image.HOST]}"
    layer = json.loads(registry.crane("manifest", name))["layers"][-1]["digest"]
    with one_byte(released.blob(layer)), pytest.raises(ReleaseError):
        registry.verify(released.plan)
    registry.verify(released.plan)


def test_another_image_under_the_tag_has_no_signature(released: Released) -> None:
    """Somebody who may push puts another image there, whole and right in itself: its digest was never signed."""
    plan = released.plan
    tag, key = f"{plan.image}:forged", plan.folder / "numalign.pub"
    registry.crane("copy", f"{plan.image}:{__version__}", tag)
    assert registry.verified("verify", "--key", key, tag)
    arch = f"{plan.image}@{plan.digests()[image.HOST]}"
    registry.crane("mutate", arch, "--label", "forged=true", "--tag", tag)
    assert not registry.verified("verify", "--key", key, tag)


def test_the_chart_is_refused(released: Released, tmp_path: Path) -> None:
    """As a file by its checksum; in the registry by Helm, which compares what it gets with the signed manifest."""
    plan = released.copy(tmp_path / "copy")
    with one_byte(plan.chart), pytest.raises(ReleaseError, match=f"not as {SUMS} says: {plan.chart.name}"):
        registry.verify_files(plan)
    name = f"{plan.charts}/numalign:{__version__}"
    layer = json.loads(registry.crane("manifest", name))["layers"][0]["digest"]
    place = (f"oci://{plan.charts}/numalign", "--version", __version__, "--plain-http")
    with one_byte(released.blob(layer)), pytest.raises(rendering.HelmError):
        rendering.helm("pull", *place, "--destination", tmp_path)
    rendering.helm("pull", *place, "--destination", tmp_path)


def test_the_bill_of_materials_is_refused(released: Released, tmp_path: Path) -> None:
    """As a file, also when its checksum is mended, since the checksums are signed; and as an attestation."""
    plan = released.copy(tmp_path / "copy")
    sbom, sums = plan.sbom(image.HOST), plan.folder / SUMS
    with one_byte(sbom):
        with pytest.raises(ReleaseError, match=sbom.name):
            registry.verify_files(plan)
        before = sums.read_text()
        lines = [f"{sha256(plan.folder / name)}  {name}\n" for name in (line[66:] for line in before.splitlines())]
        sums.write_text("".join(lines))
        with pytest.raises(ReleaseError, match="verify-blob failed"):
            registry.verify_files(plan)
        sums.write_text(before)
    registry.verify_files(plan)
    digest = plan.digests()[image.HOST]
    where = f"{plan.image}:{digest.replace(':', '-')}.att"
    layer = json.loads(registry.crane("manifest", where))["layers"][0]["digest"]
    proof = ("verify-attestation", "--key", plan.folder / "numalign.pub", "--type", registry.CYCLONEDX)
    assert registry.verified(*proof, f"{plan.image}@{digest}")
    with one_byte(released.blob(layer)):
        assert not registry.verified(*proof, f"{plan.image}@{digest}")


def test_another_key_verifies_nothing(released: Released, tmp_path: Path) -> None:
    """A signature is worth what its key is: that of somebody else is refused everywhere."""
    plan = released.copy(tmp_path / "copy")
    registry.cosign("generate-key-pair", f"--output-key-prefix={tmp_path / 'other'}")
    (plan.folder / "numalign.pub").write_bytes((tmp_path / "other.pub").read_bytes())
    with pytest.raises(ReleaseError):
        registry.verify(plan)
    with pytest.raises(ReleaseError):
        registry.verify_files(plan)
