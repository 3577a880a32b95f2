"""`python -m tests.peers`: build every peer that the tests use, saying so; quick when they are cached."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests import peers
from tests.chart import schemas
from tests.cluster import fields
from tests.peers import tools


def main() -> int:
    """Build them; 1 when one cannot be built."""
    names = ("nri", "devices", "hog", "sweep")
    builds: dict[str, Callable[[], Path]] = {name: partial(peers.build, name) for name in names}
    builds |= {
        "kube": peers.kube, "helm": tools.helm, "kubeconform": tools.kubeconform, "helm-docs": tools.helm_docs,
        "helm-unittest": tools.unittest,
    }  # fmt: skip
    builds |= {f"schemas of Kubernetes {version}": partial(schemas.folder, version) for version in schemas.MODULES}
    for module in fields.VERSIONS.values():
        builds[f"OpenAPI of Kubernetes {module}"] = partial(tools.module, "k8s.io/kubernetes", module)
    for name, build in builds.items():
        began = time.monotonic()
        print(f"{name}: ", end="", flush=True)
        try:
            print(f"{build()} ({time.monotonic() - began:.0f} s)")
        except peers.PeerMissingError as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
