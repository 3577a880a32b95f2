"""Which agent the plugin asks for the word of a node, and what it makes of an answer that no agent would give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

PLUGIN = Path(__file__).parents[2] / "deploy/kubectl-numalign"
KUBECTL = """#!{python}
import json, sys, time
words, folder = sys.argv[1:], {folder!r}
if "port-forward" in words:
    open(folder + "/forwarded", "a").write(" ".join(words) + "\\n")
    print("Forwarding from 127.0.0.1:{port} -> 9178", flush=True)
    time.sleep(60)
found = json.load(open(folder + "/answers.json"))
kind = next(each for each in ("daemonsets", "pods", "pod", "events", "node") if each in words)
if isinstance(found[kind], str):
    sys.exit(found[kind])
items = found[kind]
if "-n" in words and kind == "pods":
    items = [each for each in items if each["metadata"]["namespace"] == words[words.index("-n") + 1]]
print(json.dumps({{"items": items}}))
"""


class Page(ThreadingHTTPServer):
    """Answers every request with the same bytes, or with a redirection."""

    answer = b"{}"
    elsewhere = ""
    asked = 0


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Page

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(302 if self.server.elsewhere else 200)
        if self.server.elsewhere:
            self.send_header("Location", self.server.elsewhere)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Say nothing."""


@pytest.fixture
def page() -> Iterator[Page]:
    """On loopback."""
    with Page(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def agent(space: str, name: str = "agent") -> dict[str, Any]:
    """A pod, or a template, with all that the chart gives an agent; every user may make one."""
    metadata = {
        "namespace": space, "name": name, "uid": f"{space}-{name}",
        "labels": {"app.kubernetes.io/component": "agent"},
        "annotations": {"numalign.io/tolerate-missing-plugin": "true"},
    }  # fmt: skip
    return {"metadata": metadata, "spec": {"nodeName": "w"}, "status": {"phase": "Running"}}


def daemonset(space: str) -> dict[str, Any]:
    """Of agents, in a namespace."""
    return {"metadata": {"namespace": space, "name": "numalign"}, "spec": {"template": agent(space)}}


def typed(folder: Path, page: Page, *words: str, **answers: Any) -> tuple[str, str, list[str]]:  # noqa: ANN401 - JSON
    """What `kubectl numalign node w` prints, its errors, and the pods that it forwarded a port to."""
    (folder / "answers.json").write_text(json.dumps(answers))
    kubectl = folder / "kubectl"
    kubectl.write_text(KUBECTL.format(python=sys.executable, folder=str(folder), port=page.server_port))
    kubectl.chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "NO_COLOR": "1", "http_proxy": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": "",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, PLUGIN, "node", "w", *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    forwarded = folder / "forwarded"
    lines = forwarded.read_text().splitlines() if forwarded.exists() else []
    return done.stdout, done.stderr, [line.split()[2] + " " + line.split()[3] for line in lines]


FAKE, REAL = agent("aaa-tenant", "not-an-agent"), agent("numa")


def test_a_pod_that_poses_as_an_agent_is_not_asked(tmp_path: Path, page: Page) -> None:
    """The agents' namespace is that of their DaemonSet; a pod of another one is none, however it is made."""
    _, errors, forwarded = typed(tmp_path, page, pods=[FAKE, REAL], daemonsets=[daemonset("numa")])
    assert (forwarded, errors) == (["numa pod/agent"], "")
    assert page.asked == 2


@pytest.mark.parametrize(
    ("daemonsets", "words"),
    [
        ([daemonset("numa"), daemonset("aaa-tenant")], "several namespaces look like numalign's (aaa-tenant, numa)"),
        ("Error from server (Forbidden): daemonsets.apps is forbidden", "Forbidden"),
        ([], "no agent runs on node w in namespace numalign-system"),
    ],
    ids=["two", "forbidden", "none"],
)
def test_where_the_agents_namespace_is_not_sure_none_is_asked(
    tmp_path: Path, page: Page, daemonsets: object, words: str
) -> None:
    """It is said why, and which option names the namespace; the annotations are shown all the same."""
    text, errors, forwarded = typed(tmp_path, page, pods=[FAKE, REAL], daemonsets=daemonsets)
    assert forwarded == []
    assert words in errors
    assert "--agent-namespace" in errors
    assert "on the shared pool" in text
    _, errors, forwarded = typed(
        tmp_path, page, "--agent-namespace", "numa", pods=[FAKE, REAL], daemonsets=daemonsets
    )
    assert (forwarded, errors) == (["numa pod/agent"], "")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"[1]", "another kind"), (b"[" * 100_000, "too deep"), (b" " * (17 << 20), "more than 16 MiB"),
        (b"<html>", ""),
        (b'{"n": ' + b"9" * 5000 + b"}", ""),
    ],
    ids=["list", "deep", "large", "html", "number"],
)  # fmt: skip
def test_an_answer_that_no_agent_gives_is_one_sentence(tmp_path: Path, page: Page, answer: bytes, words: str) -> None:
    """Whatever answers there is bounded, in size and in kind, and the table of annotations is shown."""
    page.answer = answer
    text, errors, _ = typed(tmp_path, page, pods=[REAL], daemonsets=[daemonset("numa")])
    assert "the agent of node w was not asked: " in errors
    assert words in errors
    assert "Traceback" not in errors
    assert "on the shared pool" in text


@pytest.mark.parametrize(
    "answer",
    [
        {"numaNodes": [7, {"id": []}, {"memory": 3, "free": {}}], "stopped": 5, "missing": [1], "pods": {"a": 1}},
        {"numaNodes": [{"id": 0, "memory": {"memory": {"total": "x", "free": 1e400}}}], "headline": {"a": "\x1b"}},
        {"numaNodes": "x", "pods": [3, {"uid": "numa-agent", "memory": {"0": {"memory": "much"}, "1": 7}}]},
    ],
)
def test_values_of_another_shape_are_shown_as_far_as_they_go(tmp_path: Path, page: Page, answer: object) -> None:
    """Each value is looked at before it is used, and no control character passes."""
    page.answer = json.dumps(answer).encode()
    text, errors, _ = typed(tmp_path, page, pods=[REAL], daemonsets=[daemonset("numa")])
    assert errors == ""
    assert "\x1b" not in text


def test_a_redirection_is_not_followed(tmp_path: Path, page: Page) -> None:
    """A redirection is an error: what is behind it was not asked for."""
    page.elsewhere = f"http://127.0.0.1:{page.server_port}/api/node"
    _, errors, _ = typed(tmp_path, page, pods=[REAL], daemonsets=[daemonset("numa")])
    assert "302" in errors
    assert page.asked == 1
