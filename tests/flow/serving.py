"""A node that serves a folder of manifests in a thread of the test, and what is asked of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from agent.app.cluster.build import ClusterService
from agent.app.standalone.build import StandaloneOptions, StandaloneService, standalone_node
from agent.host.standin import container_id
from tests import patience, scraped
from tests.flow.world import container, manifest

MACHINE = "synthetic:2 sockets x 1 node x 4 cores x 1 thread"


def write(folder: Path, name: str, *containers: dict[str, Any], **annotations: str) -> None:
    """A manifest without a uid, written as an editor does: beside, then renamed."""
    body = manifest(name, *containers)
    body["metadata"]["annotations"] = {
        f"numalign.io/{key.replace('_', '-')}": text for key, text in annotations.items()
    }
    del body["metadata"]["uid"], body["metadata"]["creationTimestamp"]
    spare = folder / f".{name}.swp"
    spare.write_text(yaml.safe_dump(body), "utf-8")
    spare.rename(folder / f"{name}.yaml")


def replaced(file: Path, text: str) -> None:
    """Replace a file as a whole: of one that is written in place, the agent may read nothing."""
    spare = file.with_name(f".{file.name}.spare")
    spare.write_text(text, "utf-8")
    spare.replace(file)


class Running:
    """A node that serves, in a thread."""

    def __init__(self, node: StandaloneService, state: Path) -> None:
        self.node, self.state = node, state

    def held(self) -> dict[str, str]:
        """Pod name -> its exclusive CPUs."""
        ledger = self.node.engine.ledger
        return {
            record.pod.name: str(ledger.grant(uid, "app").cpus or "shared") for uid, record in ledger.pods.items()
        }

    def cpuset(self, name: str) -> Path:
        """The cpuset.cpus of a pod's container app, once it is there."""
        number = container_id(next(pod.uid for pod in self.node.source.folder.pods if pod.name == name), "app")
        found: list[Path] = []

        def there() -> bool:
            found[:] = (self.state / "cgroup").rglob(f"*{number}.scope/cpuset.cpus")
            return bool(found)

        patience.until(there)
        return found[0]

    def runs_on(self, name: str) -> str:
        """The CPUs in force for it, "" while its cgroup is being made: a plain folder gets its files one by one."""
        try:
            return self.cpuset(name).with_name("cpuset.cpus.effective").read_text("ascii").strip()
        except FileNotFoundError:
            return ""

    def get(self, page: str) -> tuple[int, str]:
        return scraped.page(self.node.address, page)


@contextmanager
def in_thread(node: StandaloneService | ClusterService) -> Iterator[None]:
    """A node serves in a thread from now on, until the end of the block."""
    up = threading.Event()
    thread = threading.Thread(target=node.serve, args=(up.set,))
    thread.start()
    try:
        assert up.wait(patience.PATIENCE)
        yield
    finally:
        node.stop()
        thread.join(patience.PATIENCE)
    assert not thread.is_alive()


@contextmanager
def serving(folder: Path, **options: Any) -> Iterator[Running]:  # noqa: ANN401 - fields of Options
    """A node over folder/pods, until the end of the block."""
    (folder / "pods").mkdir(exist_ok=True)
    chosen = {"root": MACHINE, "metrics_address": "127.0.0.1:0", **options}
    made = standalone_node(StandaloneOptions(pods=folder / "pods", state=folder / "state", **chosen))
    with made as node, in_thread(node):
        yield Running(node, folder / "state")


@contextmanager
def serving_db(folder: Path, settings: str, held: str = "1-2") -> Iterator[Running]:
    """The same with these settings in folder/config.yaml, once it has given two CPUs to a pod db."""
    config = folder / "config.yaml"
    config.write_text(settings, "utf-8")
    with serving(folder, config=config) as node:
        write(folder / "pods", "db", container(cpu="2"))
        patience.until(lambda: node.held() == {"db": held})
        yield node
