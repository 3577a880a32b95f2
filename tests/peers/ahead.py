"""What tests need is built before the first of them begins: with progress, and outside of any test's time limit.

A tier is what one session fixture of tests/conftest.py stands for: a test that asks for that fixture, however
indirectly, needs the tier. What cannot be built is told once, with the reason and the command that brings it, and its
tests are skipped; in CI they fail.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests import peers, programs
from tests.arm import builds as arm
from tests.chart import schemas
from tests.cluster import fields
from tests.lab.needs import LabError
from tests.peers import kubelets, readers, tools
from tools import image

KNOWN = "NUMALIGN_MISSING"
"""Environment variable: the tiers that a process has tried to build in vain, with the reasons, as JSON."""
SOON, EVERY = 1.0, 20.0
"""Seconds: a build that takes longer is told, and again and again until it is done."""
Build = Callable[[], object]
_NAMES = re.compile(r"install|make \w+")


@dataclass(frozen=True)
class Tier:
    """Some tests, by what they need.

    Attributes:
        what: it is, for people.
        builds: name -> what makes it, or finds it in the cache.
        brings: the command that brings what is missing.
    """

    what: str
    builds: Mapping[str, Build]
    brings: str = "make peers"


def _image() -> Path:
    if os.geteuid():
        raise image.ImageMissingError("building an image without a registry needs root")
    return image.archive()


def _parts(arch: str) -> tuple[Path, Path]:
    """What an image of an architecture is built from."""
    with image.locked():
        return image.base(arch), image.wheels(arch)


CHARTING: Mapping[str, Build] = {
    "Helm": tools.helm, "Helm 4": tools.helm4, "kubeconform": tools.kubeconform, "helm-docs": tools.helm_docs,
    "helm-unittest": tools.unittest,
    **{f"schemas of Kubernetes {each}": partial(schemas.folder, each) for each in schemas.MODULES},
}  # fmt: skip
TIERS: Mapping[str, Tier] = {
    "program": Tier(
        "the container runtime's side of NRI",
        {"the NRI peer": partial(peers.build, "nri"), "that of the LTS": partial(peers.build, "nri", versions="lts")},
    ),
    "kube": Tier(
        "a real kube-apiserver and etcd", {"Kubernetes' components": lambda: kubelets.program(kubelets.served())}
    ),
    "charting": Tier("the chart, by the real Helm", CHARTING),
    "openapi": Tier(
        "the fields of Kubernetes' versions",
        {
            f"OpenAPI of Kubernetes {each}": partial(tools.module, "k8s.io/kubernetes", each)
            for each in fields.VERSIONS.values()
        },
    ),
    "cadvisor": Tier(
        "cAdvisor's own reader, as each kubelet has it",
        {f"cAdvisor of kubelet {each}": partial(readers.reader, each) for each in readers.VERSIONS},
    ),
    "archive": Tier(
        "the image", {"the image": _image},
        programs.COMMAND,
    ),
    "releasing": Tier(
        "a release, its signatures and its verification",
        {
            "cosign": tools.cosign, "crane": tools.crane, "Helm": tools.helm,
            "krew": tools.krew, "krew's validator": tools.krew_validator, "CycloneDX's schemas": tools.cyclonedx,
        },
        "make release-test",
    ),
    "arches": Tier(
        "images of every architecture",
        {f"what the image for {each} is made of": partial(_parts, each) for each in image.MACHINES},
        programs.COMMAND,
    ),
    "arm_guest": Tier(
        "a guest of 64-bit ARM", {"QEMU": arm.qemu, "its kernel": arm.kernel, "its disk": arm.disk},
        programs.COMMAND,
    ),
}  # fmt: skip
"""By their fixture's name."""


def fixtures(item: pytest.Item) -> set[str]:
    """The names of a test's fixtures; a parameter of the test may have the name of one."""
    return {*getattr(item, "fixturenames", ())} - {*getattr(getattr(item, "callspec", None), "params", ())}


@dataclass
class Ahead:
    """What was built, and what could not be.

    Attributes:
        say: a line for people.
        missing: tier -> why it is not there.
    """

    say: Callable[[str], None] = print
    tiers: Mapping[str, Tier] = field(default_factory=lambda: TIERS)
    missing: dict[str, str] = field(default_factory=lambda: dict(json.loads(os.environ.get(KNOWN) or "{}")))
    _built: set[str] = field(default_factory=set)

    def prepare(self, items: Iterable[pytest.Item]) -> None:
        wanted = {name for item in items for name in fixtures(item)}
        for name in self.tiers:
            if name in wanted:
                self.need(name)

    def need(self, name: str) -> str:
        """Build a tier if that was not tried yet; why it is not there, "" when it is."""
        if name not in self._built | self.missing.keys():
            try:
                for what, build in self.tiers[name].builds.items():
                    self._told(what, build)
                self._built.add(name)
            except (peers.PeerMissingError, image.ImageMissingError, programs.MissingError, LabError) as error:
                self.missing[name] = str(error)
                self.say(f"{self.tiers[name].what}: {error}")
            except (OSError, subprocess.SubprocessError) as error:  # a program or the network that a build needs
                self.missing[name] = programs.told_by(error) or f"{type(error).__name__}: {error}"
                self.say(f"{self.tiers[name].what}: {error}")
        return self.missing.get(name, "")

    def or_skip(self, name: str) -> None:
        """For the fixture: skip the test where its tier is missing; fail in CI."""
        why = self.need(name)
        if why:
            tier = self.tiers[name]
            text = f"{tier.what}: {why.splitlines()[0]}; `{tier.brings}` brings it"
            if os.environ.get("CI"):
                pytest.fail(f"{text}\n{why}")
            pytest.skip(text)

    @staticmethod
    def left_out(reasons: Iterable[str]) -> list[str]:
        """A line for each reason why tests were skipped that names what is to be installed or run."""
        found = Counter(each for each in reasons if _NAMES.search(each))
        return [f"NOT RUN: {number} tests: {reason}" for reason, number in found.items()]

    def _told(self, what: str, build: Build) -> None:
        done, began = threading.Event(), time.monotonic()

        def tell() -> None:
            if not done.wait(SOON):
                self.say(f"building {what}, once: it is kept in {Path(peers.CACHE).parent}")
                while not done.wait(EVERY):
                    self.say(f"building {what}: {time.monotonic() - began:.0f} s")

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        try:
            build()
        finally:
            done.set()
            thread.join()
        if time.monotonic() - began > SOON:
            self.say(f"built {what} in {time.monotonic() - began:.0f} s")


AHEAD = Ahead()
"""Of this process."""
