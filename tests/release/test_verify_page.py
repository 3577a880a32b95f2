"""The page "Verify what you run": its commands, run by somebody with the files, the public key and the registry."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from agent import __version__
from tests.docs import pages
from tests.peers import tools
from tests.release.conftest import APART, Released
from tools import image

pytestmark = [APART, pytest.mark.timeout(1800), pytest.mark.go]
COMMANDS = [each.text for each in pages.commands() if each.place == "release"]
RUN = [each for each in COMMANDS if each.startswith(("cosign", "crane", "sha256sum"))]
"""Installing and making again are tests/release/test_release.py's."""


def test_the_page_has_all_of_it() -> None:
    """Image, chart, SBOM, provenance, files: nothing of a release is left unverified by the page."""
    assert [each.split(" ")[0:2] for each in RUN] == [
        ["cosign", "verify"], ["cosign", "verify"], ["crane", "digest"], ["cosign", "verify-attestation"],
        ["cosign", "verify-attestation"], ["cosign", "verify-blob"], ["sha256sum", "--check"],
    ]  # fmt: skip


@pytest.mark.parametrize("command", RUN)
def test_commands_verify(command: str, released: Released, tmp_path: Path) -> None:
    """Each ends with 0 where everything is as it was released."""
    for name, program in (("cosign", tools.cosign()), ("crane", tools.crane())):
        (tmp_path / name).symlink_to(program)
    plan = released.plan
    words = {"REGISTRY": plan.registry, "VERSION": __version__, "DIGEST": plan.digests()[image.HOST]}
    text = re.sub("|".join(words), lambda match: words[match.group()], command)
    done = subprocess.run(
        ["bash", "-c", text], cwd=plan.folder, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
