"""`make release`: what it makes is whole, pinned and verified; and it goes on where it was ended."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from agent import __version__
from tests.cluster.control_plane import ADMIN, ControlPlane
from tests.peers import tools
from tests.release.conftest import APART, REVISION, Released
from tools import image
from tools.chart import rendering
from tools.image import debian, debs
from tools.release import INDEX, ReleaseError, registry, sha256, steps

pytestmark = [APART, pytest.mark.timeout(1800), pytest.mark.go]
VALIDATE = (
    "import sys\n"
    "from cyclonedx.schema import SchemaVersion\n"
    "from cyclonedx.validation.json import JsonStrictValidator\n"
    "wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())\n"
    "sys.exit(str(wrong) if wrong else 0)\n"
)


def test_everything_is_made_pushed_and_verified(released: Released) -> None:
    """Each step is told with what it made; the registry has the index's own digest under the version."""
    names = [line.split("] ")[1].partition(":")[0] for line in released.said if line.startswith("[")]
    assert names == [each.name for each in steps.STEPS]
    plan = released.plan
    assert registry.digest_of(f"{plan.image}:{__version__}") == plan.digests()[INDEX]
    assert registry.verify(plan)[-1] == "8 files"


def test_one_name_has_the_image_of_every_architecture(released: Released) -> None:
    """Whoever pulls by the version gets the image of its own machine; each carries the commit as a label."""
    plan = released.plan
    index = json.loads(registry.crane("manifest", f"{plan.image}:{__version__}"))
    found = {each["platform"]["architecture"]: each["digest"] for each in index["manifests"]}
    assert found == {arch: plan.digests()[arch] for arch in image.MACHINES}
    for arch in image.MACHINES:
        config = json.loads(registry.crane("config", f"{plan.image}@{found[arch]}"))
        assert (config["architecture"], config["config"]["Labels"]["org.opencontainers.image.revision"]) == (
            arch,
            REVISION,
        )


def test_a_release_that_is_begun_again_does_nothing_twice(released: Released) -> None:
    """Files that are there and right are kept, the registry is only read, and the digests are the same."""
    plan = released.plan
    before = {each.name: (sha256(each), each.stat().st_mtime_ns) for each in plan.folder.glob("*") if each.is_file()}
    chart = registry.digest_of(f"{plan.charts}/numalign:{__version__}")
    said: list[str] = []
    steps.run(plan, said.append)
    after = {each.name: (sha256(each), each.stat().st_mtime_ns) for each in plan.folder.glob("*") if each.is_file()}
    assert said.count("    there already") == 6
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed <= {"numalign.pub"}, "the public key is written again, as it was"
    assert {name: each[0] for name, each in before.items()} == {name: each[0] for name, each in after.items()}
    assert registry.digest_of(f"{plan.charts}/numalign:{__version__}") == chart


def test_the_second_build_is_the_same_bytes(released: Released, tmp_path: Path) -> None:
    """Made anew in another folder: every file of the release, and the index of the images.

    Signatures alone differ each time. That images are the same from an empty store: tests/image/test_arches.py.
    """
    again = replace(released.plan, folder=tmp_path / "again", key="", registry=released.plan.registry)
    for step in steps.STEPS:
        if not step.needs:
            steps.run_one(again, step, lambda _: None)
    assert again.digests() == released.plan.digests()
    sums = (again.folder / "SHA256SUMS").read_text()
    assert sums == (released.plan.folder / "SHA256SUMS").read_text()
    assert sums.count("\n") == 8


