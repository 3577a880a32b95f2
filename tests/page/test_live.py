"""The page of a real agent in a real browser: nothing comes from elsewhere, it follows, and says when it cannot."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import patience
from tests.page.browser import Browser
from tests.page.served import LIVE, Served, pod

pytestmark = pytest.mark.needs("chromium")
HOLDER = "document.querySelector('g[data-key=\"cpu-{}\"]')?.dataset.holder ?? ''"
ROWS = "[...document.querySelectorAll('#table tbody tr[data-uid]')].map((row) => row.cells[0].textContent).join(' ')"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """An agent with one pod on CPUs of its own."""
    with Served(tmp_path) as made:
        made.add(pod("first", "2"))
        yield made


def look(browser: Browser, served: Served, more: str = "") -> None:
    """Open the page and wait until it is live; nothing of an earlier page counts."""
    browser.fresh(served.url + more)
    browser.until(LIVE)


def test_it_needs_nothing_from_elsewhere_and_says_nothing_to_the_console(browser: Browser, served: Served) -> None:
    """Every request goes to the agent; no error, no exception, nothing that the security policy refused."""
    look(browser, served)
    assert browser.console == []
    outside = [url for url in browser.requested if not url.startswith((served.url, "data:"))]
    assert outside == []
    assert {url.removeprefix(served.url) for url in browser.requested if url.startswith("http")} == {
        "", "api/events", "api/node", "api/pods", "api/picture.svg?bare=1",
    }  # fmt: skip
    assert browser.run("document.title") == "node-7 · numalign"


def test_a_new_pod_appears_without_a_reload_and_goes_again(browser: Browser, served: Served) -> None:
    """Picture, bars and table follow the engine; the page stays the same page."""
    look(browser, served)
    browser.run("window.same = true")
    assert "default/first" in browser.run(ROWS)
    before = browser.run("document.querySelectorAll('g[data-key][data-holder]').length")
    browser.run(  # the next drawing has no news any more
        "window.news = 0; new MutationObserver(() => { window.news = Math.max(window.news, "
        "document.querySelectorAll('#picture .news').length); })"
        ".observe(document.getElementById('picture'), { childList: true })"
    )
    served.add(pod("second", "4"))
    browser.until("document.querySelectorAll('g[data-key][data-holder]').length === " + str(before + 4))
    browser.until(f"{ROWS}.includes('default/second')")  # rows and picture are fetched one after the other
    letters = browser.run(
        "[...document.querySelectorAll('#numa .strip span')].map((each) => each.textContent).join('')"
    )
    assert "B" in letters
    assert browser.run("window.news") == 4
    served.remove("second")
    browser.until(f"document.querySelectorAll('g[data-key][data-holder]').length === {before}")
    browser.until(f"!{ROWS}.includes('default/second')")
    assert browser.run("window.same") is True
    assert browser.console == []


def test_what_needs_a_look_is_said_first_and_in_plain_words(browser: Browser, served: Served) -> None:
    """A pod that is refused, one that waits, and a cgroup that somebody else wrote."""
    fail = {"numalign.io/policy": "single-numa-node", "numalign.io/on-misalignment": "fail"}
    wait = {**fail, "numalign.io/on-misalignment": "wait"}
    served.add(pod("huge", "20", annotations=fail), *(pod(f"full-{each}", "14") for each in range(4)))
    served.add(pod("patient", "12", annotations=wait))
    look(browser, served)
    text = browser.until("document.querySelector('#attention:not([hidden])')?.innerText")
    assert "default/huge refused: no NUMA node of this machine has 20 CPUs, even when empty" in text
    assert "default/patient waiting: waits for room" in text
    served.write("first", "cpuset.cpus", "0-3")
    text = browser.until("document.querySelector('#attention').innerText.includes('put right') && "
                         "document.querySelector('#attention').innerText")  # fmt: skip
    assert "of default/first (main): another program wrote another set: cpuset.cpus" in text
    assert "default/first (main)" in browser.run("document.getElementById('lately').innerText")


def test_the_kill_switch_is_said(browser: Browser, served: Served) -> None:
    """One switch stops it (S3): whoever looks sees at once that nothing is written."""
    look(browser, served)
    assert browser.run("document.getElementById('attention').hidden") is True
    served.configure(observeOnly=True)
    browser.until("document.getElementById('attention').innerText.includes('Nothing is written')")


def test_an_agent_that_goes_is_said_and_one_that_comes_back_is_shown_again(browser: Browser, tmp_path: Path) -> None:
    """Stale is told with the time since when; the page comes back by itself, with what is true then."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Served(tmp_path, page={"port": port}) as served:
        served.add(pod("first", "2"))
        look(browser, served)
        browser.run("window.same = true")
    text = browser.until("document.getElementById('live').className === 'chip bad' && "
                         "document.getElementById('live').textContent")  # fmt: skip
    assert text.startswith("agent is not answering since ")
    assert browser.run("document.body.classList.contains('stale')") is True
    with Served(tmp_path, page={"port": port}) as served:
        served.add(pod("later", "2"))
        browser.until(f"({LIVE}) && {ROWS}.includes('default/later')")
        assert browser.run("document.body.classList.contains('stale')") is False
        assert browser.run("window.same") is True


def test_an_explanation_has_an_address_of_its_own(browser: Browser, served: Served) -> None:
    """#pod/<uid> opens it, with what `numalign explain` says; an unknown pod is said to be unknown."""
    uid = next(iter(served.node.engine.snapshot.ledger.pods))
    look(browser, served, f"#pod/{uid}")
    text = browser.until("document.getElementById('why').open && document.querySelector('#why > div').innerText."
                         "includes('aligned') && document.getElementById('why').innerText")  # fmt: skip
    assert "default/first is aligned: CPUs 1,33 on NUMA node 0" in text
    browser.run("location.hash = 'pod/nobody'")
    browser.until("document.querySelector('#why > div').innerText.includes('does not know this pod')")
    browser.console.clear()  # the 404 is told there


def test_readers_that_take_nothing_do_not_slow_the_engine(served: Served) -> None:
    """Eight streams and twenty pictures that nobody reads: pods are decided, and the page is answered for others."""
    port = int(served.url.rstrip("/").rpartition(":")[2])
    readers = []
    for path in ("/api/events",) * 8 + ("/api/picture.svg?full=1",) * 20:
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        reader.connect(("127.0.0.1", port))
        reader.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        readers.append(reader)
    served.add(*(pod(f"worker-{each}", "2") for each in range(8)))
    for reader in readers:
        reader.close()


def test_the_page_moves_and_goes_with_the_settings(served: Served) -> None:
    """page.port and page.enabled take effect while the agent runs; a port that is taken stops nothing."""
    assert served.url
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        served.configure(page={"port": taken})
        wait_for(served, "")
        served.add(pod("second", "2"))
    wait_for(served, f"http://127.0.0.1:{taken}/")  # it is free again: nobody has to say so
    served.configure(page={"enabled": False})
    wait_for(served, "")
    served.configure(page={"port": 0})
    patience.until(lambda: served.url, "the page")
    with urllib.request.urlopen(served.url, timeout=60) as answer:
        assert answer.status == 200


def wait_for(served: Served, url: str) -> None:
    """Until the page is there."""
    patience.until(lambda: served.url == url, "the page")
