"""Screenshots of the node page, from a real agent with pods on a described machine, in a headless browser."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.page.browser import Browser
from tests.page.served import LIVE, Served, pod
from tools.pictures.palette import shrink

MACHINE = "two-sockets"
WIDE, HIGH = 1000, 1230
PHONE = (400, 1300)
CLEAN = {"numalign.io/policy": "single-numa-node"}


def pods() -> list[dict[str, Any]]:
    """What runs on the node of the picture: some of it as it should be, some not."""
    one = {**CLEAN, "numalign.io/on-misalignment": "fail"}
    wait = {**CLEAN, "numalign.io/on-misalignment": "wait"}
    return [
        pod("engine-0", "6", "8Gi", namespace="trading"), pod("engine-1", "6", "8Gi", namespace="trading"),
        pod("upf-0", "8", "24Gi", namespace="telco"), pod("postgres-0", "8", "20Gi", namespace="db"),
        pod("trainer-0", "12", "40Gi", namespace="ml", annotations=CLEAN), pod("shop-7d9f", None, namespace="web"),
        pod("trainer-1", "14", "40Gi", namespace="ml", annotations=CLEAN),
        pod("solver-0", "12", "30Gi", namespace="hpc", annotations=one),
        pod("trainer-2", "6", "40Gi", namespace="ml", annotations=wait),
    ]  # fmt: skip


def shoot(folder: Path, examples: Path) -> list[Path]:
    """Write page-light.png, page-dark.png, page-narrow.png and explanation.png; returns their paths.

    Args:
        folder: where to.
        examples: the folder with the example configuration.
    """
    settings = yaml.safe_load((examples / "config.yaml").read_text("utf-8"))
    with (
        tempfile.TemporaryDirectory() as place,
        Served(Path(place), MACHINE, **settings) as served,
        Browser() as browser,
    ):
        for each in pods():
            served.add(each)
        browser.size(WIDE, HIGH)
        made = []
        for scheme in ("light", "dark"):
            browser.fresh(served.url, prefers_color_scheme=scheme)
            browser.until(LIVE)
            browser.run("new Promise((resolve) => setTimeout(resolve, 300))")
            made.append(browser.shot(folder / f"page-{scheme}.png"))
        browser.size(*PHONE)
        browser.fresh(served.url, prefers_color_scheme="light")
        browser.until(LIVE)
        browser.run("new Promise((resolve) => setTimeout(resolve, 300))")
        made.append(browser.shot(folder / "page-narrow.png"))
        uid = next(uid for uid, each in served.node.engine.snapshot.pods.items() if each.pod.name == "solver-0")
        browser.size(WIDE, 640)
        browser.fresh(f"{served.url}#pod/{uid}", prefers_color_scheme="light")
        browser.until(f"{LIVE} && document.querySelector('#why > div h3') !== null")
        made.append(browser.shot(folder / "explanation.png"))
        return [shrink(browser, each) for each in made]
