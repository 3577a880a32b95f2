"""`make release VERSION=0.2.0 [REGISTRY=registry.example.org/team] [KEY=cosign.key] [ARGS=--dry-run]`."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import yaml

from agent import __version__
from tests.peers import PeerMissingError
from tools import image
from tools.chart import rendering
from tools.release import Plan, ReleaseError, steps

ROOT = rendering.ROOT
PLACE = re.compile(r"[a-z0-9.\-\[\]:]+(/[a-z0-9._-]+)*")
"""A registry as references have it: host, perhaps a port, perhaps a path."""


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Make a release, or say what would be done; 1 when it cannot go on, 2 when it cannot begin."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.release", description="Make a release; see CONTRIBUTING.md."
    )
    parser.add_argument("--version", required=True, help="of agent, chart and plugin: the one that the sources have")
    parser.add_argument("--registry", default="", help="host and path to push to; without one nothing is pushed")
    parser.add_argument("--key", default="", help="cosign's private key, a file or a URI; COSIGN_PASSWORD opens it")
    parser.add_argument("--folder", type=Path, help="where files are made (dist/VERSION)")
    parser.add_argument("--source", default="", help="URL of the repository, for the provenance")
    parser.add_argument("--url", default="", help="where the files will be published, for krew's manifest")
    parser.add_argument("--no-push", action="store_true", help="name the registry in the chart, and push nothing")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and what is in the way")
    chosen = parser.parse_args(arguments)
    plan = Plan(
        version=chosen.version, registry=chosen.registry.rstrip("/"), key=chosen.key, source=chosen.source,
        folder=(chosen.folder or root / "dist" / chosen.version).resolve(), url=chosen.url, push=not chosen.no_push,
        revision=_git(root, "rev-parse", "HEAD"),
    )  # fmt: skip
    faults = [*obstacles(plan, root)]
    if chosen.dry_run:
        for number, step in enumerate(steps.wanted(plan), 1):
            print(f"[{number}] {step.name}: {step.what}")
        print(
            f"files in {plan.folder}; "
            + (f"{plan.image} and {plan.charts}/numalign" if plan.registry and plan.push else "no push")
        )
    for each in faults:
        print(f"in the way: {each}", file=sys.stderr)
    if faults or chosen.dry_run:
        return 2 if faults else 0
    try:
        steps.run(plan, lambda line: print(line, flush=True))
    except (ReleaseError, PeerMissingError, image.ImageMissingError, rendering.HelmError) as error:
        print(f"the release has stopped: {error}\nThe same command goes on where it stopped.", file=sys.stderr)
        return 1
    return 0


def obstacles(plan: Plan, root: Path) -> list[str]:
    """What keeps a release from beginning, in sentences; all of it at once."""
    about = yaml.safe_load((root / "charts/numalign/Chart.yaml").read_text("utf-8"))
    have = {
        "agent/__init__.py": __version__, "Chart.yaml's version": about["version"],
        "Chart.yaml's appVersion": about["appVersion"],
    }  # fmt: skip
    found = [f"{place} says {each}, not {plan.version}" for place, each in have.items() if each != plan.version]
    if f"\n## {plan.version} (" not in (root / "CHANGELOG.md").read_text("utf-8"):
        found.append(f"CHANGELOG.md has no entry of {plan.version}: `make changelog VERSION={plan.version}`")
    if changed := _git(root, "status", "--porcelain"):
        found.append(f"changes are not committed, so that no commit says what was built: {changed.splitlines()[0]}")
    if plan.registry and not PLACE.fullmatch(plan.registry):
        found.append(f"{plan.registry!r} is no registry like registry.example.org/team")
    if plan.registry and plan.push and not plan.key:
        found.append("nothing is pushed without a signature: give a key (`cosign generate-key-pair`)")
    if plan.key and "://" not in plan.key and not Path(plan.key).is_file():
        found.append(f"there is no key {plan.key}")
    return found


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
