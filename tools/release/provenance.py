"""What a release was made from: an in-toto statement with SLSA's predicate (https://slsa.dev/spec/v1.0/provenance).

It says what the maker of the release says, signed by the maker's key; no level of SLSA is claimed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools import image
from tools.image import debian
from tools.release import Plan, sha256, written

STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
BUILD = "https://numalign.io/provenance/make-release/v1"
LOCKS = ("runtime.txt", "build.txt", "pip.txt", "debian.toml", "base.txt")


def make(plan: Plan, files: Iterable[Path]) -> list[Path]:
    """The statement of the files and images, and its predicate alone, which cosign attests an image with."""
    predicate = said(plan)
    subjects = [{"name": each.name, "digest": {"sha256": sha256(each)}} for each in sorted(files)]
    subjects += [
        {"name": f"numalign:{plan.version}#{of}", "digest": {"sha256": digest.removeprefix("sha256:")}}
        for of, digest in sorted(plan.digests().items())
    ]
    statement = {"_type": STATEMENT, "subject": subjects, "predicateType": PREDICATE, "predicate": predicate}
    return [written(plan.folder / "provenance.json", statement), written(plan.folder / "predicate.json", predicate)]


def said(plan: Plan) -> dict[str, Any]:
    """The predicate: commit, lock files, bases."""
    suite, _ = debian.settings()
    commit = {"name": "numalign", "digest": {"gitCommit": plan.revision}}
    locks = [
        {"name": f"deploy/lock/{each}", "digest": {"sha256": sha256(debian.ROOT / "deploy/lock" / each)}}
        for each in LOCKS
    ]
    bases = [
        {"name": f"base of {arch}", "digest": {"sha256": sha256(image.base(arch))}, "mediaType": "application/x-tar"}
        for arch in image.MACHINES
    ]
    return {
        "buildDefinition": {
            "buildType": BUILD,
            "externalParameters": {"version": plan.version, "architectures": [*image.MACHINES]},
            "internalParameters": {"suite": suite, "archive": debian.moment(), "sourceDateEpoch": debian.EPOCH},
            "resolvedDependencies": [
                {**commit, **({"uri": f"git+{plan.source}@{plan.revision}"} if plan.source else {})}, *locks, *bases,
            ],
        },
        "runDetails": {"builder": {"id": BUILD}},
    }  # fmt: skip
