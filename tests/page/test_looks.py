"""The page for eyes, and hostile names: sizes, contrast, motion, print, and text that stays text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.observe.page.server import PageServer
from tests.page.browser import Browser
from tests.page.looking import OPEN, TOLD, look, some_pods
from tests.page.served import Served, Still, many_nodes, pod

pytestmark = pytest.mark.needs("chromium")
SMALLEST = 9.0
"""CSS pixels: below, digits of CPUs run together."""

OVERLAPS = """(() => {
  const wrong = [];
  const boxes = [...document.querySelectorAll('#picture g[data-key^="cpu-"]')].map((each) => [each, each.querySelector('rect').getBoundingClientRect()]);
  for (const [each, box] of boxes) for (const text of each.querySelectorAll('text')) {
    const inner = text.getBoundingClientRect();
    if (inner.left < box.left - .5 || inner.right > box.right + .5 || inner.top < box.top - 1.5 || inner.bottom > box.bottom + 1.5) wrong.push(`${text.textContent} leaves ${each.dataset.key}`);
  }
  for (let a = 0; a < boxes.length; a += 1) for (let b = a + 1; b < boxes.length; b += 1) {
    const [one, other] = [boxes[a][1], boxes[b][1]];
    if (one.left < other.right - .5 && other.left < one.right - .5 && one.top < other.bottom - .5 && other.top < one.bottom - .5) wrong.push(`${boxes[a][0].dataset.key} lies on ${boxes[b][0].dataset.key}`);
  }
  return wrong;
})()"""  # noqa: E501 - a script of the page's world
SIZES = """Math.min(...[...document.querySelectorAll('#picture text, main *')].filter((each) => each.checkVisibility()
  && [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())).map((each) => {
    const size = parseFloat(getComputedStyle(each).fontSize);
    const drawn = each.ownerSVGElement;
    return drawn ? size * drawn.getBoundingClientRect().width / drawn.viewBox.baseVal.width : size;
  }))"""
CONTRASTS = """(() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255).map((each) => each <= .04045 ? each / 12.92 : ((each + .055) / 1.055) ** 2.4)
    .reduce((sum, each, at) => sum + each * [.2126, .7152, .0722][at], 0);
  const under = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const [r, g, b, a = 1] = rgb(getComputedStyle(at).backgroundColor);
      if (a > .99) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const each of document.querySelectorAll('body *')) {
    if (each.ownerSVGElement || each.localName === 'svg' || !each.checkVisibility()) continue;
    if (![...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    const [one, other] = [light(rgb(getComputedStyle(each).color)), light(under(each))];
    const ratio = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
    if (ratio < 4.5) poor.push(`${each.localName}.${each.className} "${each.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return poor;
})()"""  # noqa: E501 - a script of the page's world


@pytest.mark.parametrize("width", [1400, 1024, 390])
def test_256_cpus_on_64_nodes_are_readable(browser: Browser, crowd: PageServer, width: int) -> None:
    """Every CPU is there, no text leaves its box, no box lies on another, nothing is too small or sticks out."""
    look(browser, crowd, width)
    assert browser.run("document.querySelectorAll('#picture g[data-key^=\"cpu-\"]').length") == 256
    assert browser.run("document.querySelectorAll('#numa li').length") == 64
    assert browser.run(OVERLAPS) == []
    assert browser.run(SIZES) >= SMALLEST - 0.01
    assert browser.run("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("width", [1400, 800, 390])
def test_no_set_of_cpus_is_broken_inside_a_range(browser: Browser, crowd: PageServer, width: int) -> None:
    """Every part up to a comma stands on one line of its cell; on a narrow page each cell has its column's name."""
    look(browser, crowd, width)
    assert browser.run("document.querySelectorAll('#table .whole').length") > 70
    broken = (
        "[...document.querySelectorAll('#table .whole')].filter((each) => each.getClientRects().length > 1).length"
    )
    assert browser.run(broken) == 0
    assert browser.run("document.querySelector('#table td.set').dataset.name") == "CPUs"
    empty = "[...document.querySelectorAll('#table td:not(.name)')].filter((each) => !each.textContent)"
    assert (
        browser.run(f"{empty}.filter((each) => !each.matches(':empty')).length") == 0
    )  # a narrow page leaves it out
    assert browser.run("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("width", [700, 800, 900, 901, 1024])
def test_the_reason_is_on_the_page_at_every_width(browser: Browser, tmp_path: Path, width: int) -> None:
    """Nothing has to be scrolled for it, sideways; nor for the legend of the picture; ids of devices stay whole."""
    with Served(tmp_path, "two-sockets") as served:
        served.add(pod("huge", "20", annotations={"numalign.io/policy": "single-numa-node"}), pod("small", "2"))
        browser.size(width, 1000)
        browser.fresh(served.url)
        rows = "document.querySelectorAll('#table tbody tr').length === 2"
        browser.until(f"document.querySelector('#picture svg') && {rows}")
        for box in ("#pods .scroll", *(["#picture"] if width >= 800 else [])):
            wide = f"document.querySelector('{box}').scrollWidth - document.querySelector('{box}').clientWidth"
            assert browser.run(wide) <= 0, box
        why = "document.querySelector('#table td.why:not(:empty)').getBoundingClientRect()"
        assert browser.run(f"{why}.right <= innerWidth && {why}.width >= 150")
        assert browser.run("document.documentElement.scrollWidth - innerWidth") <= 0


def test_no_range_is_broken_in_an_explanation(browser: Browser, tmp_path: Path) -> None:
    """At 400 px its sentences fold after words: "16-21,48-" on one line would be other CPUs than "16-21,48-53"."""
    with Served(tmp_path, "two-sockets") as served:
        for number in range(8):
            served.add(pod(f"p{number}", "8", "1Gi"))
        served.add(pod("late", "12", "1Gi", annotations={"numalign.io/policy": "single-numa-node"}))
        uid = next(uid for uid, each in served.node.engine.snapshot.pods.items() if each.pod.name == "late")
        browser.size(400, 900)
        browser.fresh(f"{served.url}#pod/{uid}")
        browser.until("document.querySelector('#why li') !== null")
        ranges = "[...document.querySelectorAll('#why .whole')]"
        assert browser.run(f"{ranges}.filter((each) => /^[0-9]+-[0-9]+$/.test(each.textContent)).length") > 3
        assert browser.run(f"{ranges}.filter((each) => each.getClientRects().length > 1).length") == 0


def test_zoom_and_unfolding(browser: Browser, crowd: PageServer, still: tuple[Still, PageServer]) -> None:
    """The buttons change the size of the picture and nothing else; fit comes back."""
    look(browser, crowd)
    wide = "document.querySelector('#picture svg').getBoundingClientRect().width"
    before = browser.run(wide)
    browser.run("document.getElementById('larger').click()")
    assert browser.run(wide) == pytest.approx(before * 1.25, rel=0.01)
    assert browser.run("document.documentElement.scrollWidth - innerWidth") <= 0
    browser.run("document.getElementById('fit').click()")
    assert browser.run(wide) == pytest.approx(before)
    idle = many_nodes()
    source, server = still
    source.seen = replace(idle, snapshot=replace(idle.snapshot, ledger=idle.snapshot.node.start()))
    look(browser, server)
    assert browser.run("document.querySelectorAll('#picture g[data-key^=\"node-\"]').length") < 8
    browser.run("document.getElementById('full').click()")
    browser.until("document.querySelectorAll('#picture g[data-key^=\"node-\"]').length === 64")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_in_light_and_dark(browser: Browser, still: tuple[Still, PageServer], scheme: str) -> None:
    """WCAG's 4.5 to 1 for every text of the page and of an explanation (the drawing's own pairs: test_drawing)."""
    look(browser, still[1], prefers_color_scheme=scheme)
    assert browser.run("document.documentElement.dataset.theme") == scheme
    assert browser.run(CONTRASTS) == []
    browser.run("location.hash = 'pod/uid-1'")
    browser.until(TOLD)
    assert browser.run(CONTRASTS) == []
    dark = browser.run("getComputedStyle(document.querySelector('#picture rect.page')).fill") == "rgb(13, 17, 23)"
    assert dark is (scheme == "dark")


def test_the_switch_of_light_and_dark_is_remembered(browser: Browser, still: tuple[Still, PageServer]) -> None:
    """The button turns it over, the drawing too; the next visit finds it so."""
    look(browser, still[1], prefers_color_scheme="light")
    browser.run("document.getElementById('theme').click()")
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    assert browser.run("getComputedStyle(document.querySelector('#picture rect.page')).fill") == "rgb(13, 17, 23)"
    look(browser, still[1], prefers_color_scheme="light")
    assert browser.run("document.documentElement.dataset.theme") == "dark"


HOSTILE = (
    "<img src=x onerror=window.broken=1>", "</script><script>window.broken=1</script>",
    "\"'><svg onload=window.broken=1>",
    "javascript:window.broken=1//", "&lt;b&gt;\u202egnp.evil]]>",
)  # fmt: skip


def test_hostile_names_stay_text(browser: Browser) -> None:
    """Pods, containers, reasons, paths, faults and machines named to break out: shown as they are, run never."""
    server = PageServer("127.0.0.1", 0, Still(some_pods(*HOSTILE, machine=HOSTILE[0])))
    try:
        look(browser, server)
        browser.run("location.hash = 'pod/uid-1'")
        browser.until(TOLD)
        assert browser.run("window.broken ?? 0") == 0
        assert browser.run("document.querySelectorAll('img, script, iframe, svg[onload]').length") == 1  # our script
        links = browser.run("[...document.querySelectorAll('a[href]')].map((each) => each.getAttribute('href'))")
        assert all(link.startswith(("#", "/api/")) for link in links)
        text = browser.run("document.getElementById('table').textContent")
        for name in HOSTILE[:4]:
            assert name in text
        assert "&lt;b&gt;\ufffdgnp.evil]]>" in text
        assert "\u202e" not in browser.run("document.documentElement.textContent")
        assert [line for line in browser.console if "404" not in line] == []
    finally:
        server.close()


def test_a_hash_of_somebody_else_asks_for_nothing_strange(browser: Browser, still: tuple[Still, PageServer]) -> None:
    """What stands behind # cannot make the page ask for another path."""
    look(browser, still[1])
    browser.requested.clear()
    for text in ("pod/../../api/node", "pod/a/b", "pod/%2e%2e", "pod/", "x", "pod/a?b"):
        browser.run(f"location.hash = {json.dumps(text)}")
    browser.run("new Promise((resolve) => setTimeout(resolve, 200))")
    assert [url for url in browser.requested if "explanation" in url] == []
    assert browser.run(OPEN) is False


def test_who_wants_no_motion_gets_none(browser: Browser, still: tuple[Still, PageServer]) -> None:
    """prefers-reduced-motion: nothing fades or moves."""
    moving = (
        "[...document.querySelectorAll('*')].filter((each) => { const look = getComputedStyle(each);"
        " return look.animationName !== 'none' || parseFloat(look.transitionDuration) > 0; }).length"
    )
    look(browser, still[1])
    assert browser.run(moving) > 0
    browser.media(prefers_reduced_motion="reduce")
    assert browser.run(moving) == 0


def test_paper(browser: Browser, still: tuple[Still, PageServer]) -> None:
    """Printed, there are no buttons, and all of the picture is on the sheet."""
    look(browser, still[1], media="print")
    hidden: Any = browser.run(
        "[...document.querySelectorAll('button, label')]"
        ".filter((each) => !each.closest('th') && each.checkVisibility()).length"
    )
    assert hidden == 0
    assert browser.run("getComputedStyle(document.getElementById('picture')).overflow") == "visible"
    assert browser.run("document.documentElement.scrollWidth - innerWidth") <= 0
