"""Logs, metrics and health: what is said, and that it can be said without harm."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import logging
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families

from agent.app.service.gauges import of_largest, of_mismatch, of_nodes
from agent.core.accounting.usage import MemoryUse, NodeUse
from agent.errors import HostError, SettingsError
from agent.model.idset import CpuSet
from agent.observe import logs
from agent.observe.health import HELD, RECOVERY, STALE_SECONDS, Health, Server, parse_address
from agent.observe.listener import MOST
from agent.observe.metrics import SPECS, Metrics, Shown
from agent.observe.share import CpuShare
from agent.observe.threads import watched
from agent.operation import operation
from tests.patience import PATIENCE


def lines(style: str, level: str = "info") -> io.StringIO:
    """Where log lines go from now on."""
    stream = io.StringIO()
    logs.setup(style, level, stream)
    return stream


def test_json_lines_carry_the_operation_and_its_facts() -> None:
    """Begin and end, with one op of eight hex digits, seconds and outcome; facts never hide a field of ours."""
    stream = lines("json")
    with operation("sync", pods=3):
        logs.LOG.warning("refused", extra={"facts": {"pod": "default/a", "level": "high"}})
    logs.LOG.info("after")
    begin, middle, end, after = (json.loads(line) for line in stream.getvalue().splitlines())
    assert re.fullmatch("[0-9a-f]{8}", begin["op"])
    assert begin["op"] == middle["op"] == end["op"]
    assert (begin["msg"], begin["pods"]) == ("begin sync", 3)
    assert (middle["level"], middle["level_"], middle["pod"]) == ("warning", "high", "default/a")
    assert (end["msg"], end["outcome"]) == ("end sync", "done")
    assert "op" not in after


def test_a_failed_operation_says_so() -> None:
    """The exception goes on its way."""
    stream = lines("json")
    with pytest.raises(HostError), operation("sync"):
        raise HostError("/x", "is gone")
    assert json.loads(stream.getvalue().splitlines()[-1])["outcome"] == "failed"


def test_no_text_from_outside_begins_a_line_of_its_own() -> None:
    """Line ends, escape codes and endless texts in names stay within their line."""
    for style in ("text", "json"):
        stream = lines(style)
        logs.LOG.error("%s", "evil\n2026 INFO all is well\x1b[2J" + "x" * 10_000, extra={"facts": {"a b": 'q"\nz'}})
        assert len(stream.getvalue().splitlines()) == 1
        assert "\x1b" not in stream.getvalue()
        assert len(stream.getvalue()) < logs.LONGEST + 300


def test_levels_are_kept() -> None:
    """Below the level nothing is written; a second setup replaces the first."""
    stream = lines("text", "error")
    logs.LOG.warning("quiet")
    assert stream.getvalue() == ""
    assert len(logging.getLogger("numalign").handlers) == 1


def test_every_metric_is_in_the_table_and_on_the_page() -> None:
    """SPECS is the whole truth: names, kinds and labels on the page are those of the table, and no others."""
    node = NodeUse(
        0, CpuSet.parse("1-2"), CpuSet.parse("0,3"), CpuSet.parse("0"), CpuSet.parse("3"),
        {"memory": MemoryUse(100, 10, 30)},
    )  # fmt: skip
    metrics = Metrics()
    for spec in SPECS:
        name = spec.name.removeprefix("numalign_")
        if spec.kind == "counter":
            metrics.count(name, *("x" for _ in spec.labels))
        elif spec.kind == "histogram":
            metrics.time(name, *("x" for _ in spec.labels), seconds=0.01)
    page = metrics.page({**of_nodes([node]), "pods": {"pinned": 2}, "manifest_errors": 1, "ready": True}).decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    expected = {spec.name: spec.kind for spec in SPECS}
    assert {name: kind for name, kind in kinds.items() if not name.startswith("process_")} == expected
    assert not re.search(r"_created\b", page)
    found = {
        (name, tuple(re.findall(r'(\w+)="', labels)))
        for name, labels in re.findall(r"^(\w+)\{(.*)\}", page, re.MULTILINE)
    }
    labelled = {spec.name: set(spec.labels) for spec in SPECS if spec.kind != "histogram"}
    assert {name: set(labels) for name, labels in found if name in labelled}.items() <= labelled.items()
    assert {spec.name for spec in SPECS if spec.kind == "counter" and spec.labels} <= {name for name, _ in found}
    assert 'numalign_memory_bytes{numa_node="0",resource="memory",use="free"} 60.0' in page
    assert 'numalign_cpus{numa_node="0",use="shared"} 2.0' in page
    assert "numalign_ready 1.0" in page


def test_a_value_without_a_row_of_the_table_is_a_fault() -> None:
    """A gauge that is misspelt where it happens shows nothing else in its place."""
    with pytest.raises(KeyError):
        Metrics().page({"redy": 1})


def test_what_alerts_count_is_there_before_it_happens() -> None:
    """Prometheus sees no rise where a series begins with its first event: refusals, repairs, saves begin as 0."""
    page = Metrics().page({}).decode()
    for line in (
        'numalign_admissions_total{outcome="refused",policy="restricted",reason="TopologyAffinityError"} 0.0',
        'numalign_writes_total{cause="drift-foreign",file="cpuset.cpus",result="ok"} 0.0',
        'numalign_checkpoint_saves_total{result="failed"} 0.0',
        'numalign_pod_actions_total{action="storm-run"} 0.0',
    ):
        assert line in page


def test_what_is_replaced_is_served_beside_what_replaces_it() -> None:
    """Dashboards of the version before go on; no new name mixes CPUs with bytes, or a sum with its parts."""
    node = NodeUse(0, CpuSet(), CpuSet(), CpuSet(), CpuSet(), {"memory": MemoryUse(100, 10, 30)})
    largest = {"cpu": 3, "memory": 60, "hugepages-2Mi": 0}
    page = Metrics().page({**of_nodes([node]), **of_largest(largest), **of_mismatch(1500)}).decode()
    for line in (
        "numalign_largest_aligned_cpus 3.0", 'numalign_largest_aligned_bytes{resource="memory"} 60.0',
        'numalign_largest_aligned_bytes{resource="hugepages-2Mi"} 0.0',
        'numalign_largest_aligned{resource="cpu"} 3.0',
        "numalign_reserved_mismatch_cpus 1.5", "numalign_reserved_mismatch_millicpus 1500.0",
        'numalign_memory_capacity_bytes{numa_node="0",resource="memory"} 100.0',
        'numalign_memory_bytes{numa_node="0",resource="memory",use="total"} 100.0',
    ):  # fmt: skip
        assert f"\n{line}\n" in page
    assert 'numalign_largest_aligned_bytes{resource="cpu"}' not in page
    known = {spec.name for spec in SPECS}
    for spec in SPECS:
        assert set(re.findall(r"numalign_\w+", spec.instead)) <= known
        assert ("Deprecated" in spec.about) == bool(spec.instead)


def test_the_agents_own_process_is_measured() -> None:
    """CPU time, memory, start and open files, named as Prometheus' clients name them everywhere."""
    page = Metrics().page({}).decode()
    found = dict(re.findall(r"^(process_\w+) (\S+)$", page, re.MULTILINE))
    assert float(found["process_resident_memory_bytes"]) > 2**20
    assert float(found["process_start_time_seconds"]) > 1.7e9
    assert found.keys() >= {"process_cpu_seconds_total", "process_open_fds", "process_virtual_memory_bytes"}


