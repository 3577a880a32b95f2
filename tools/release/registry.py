"""The registry of a release: what is pushed, signed, attested and verified there.

What is there already is left alone: the same digest is done, another one under the version's tag is refused. What was
pushed is read back, and what was signed is verified by the public key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.peers import tools
from tools import image
from tools.chart import rendering
from tools.release import INDEX, Plan, ReleaseError, run, sha256
from tools.release.artefacts import SUMS

_ABSENT = ("MANIFEST_UNKNOWN", "NAME_UNKNOWN", "404 Not Found")
_SIGNING, _VERIFYING = ("--yes", "--tlog-upload=false"), ("--insecure-ignore-tlog=true",)
CYCLONEDX, PROVENANCE = "cyclonedx", "slsaprovenance1"


@dataclass(frozen=True)
class Attestation:
    """What is said of an image, and signed.

    Attributes:
        digest: of the image.
        kind: of the predicate, as cosign calls it.
        predicate: the file.
    """

    digest: str
    kind: str
    predicate: Path


def cosign(*arguments: str | Path) -> str:
    """Run cosign; its password comes by COSIGN_PASSWORD."""
    return run(tools.cosign(), *arguments)


def crane(*arguments: str | Path) -> str:
    """Run crane."""
    return run(tools.crane(), *arguments).strip()


def public(plan: Plan) -> Path:
    """The public key of the release, beside what it is for."""
    target = plan.folder / "numalign.pub"
    target.write_text(cosign("public-key", "--key", plan.key), "utf-8")
    return target


def sign_sums(plan: Plan) -> list[Path]:
    """The signature of the checksums; one that verifies is kept."""
    key, sums = public(plan), plan.folder / SUMS
    target = sums.with_suffix(".sig")
    if not (target.exists() and verified("verify-blob", "--key", key, "--signature", target, sums)):
        cosign("sign-blob", "--key", plan.key, *_SIGNING, "--output-signature", target, sums)
    return [key, target]


def digest_of(reference: str) -> str:
    """Of what a registry has under a name, "" for nothing; raises ReleaseError when it cannot be asked."""
    try:
        return crane("digest", reference)
    except ReleaseError as error:
        if any(each in str(error) for each in _ABSENT):
            return ""
        raise


def push_image(plan: Plan) -> str:
    """The image of all architectures under the version; its digest."""
    tag, want = f"{plan.image}:{plan.version}", plan.digests()[INDEX]
    _free(tag, digest_of(tag), want)
    crane("push", plan.folder / "image", tag)
    if (there := digest_of(tag)) != want:
        raise ReleaseError(f"{tag} was pushed as {want}, and is {there or 'not there'}")
    return want


def push_chart(plan: Plan) -> str:
    """The packaged chart as an OCI artefact; its digest."""
    tag, want = f"{plan.charts}/numalign:{plan.version}", f"sha256:{sha256(plan.chart)}"
    if digest_of(tag):
        _free(tag, _layer(tag), want)
    else:
        plain = ["--plain-http"] if plan.plain else []
        try:
            rendering.helm("push", plan.chart, f"oci://{plan.charts}", *plain, seconds=600)
        except rendering.HelmError as error:
            raise ReleaseError(f"helm push failed: {error}") from None
        if (there := _layer(tag)) != want:
            raise ReleaseError(f"{tag} was pushed with {want}, and has {there}")
    return digest_of(tag)


def _layer(tag: str) -> str:
    (layer,) = json.loads(crane("manifest", tag))["layers"]
    return str(layer["digest"])


def _free(tag: str, there: str, want: str) -> None:
    """A version is released once: what somebody pinned must not change."""
    if there not in ("", want):
        raise ReleaseError(
            f"{tag} is there already and is {there}, not {want}: a version is released once, take the next"
        )


def attestations(plan: Plan) -> Iterator[Attestation]:
    """The bill of materials of each image, and of all of them what they were made from."""
    digests = plan.digests()
    for arch in image.MACHINES:
        yield Attestation(digests[arch], CYCLONEDX, plan.sbom(arch))
    yield Attestation(digests[INDEX], PROVENANCE, plan.folder / "predicate.json")


def sign(plan: Plan, repository: str, digest: str) -> None:
    """An image, those below it, or a chart; nothing where the signature is there."""
    reference = f"{repository}@{digest}"
    if not verified("verify", "--key", public(plan), reference):
        cosign("sign", "--key", plan.key, *_SIGNING, "--recursive", reference)
        _verify("verify", "--key", public(plan), reference)


def attest(plan: Plan) -> None:
    """Each attestation, unless it is there."""
    for each in attestations(plan):
        reference = f"{plan.image}@{each.digest}"
        proof = ("verify-attestation", "--key", public(plan), "--type", each.kind, reference)
        if not verified(*proof):
            what = ("--type", each.kind, "--predicate", each.predicate)
            cosign("attest", "--key", plan.key, *_SIGNING, *what, reference)
            _verify(*proof)


def verify(plan: Plan) -> list[str]:
    """Everything, as somebody does who has the public key alone; what was verified.

    Raises:
        ReleaseError: something is not as it was signed; the text says what.
    """
    key = plan.folder / "numalign.pub"
    digests = plan.digests()
    found = []
    for name in (f"{plan.image}:{plan.version}", f"{plan.charts}/numalign:{plan.version}"):
        _verify("verify", "--key", key, name)
        found.append(name)
    for arch in image.MACHINES:
        _verify("verify", "--key", key, f"{plan.image}@{digests[arch]}")
    for each in attestations(plan):
        _verify("verify-attestation", "--key", key, "--type", each.kind, f"{plan.image}@{each.digest}")
        found.append(f"{each.kind} of {each.digest[:19]}")
    for name in (plan.image, f"{plan.charts}/numalign"):
        crane("validate", "--remote", f"{name}:{plan.version}")
    return [*found, *verify_files(plan)]


def verify_files(plan: Plan) -> list[str]:
    """The checksums by their signature, and each file by its checksum."""
    sums = plan.folder / SUMS
    _verify("verify-blob", "--key", plan.folder / "numalign.pub", "--signature", sums.with_suffix(".sig"), sums)
    lines = [line.split("  ", 1) for line in sums.read_text("utf-8").splitlines()]
    wrong = [name for digest, name in lines if sha256(plan.folder / name) != digest]
    if wrong:
        raise ReleaseError(f"not as {SUMS} says: {', '.join(wrong)}")
    return [f"{len(lines)} files"]


def _verify(verb: str, *arguments: str | Path) -> None:
    cosign(verb, *_VERIFYING, *arguments)


def verified(verb: str, *arguments: str | Path) -> bool:
    """Whether a signature is there and of the key."""
    try:
        _verify(verb, *arguments)
    except ReleaseError:
        return False
    return True
