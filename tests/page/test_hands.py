"""The page for hands and ears: keys, focus, names and roles."""

from __future__ import annotations

import pytest

from agent.observe.page.server import PageServer
from tests.page.browser import Browser
from tests.page.looking import HERE, OPEN, TOLD, look, some_pods
from tests.page.served import Still

pytestmark = pytest.mark.needs("chromium")


def test_all_of_it_by_keyboard(browser: Browser, still: tuple[Still, PageServer]) -> None:
    """Tab reaches the picture once, arrows walk, Enter explains, Escape comes back to where one was."""
    look(browser, still[1])
    browser.run("document.querySelector('.skip').focus()")
    for _ in range(12):
        browser.press("Tab")
        if browser.run(HERE) == "cpu-0":
            break
    assert browser.run(HERE) == "cpu-0"
    browser.press("ArrowRight")
    assert browser.run(HERE) == "cpu-1"
    assert "CPU 1: default/alpha, on NUMA node 0; Enter explains it" in browser.run(
        "document.getElementById('told').textContent"
    )
    assert browser.run("document.querySelectorAll('#picture .lit').length") >= 1
    browser.press("Enter")
    browser.until(TOLD)
    assert "default/alpha" in browser.run("document.getElementById('why-title').textContent")
    browser.press("Escape")
    browser.until(f"!{OPEN}")
    assert browser.run(HERE) == "cpu-1"
    browser.until("location.hash === ''")  # the dialog tells of its closing a moment later
    browser.press("Escape")
    assert browser.run(HERE) == "node-0"
    browser.press("ArrowRight")
    assert browser.run(HERE) == "node-1"
    browser.press("Enter")
    assert browser.run(HERE) == "cpu-4"
    browser.press("End")
    assert browser.run(HERE).startswith("device-")
    browser.press("Home")
    assert browser.run(HERE) == "cpu-0"
    browser.press("Tab")
    assert not browser.run(HERE).startswith(("cpu-", "node-", "device-"))


def test_everything_has_a_name_and_a_role(browser: Browser, still: tuple[Still, PageServer]) -> None:
    """For those who hear the page: no button in a button, nothing to go to or to look at without words, one h1."""
    look(browser, still[1])
    controls = (
        "[...document.querySelectorAll('button, input, a, [role=button], [role=img], [role=group], [tabindex]')]"
    )
    named = (
        "each.getAttribute('aria-label') || each.getAttribute('aria-labelledby') || each.textContent.trim()"
        " || each.labels?.length"
    )
    assert browser.run(f"{controls}.filter((each) => !({named})).map((each) => each.outerHTML.slice(0, 80))") == []
    assert browser.run("document.querySelectorAll('[role=button] [role=button], button button, a a').length") == 0
    assert browser.run("document.querySelectorAll('h1').length") == 1
    assert browser.run("document.documentElement.lang") == "en"
    ids = "[...document.querySelectorAll('[id]')].map((each) => each.id)"
    assert browser.run(f"{ids}.length - new Set({ids}).size") == 0
    assert browser.run("[...document.querySelectorAll('table th')].every((each) => each.scope)") is True


def test_the_table_sorts_and_filters_by_keyboard(browser: Browser, still: tuple[Still, PageServer]) -> None:
    """Headings are buttons with aria-sort; "/" goes to the filter; what is left is counted."""
    names = "[...document.querySelectorAll('#table tbody tr')].map((row) => row.dataset.uid ?? '').join()"
    look(browser, still[1])
    assert browser.run(names) == "uid-0,uid-1,uid-2,uid-3,uid-4"
    browser.run("document.querySelector('#table th button').focus()")
    browser.press("Enter")
    assert browser.run(names) == "uid-0,uid-1,uid-3,uid-2,uid-4"  # alpha beta delta gamma omega
    assert browser.run("document.querySelector('#table th').getAttribute('aria-sort')") == "ascending"
    browser.press("Enter")
    assert browser.run(names) == "uid-4,uid-2,uid-3,uid-1,uid-0"
    browser.press("Enter")
    browser.press("/")
    assert browser.run(HERE) == "filter"
    for key in "delta":
        browser.press(key)
    assert browser.run(names) == "uid-3"
    assert browser.run("document.getElementById('count').textContent") == "1 of 5 pods"


def test_focus_stays_where_it_was_when_the_picture_changes(browser: Browser, still: tuple[Still, PageServer]) -> None:
    """A change under somebody's hands takes neither the CPU nor the table's row away."""
    source, server = still
    look(browser, server)
    browser.run("go(item('cpu-2'))")  # as a click or an arrow does
    browser.run("window.drawn = document.querySelector('#picture svg')")
    source.seen = some_pods("alpha", "beta", "gamma", "omega")
    browser.until("document.querySelectorAll('#table tbody tr').length === 4")
    browser.until("document.querySelector('#picture svg') !== window.drawn")
    browser.until(f"{HERE} === 'cpu-2'")
    browser.run("document.querySelector('#table a').focus()")
    source.seen = some_pods("alpha", "beta", "omega")
    browser.until("document.querySelectorAll('#table tbody tr').length === 3")
    assert browser.run("document.activeElement.textContent") == "default/alpha"