def test_a_scraper_that_asks_for_openmetrics_is_given_it() -> None:
    """Prometheus asks for both formats, and prefers OpenMetrics; each is kept for a moment by itself."""
    made: list[str] = []
    metrics = Metrics()

    def make(kind: str) -> bytes:
        made.append(kind)
        return metrics.page({}, kind)

    shown = Shown(make, lambda: 0.0 if len(made) % 2 else 1.0)
    asked = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    kind, text = shown(asked)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith(b"# EOF\n")
    parsed = openmetrics_families(text.decode())  # type: ignore[no-untyped-call]  # the library has no types for it
    families = {each.name: each for each in parsed}
    assert families["numalign_ready"].type == "gauge"
    assert families["numalign_checkpoint_saves"].type == "counter"
    for accept in ("", "text/plain", "*/*"):
        kind, text = shown(accept)
        assert kind.startswith("text/plain; version=")
        assert b"# EOF" not in text


def test_metric_names_follow_the_rules_of_prometheus() -> None:
    """Prefix, base unit or _total at the end, help as a sentence, no label that names a pod (S20)."""
    for spec in SPECS:
        assert spec.instead or not re.search(r"_(milli|kilo|mega)\w+$|_(milli)?seconds_\w+$", spec.name)
        assert re.fullmatch(r"numalign_[a-z_]+", spec.name)
        assert spec.name.endswith("_total") == (spec.kind == "counter")
        assert spec.help.endswith(".")
        assert not {"pod", "uid", "container", "namespace", "node"} & set(spec.labels)