def test_the_bill_of_materials_is_what_is_in_the_image(released: Released, tmp_path: Path) -> None:
    """CycloneDX's own schema takes it; Python's packages are those that the image has, Debian's those of dpkg."""
    for arch in image.MACHINES:
        path = released.plan.sbom(arch)
        done = subprocess.run(
            [tools.cyclonedx(), "-c", VALIDATE, path], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        bill = json.loads(path.read_text())
        digest = bill["metadata"]["component"]["hashes"][0]["content"]
        assert f"sha256:{digest}" == released.plan.digests()[arch]
        purls = [each["purl"] for each in bill["components"]]
        assert len({*purls}) == len(purls)
        python = {purl.removeprefix("pkg:pypi/") for purl in purls if purl.startswith("pkg:pypi/")}
        assert python == installed(released, arch, tmp_path / arch)
        system = {each["name"]: each["version"] for each in bill["components"] if "pkg:deb/" in each["purl"]}
        assert system == debian.packages(image.base(arch))
        files = {
            each["name"]: each["hashes"][0]["content"] for each in bill["components"] if "pkg:deb/" in each["purl"]
        }
        assert files == {each.name: each.digest for each in debs.recorded(debian.RECORD.read_text())[arch]}


def installed(released: Released, arch: str, folder: Path) -> set[str]:
    """What the image itself says that it has: the names of Python's packages, as a purl has them."""
    folder.mkdir()
    tar = folder / "files.tar"
    registry.crane("export", f"{released.plan.image}@{released.plan.digests()[arch]}", tar)
    found = set()
    with tarfile.open(tar) as archive:
        for name in archive.getnames():
            if name.endswith(".dist-info/METADATA") and name.startswith("opt/numalign/"):
                file = archive.extractfile(name)
                assert file
                lines = file.read().decode().splitlines()
                fields = dict(line.split(": ", 1) for line in lines[:60] if line.startswith(("Name: ", "Version: ")))
                found.add(f"{fields['Name'].lower().replace('_', '-').replace('.', '-')}@{fields['Version']}")
    tar.unlink()
    return found


def test_the_provenance_names_commit_locks_and_bases(released: Released) -> None:
    """An in-toto statement of SLSA's form; its subjects are the files and images of this release."""
    plan = released.plan
    statement = json.loads((plan.folder / "provenance.json").read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    subjects = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    assert subjects[plan.chart.name] == sha256(plan.chart)
    assert f"sha256:{subjects[f'numalign:{__version__}#{INDEX}']}" == plan.digests()[INDEX]
    made_of = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    digests = {each["name"]: each["digest"] for each in made_of}
    assert digests["numalign"] == {"gitCommit": REVISION}
    assert digests["deploy/lock/runtime.txt"] == {"sha256": sha256(debian.ROOT / "deploy/lock/runtime.txt")}
    assert {f"base of {arch}" for arch in image.MACHINES} <= digests.keys()


def test_the_chart_is_installed_from_the_registry(released: Released, cluster: ControlPlane, tmp_path: Path) -> None:
    """Pulled, rendered, and taken by a real API server, by its address; it names the signed image by digest."""
    plan = released.plan
    place = (f"oci://{plan.charts}/numalign", "--version", __version__, "--plain-http")
    rendering.helm("pull", *place, "--destination", tmp_path)
    assert sha256(tmp_path / plan.chart.name) == sha256(plan.chart)
    text = rendering.helm("template", "numalign", *place, "--kube-version", rendering.NEWEST)
    daemon = rendering.of_kind(rendering.objects(text), "DaemonSet")
    want = f"{plan.image}@{plan.digests()[INDEX]}"
    assert {each["image"] for each in daemon["spec"]["template"]["spec"]["containers"]} == {want}
    server = (f"--kube-apiserver={cluster.server}", f"--kube-token={ADMIN}", "--kube-insecure-skip-tls-verify")
    told = rendering.helm("install", "numalign", *place, "--dry-run=server", *server)
    assert want in told


def test_krew_takes_the_plugin(released: Released, tmp_path: Path) -> None:
    """What checks krew's index takes the manifest; krew installs the archive, whose checksum it has, and it runs."""
    manifest = released.plan.folder / "numalign.yaml"
    done = subprocess.run(
        [tools.krew_validator(), "-manifest", manifest, "-skip-install"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    archive = released.plan.folder / f"kubectl-numalign-{__version__}.tar.gz"
    (platform,) = yaml.safe_load(manifest.read_text())["spec"]["platforms"]
    assert platform["uri"] == f"https://example.org/files/{archive.name}"
    home = {"KREW_ROOT": str(tmp_path / "krew"), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    krew = [str(tools.krew()), "install", f"--manifest={manifest}", f"--archive={archive}"]
    done = subprocess.run(krew, env=home, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    plugin = tmp_path / "krew/bin/kubectl-numalign"
    told = subprocess.run([plugin, "--help"], env=home, capture_output=True, text=True, check=True, timeout=60)
    assert "kubectl numalign why" in told.stdout
    completion = plugin.resolve().with_name("kubectl_complete-numalign")
    told = subprocess.run([completion, "w"], env=home, capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.startswith("why\t")
    damaged = tmp_path / archive.name
    damaged.write_bytes(archive.read_bytes() + b"\0")
    shutil.rmtree(tmp_path / "krew")
    krew[-1] = f"--archive={damaged}"
    done = subprocess.run(krew, env=home, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0


def test_a_version_is_released_once(released: Released, tmp_path: Path) -> None:
    """Another image or chart under a version that is there is refused, and nothing is pushed."""
    plan = released.copy(tmp_path / "copy")
    there = registry.digest_of(f"{plan.image}:{__version__}")
    digests = plan.folder / "images.json"
    digests.write_text(digests.read_text().replace(there, f"sha256:{'0' * 64}"))
    plan.chart.write_bytes(plan.chart.read_bytes() + b"\0")
    for push in (registry.push_image, registry.push_chart):
        with pytest.raises(ReleaseError, match="is there already"):
            push(plan)
    assert registry.digest_of(f"{plan.image}:{__version__}") == there
