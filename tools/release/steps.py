"""The steps of a release, in their order. Each can be ended and begun again: what is there and right stays."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.image import debian
from tools.release import INDEX, Plan, artefacts, provenance, registry, sbom, sha256, written

Say = Callable[[str], None]
_STATE = ".made.json"


@dataclass(frozen=True)
class Step:
    """One of them.

    Attributes:
        name: in a word or two.
        what: it makes, for people.
        make: does it: the files that it made, or lines about what is in the registry now.
        needs: "key" or "registry", without which it is left out.
    """

    name: str
    what: str
    make: Callable[[Plan], Iterable[Path | str]]
    needs: str = ""


def _made(plan: Plan, *names: str) -> list[Path]:
    """The files of earlier steps that somebody may take from the folder."""
    state = _state(plan)
    return [plan.folder / each for name in names for each in state[name]["files"] if "/" not in each]


def _sign(plan: Plan) -> Iterator[str]:
    registry.sign(plan, plan.image, plan.digests()[INDEX])
    yield f"{plan.image}@{plan.digests()[INDEX]}"
    digest = registry.digest_of(f"{plan.charts}/numalign:{plan.version}")
    registry.sign(plan, f"{plan.charts}/numalign", digest)
    yield f"{plan.charts}/numalign@{digest}"


def _attest(plan: Plan) -> list[str]:
    registry.attest(plan)
    return [f"{each.kind} of {each.digest}" for each in registry.attestations(plan)]


_LOCAL = ("images", "sbom", "chart", "plugin")
STEPS = (
    Step("images", "images for amd64 and arm64, as one OCI layout", artefacts.images),
    Step("sbom", "what is in each image, as CycloneDX", sbom.make),
    Step("chart", "the chart, naming this image by its digest", artefacts.chart),
    Step("plugin", "kubectl numalign, and krew's manifest", artefacts.plugin),
    Step("provenance", "what all of it was made from", lambda plan: provenance.make(plan, _made(plan, *_LOCAL))),
    Step("checksums", "of all files", lambda plan: artefacts.checksums(plan, _made(plan, *_LOCAL, "provenance"))),
    Step("signature", "of the checksums", registry.sign_sums, "key"),
    Step("push image", "into the registry", lambda plan: [registry.push_image(plan)], "registry"),
    Step("push chart", "into the registry", lambda plan: [registry.push_chart(plan)], "registry"),
    Step("sign", "image and chart in the registry", _sign, "registry"),
    Step("attest", "the image, with SBOM and provenance", _attest, "registry"),
    Step("verify", "everything, by the public key", registry.verify, "registry"),
)


def wanted(plan: Plan) -> list[Step]:
    """Those that a plan has the means for."""
    means = {"": True, "key": bool(plan.key), "registry": bool(plan.registry) and plan.push}
    return [each for each in STEPS if means[each.needs]]


def run(plan: Plan, say: Say) -> None:
    """Do them; what each came to is said. Raises ReleaseError and image.ImageMissingError, PeerMissingError."""
    steps = wanted(plan)
    for number, step in enumerate(steps, 1):
        say(f"[{number}/{len(steps)}] {step.name}: {step.what}")
        run_one(plan, step, say)


def run_one(plan: Plan, step: Step, say: Say) -> None:
    """One of them, unless its files are there."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    if not step.needs and _there(plan, step):
        say("    there already")
        return
    made = [*step.make(plan)]
    files = [each for each in made if isinstance(each, Path)]
    if not step.needs:
        names = {str(each.relative_to(plan.folder)): sha256(each) for each in files}
        written(plan.folder / _STATE, {**_state(plan), step.name: {"of": _of(plan), "files": names}})
    for each in (*(one for one in made if isinstance(one, str)), *(_shown(one) for one in files)):
        if each:
            say(f"    {each}")
    say(f"    {time.monotonic() - began:.0f} s")


def _shown(path: Path) -> str:
    """A line about a file, "" for the blobs of a layout."""
    return "" if "image" in path.parent.parts[-3:] else f"{sha256(path)}  {path.name}"


def _state(plan: Plan) -> dict[str, Any]:
    """Step -> what it was made for, and its files with their checksums."""
    try:
        found: dict[str, Any] = json.loads((plan.folder / _STATE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def _of(plan: Plan) -> str:
    """What the files of a step depend on."""
    parts = (plan.version, plan.registry, plan.revision, plan.source, plan.url, debian.RECORD.read_text("utf-8"))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _there(plan: Plan, step: Step) -> bool:
    """Whether a step was done for this very plan, and its files are still what they were."""
    noted = _state(plan).get(step.name)
    if noted is None or noted["of"] != _of(plan):
        return False
    return all(
        (plan.folder / name).is_file() and sha256(plan.folder / name) == digest
        for name, digest in noted["files"].items()
    )