def test_live_means_that_the_loop_turns() -> None:
    """A loop that stands still for a minute is not alive."""
    now = [0.0]
    health = Health(lambda: now[0])
    now[0] = STALE_SECONDS - 1
    assert health.live()[0] is True
    now[0] = STALE_SECONDS + 1
    assert health.live() == (False, "the loop turned 61.0 s ago")
    health.beat()
    assert health.live()[0] is True


def test_a_thread_that_dies_is_told_and_ends_being_live(caplog: pytest.LogCaptureFixture) -> None:
    """Logged with its name, counted, and /healthz says why, for the kubelet to restart it; exits are none."""
    health, counted = Health(), list[int]()

    def fault() -> None:
        raise TypeError("no such word")

    def leave() -> None:
        raise SystemExit

    def begin(name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=name)
        thread.start()
        thread.join()

    outer, threading.excepthook = threading.excepthook, threading.__excepthook__
    try:
        with watched(health, lambda: counted.append(1)):
            begin("leaver", leave)
            assert health.live()[0]
            begin("intake", fault)
            begin("publisher", fault)
        assert threading.excepthook is threading.__excepthook__
    finally:
        threading.excepthook = outer
    assert health.live() == (False, "the thread intake ended: TypeError: no such word")
    assert health.pages()["/healthz"]("")[0] == 503
    assert len(counted) == 2
    assert "publisher ended" in caplog.text


def test_ready_means_recovered_and_nothing_missing() -> None:
    """Every condition must be met; the text names those that are not."""
    health = Health()
    assert health.ready() == (False, "recovery: has not finished")
    health.set("recovery", "")
    health.set("checkpoint", "disk full")
    assert health.ready() == (False, "checkpoint: disk full")
    health.set("checkpoint", "")
    assert health.ready() == (True, "ready")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("127.0.0.1:9177", ("127.0.0.1", 9177)), (":0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80)), ("*:1", None)],
)
def test_addresses(text: str, parsed: tuple[str, int] | None) -> None:
    """Loopback where no host is named (S20)."""
    assert parse_address(text) == (parsed or ("*", 1))


@pytest.mark.parametrize("text", ["", "9177", "localhost", "a:b", "a:99999", "a:-1", "a:١"])
def test_addresses_that_are_none(text: str) -> None:
    """One sentence that names the option."""
    with pytest.raises(SettingsError, match=r"--metrics-address: .* is no address such as"):
        parse_address(text)


def test_pages_answer_get_and_head_and_nothing_else() -> None:
    """Other paths are 404, other methods 501; a taken port is one sentence."""
    server = Server("127.0.0.1:0", {"/x": lambda _accept: (200, "text/plain", b"hello")})
    base = f"http://{server.address}"
    with urllib.request.urlopen(f"{base}/x?y=1") as answer:
        assert (answer.status, answer.read()) == (200, b"hello")
    with urllib.request.urlopen(urllib.request.Request(f"{base}/x", method="HEAD")) as answer:
        assert (answer.headers["Content-Length"], answer.read()) == ("5", b"")
    for request, status in ((f"{base}/", 404), (urllib.request.Request(f"{base}/x", data=b"", method="POST"), 501)):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request)
        assert caught.value.code == status
        caught.value.close()
    with pytest.raises(HostError, match="cannot be listened on: Address already in use"):
        Server(server.address, {})
    server.close()


