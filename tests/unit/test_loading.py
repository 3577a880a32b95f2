"""How the agent starts: with what it needs for its first pod, and without what only its readers need."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from contextlib import suppress

import pytest

from agent.cli.loading import quickly

READERS = {
    "agent.core.explain.explainer",
    "agent.observe.drawing",
    "agent.app.page.values",
    "agent.app.standalone.build",
}
OTHER_WORK = (
    "agent.forecast", "agent.app.gatekeeper", "agent.kube.gate",
    "agent.app.offline", "agent.app.fleet", "agent.app.simulate", "agent.app.standalone",
    "agent.host.scratch", "agent.host.standin", "agent.host.archives", "agent.host.lstopo", "agent.host.machines",
    "agent.core.machines.lstopo", "agent.core.machines.synthetic",
)  # fmt: skip
"""Packages and modules of forecasts, of offline commands, and of machines and kernels that are not this one's."""


def test_the_agent_starts_without_what_only_readers_need() -> None:
    """Explanations, drawings, the page's values, forecasts and recorded machines load when they are asked for."""
    code = "import sys, agent.cli.run, agent.cli.run_cluster; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "agent.app.cluster.build" in loaded
    assert not READERS & {*loaded}
    assert [each for each in loaded if each.startswith(OTHER_WORK)] == []


def test_a_node_pays_for_no_client_that_it_does_not_use() -> None:
    """The import of kopf brings no Kubernetes client with requests and oauthlib, 12 MiB; a command has it."""
    code = (
        "import sys, agent.app.cluster.build as _\nprint(*sys.modules)\n"
        "import kopf, kubernetes.client\nprint(kopf.operator.__name__, kubernetes.client.ApiClient.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, then = done.stdout.splitlines()
    assert not {"kubernetes", "pydantic", "requests", "oauthlib", "websocket", "pykube"} & {*loaded.split()}
    assert then == "operator ApiClient"


def test_loading_leaves_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """While modules load, no certificates are read and no garbage is looked for; afterwards all is as before."""
    monkeypatch.setenv("SSL_CERT_FILE", "/mine")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with suppress(ImportError), quickly():  # raised below
        assert (os.environ["SSL_CERT_FILE"], os.environ["SSL_CERT_DIR"]) == (os.devnull, os.devnull)
        assert not gc.isenabled()
        raise ImportError
    assert os.environ["SSL_CERT_FILE"] == "/mine"
    assert "SSL_CERT_DIR" not in os.environ
    assert gc.isenabled()
    gc.disable()
    with quickly():
        pass
    assert not gc.isenabled()
    gc.enable()
