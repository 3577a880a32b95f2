"""The tutorial's second part on a real node: its commands as they stand, from install to uninstall.

What differs from the page: Docker and kind are not there, so the node has the images by the names that the page gives
them; the agent goes to the one node that is for it; an emulated machine gets more time; and since this API server
does not reach the kubelets, what `kubectl exec` would print of a pod's CPUs is asked of the node's kernel.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import __version__
from tests import peers
from tests.docs import pages
from tests.lab import images, reading
from tests.lab.chart import LONG, PATIENT, Helm, instead, wait
from tests.lab.cluster import Lab
from tests.lab.node import KIND
from tests.peers import tools
from tools.chart import rendering

PAGE = pages.DOCS / "tutorial.md"
COMMANDS = [each.text for each in pages.commands() if each.page == PAGE and each.place in ("helm", "kind")]
TAGS = {
    f"docker.io/library/numalign:{__version__}": f"numalign.local/numalign:{__version__}",
    images.PLAY: "docker.io/library/busybox:1.37",
}
"""Image of the node -> what the page calls it."""
ALIGNED = re.compile(r"CPUs (\d+) on NUMA node \d+, policy best-effort")
ASKED = re.compile(r"kubectl -n tutorial exec (\w+) -- grep Cpus_allowed_list /proc/self/status")


class Reader:
    """Types what the page says.

    Attributes:
        said: command -> what it printed.
    """

    def __init__(self, helm: Helm, folder: Path) -> None:
        self.said: dict[str, str] = {}
        self._helm, (self._refusal,) = helm, (each for each in pages.blocks(PAGE, "text") if "exclusiveCPUs" in each)
        for name, program in (("kubectl", peers.kube()), ("helm", tools.helm())):
            (folder / name).symlink_to(program)
        homes = {f"HELM_{each}_HOME": str(folder / each) for each in ("CACHE", "CONFIG", "DATA")}
        self._environment = {
            **os.environ, **homes, "PATH": f"{folder}:{os.environ['PATH']}",
            "KUBECONFIG": str(helm.lab.plane.kubeconfig),
        }  # fmt: skip

    def types(self, text: str) -> None:
        """One command; it has to end with 0."""
        asked = ASKED.fullmatch(text)
        if asked:
            self.said[text] = self._cpus(asked[1])
        elif " apply " in text:
            self._wait_account()
            self.said[text] = self._run(text)
        elif " describe " in text:
            wait(lambda: self._refusal in " ".join(self._run(text).split()), "the refusal's Event", 300)
        else:
            self.said[text] = self._run(text)

    def _run(self, text: str) -> str:
        text = re.sub(r"--timeout=\d+s", "--timeout=900s", text)
        if text.startswith("helm install"):
            selector = KIND.replace(".", r"\.")
            text += f" --set 'nodeSelector.{selector}={self._helm.node.plan.kind}' --set {PATIENT}"
        if text.startswith("helm"):
            text = " ".join([text, *LONG])
        done = subprocess.run(
            ["bash", "-c", text], cwd=rendering.ROOT, env=self._environment, capture_output=True, text=True,
            timeout=1000, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _cpus(self, name: str) -> str:
        found = self._helm.lab.pod(name, "tutorial")
        return reading.kernel(self._helm.node, [found])[found["metadata"]["uid"]]["app"].cpus

    def _wait_account(self) -> None:
        """A reader is not as fast as a test: by then the namespace has its service account."""
        where = "/api/v1/namespaces/tutorial/serviceaccounts"
        wait(lambda: self._helm.lab.plane.call("GET", where)["items"], "the namespace's account")


@pytest.fixture
def reader(alone: Lab, tmp_path: Path) -> Iterator[Reader]:
    """On a node that has the images, and in a cluster where nothing of numalign is."""
    with instead(alone) as helm:
        for image, name in TAGS.items():
            helm.node.run(f"ctr -n k8s.io images tag --force {image} {name}")
        found = Reader(helm, tmp_path)
        found.types("kubectl delete namespace numalign-system --ignore-not-found")
        try:
            yield found
        finally:
            found.types("helm uninstall numalign -n numalign-system --no-hooks --ignore-not-found")
            found.types("kubectl delete namespace tutorial numalign-system --ignore-not-found")
            for name in TAGS.values():
                helm.node.run(f"ctr -n k8s.io images rm {name}")


def test_the_tutorial_is_what_happens(reader: Reader) -> None:
    """Installed, one pod pinned, one held back with the page's sentence and then let in, and all of it taken away."""
    for text in COMMANDS:
        if not text.startswith(("kind ", "docker ")):
            reader.types(text)
    said = {text.partition("\n")[0]: told for text, told in reader.said.items()}
    assert (
        'daemon set "numalign" successfully rolled out'
        in said["kubectl -n numalign-system rollout status daemonset/numalign"]
    )
    (aligned,) = (ALIGNED.fullmatch(told.strip()) for text, told in said.items() if "-o jsonpath" in text)
    assert aligned
    assert {told for text, told in said.items() if ASKED.fullmatch(text)} == {aligned[1]}, "both had the same CPU"
    assert 'release "numalign" uninstalled' in said["helm uninstall numalign -n numalign-system"]