def test_questions_in_a_loop_have_a_share_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is charged; beyond the share an answer is held for a tenth of a second, and is the truth of its moment."""
    held: list[float] = []
    monkeypatch.setattr(time, "sleep", held.append)
    now, used, health = [0.0], [0.0], Health()
    share = CpuShare(0.05, 0.25, clock=lambda: now[0], used=lambda: used[0])

    def slow(_accept: str) -> tuple[int, str, bytes]:
        used[0] += 0.2
        return 200, "text/plain", b""

    server = Server("127.0.0.1:0", {**health.pages(), "/slow": slow}, share=share)

    def ask(path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://{server.address}{path}") as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    assert [ask("/slow"), ask("/readyz"), ask("/slow")] == [200, 503, 200]
    assert held == [0, 0, 0]
    health.set(RECOVERY, "")
    assert [ask("/readyz"), ask("/healthz")] == [200, 200], "Ready is told of the moment, never of an older one"
    assert held[3:] == [HELD, HELD]
    now[0] += 10
    assert (ask("/healthz"), held[5:]) == (200, [0])
    server.close()


def test_nothing_is_held_where_places_run_out() -> None:
    """A prober whose connection is held could lose its place: it is answered at once, with no share left."""
    used = [0.0]
    share = CpuShare(0.05, 0.25, clock=lambda: 0.0, used=lambda: used[0])
    with share.charged():
        used[0] += 1000
    server = Server("127.0.0.1:0", {"/x": lambda _accept: (200, "text/plain", b"hello")}, share=share)
    host, _, port = server.address.rpartition(":")
    with contextlib.ExitStack() as silent:
        for _ in range(MOST * 3 // 4):
            silent.enter_context(socket.create_connection((host, int(port))))
        began = time.monotonic()
        for _ in range(50):
            with urllib.request.urlopen(f"http://{server.address}/x") as answer:
                assert answer.read() == b"hello"
        assert time.monotonic() - began < 50 * HELD
    server.close()


@pytest.mark.parametrize("address", ["::1:0", "[::1]:0"])
def test_pages_of_a_pod_with_an_ipv6_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """$(POD_IP):9177 works there too, and listening asks no name server who that is."""
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")

    def asked(_host: str) -> str:
        raise AssertionError("a name was looked up")

    monkeypatch.setattr(socket, "getfqdn", asked)
    server = Server(address, {"/x": lambda _accept: (200, "text/plain", b"hello")})
    with urllib.request.urlopen(f"http://{server.address}/x") as answer:
        assert answer.read() == b"hello"
    server.close()


def test_a_client_that_says_nonsense_disturbs_nobody() -> None:
    """Bytes that are no HTTP end their own connection only."""
    server = Server("127.0.0.1:0", {"/x": lambda _accept: (200, "text/plain", b"hello")})
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"\x00\xff\r\n\r\n")
        client.recv(100)
    with urllib.request.urlopen(f"http://{server.address}/x") as answer:
        assert answer.read() == b"hello"
    server.close()


def test_a_reader_that_goes_away_leaves_no_word(capfd: pytest.CaptureFixture[str]) -> None:
    """A scraper that gives up is no event; a page that fails is one, in the log and not between its lines."""
    stream = lines("text")
    sent, gone = threading.Event(), threading.Event()

    def slow(_accept: str) -> tuple[int, str, bytes]:
        sent.set()
        gone.wait(PATIENCE)
        return 200, "text/plain", b"x" * (1 << 24)

    def broken(_accept: str) -> tuple[int, str, bytes]:
        raise ValueError("no page today")

    server = Server("127.0.0.1:0", {"/x": slow, "/y": broken})
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port))) as reader:
        reader.sendall(b"GET /x HTTP/1.0\r\n\r\n")
        assert sent.wait(PATIENCE)
        reader.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        )  # a reset, as of a process that died
    gone.set()
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        urllib.request.urlopen(f"http://{server.address}/y")
    server.close()
    assert "Traceback" not in capfd.readouterr().err
    assert "a page failed" in stream.getvalue()
    assert "no page today" in stream.getvalue()
    assert "BrokenPipe" not in stream.getvalue()
    assert "ConnectionReset" not in stream.getvalue()
