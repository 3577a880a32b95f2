"""The programs of the page "Which CPUs are mine?" are built and run with a file, and an environment, of that form."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.core.request.mixed import OWN_CPUS, SHARED_CPUS, assigned
from agent.host.cpu_files import DESTINATION, FILE
from agent.model.idset import CpuSet
from tests import programs
from tests.docs.pages import DOCS

PAGE = DOCS / "my-cpus.md"
READ = f"{DESTINATION}/{FILE}"
ALLOWED = CpuSet.from_ids(os.sched_getaffinity(0))
"""What this machine lets a thread be pinned to."""
WITHIN = 300.0
LANGUAGES = ("c", pytest.param("go", marks=pytest.mark.go), "java", "python")


def snippet(language: str) -> str:
    """The one block of the page in this language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


def needs(program: str) -> str:
    """The path of a compiler or interpreter; the test is skipped where it is not there."""
    if program != "java":
        return programs.need(program)
    found = shutil.which(program)
    if found is None:  # no other test needs it, and it is large
        pytest.skip("java is not here: apt-get install default-jdk-headless")
    return found


def command(language: str, folder: Path, file: Path) -> list[str]:
    """The command that runs a snippet, built where it must be, which reads `file` in place of the mounted one."""
    text = snippet(language)
    assert READ in text
    names = {"c": "mine.c", "go": "mine.go", "java": "Mine.java", "python": "mine.py"}
    source = folder / names[language]
    source.write_text(text.replace(READ, str(file)), encoding="utf-8")
    if language == "python":
        return [sys.executable, str(source)]
    if language == "java":
        return [needs("java"), str(source)]
    built = str(folder / "mine")
    build = {
        "c": lambda: [needs("gcc"), "-Wall", "-Wextra", "-Werror", "-o", built, str(source)],
        "go": lambda: [needs("go"), "build", "-o", built, str(source)],
    }[language]()
    subprocess.run(build, check=True, capture_output=True, timeout=WITHIN, cwd=folder)
    return [built]


def ran(args: list[str], **environment: str) -> tuple[int, set[int]]:
    """Exit code and the CPUs that a program prints."""
    clean: Mapping[str, str] = {key: text for key, text in os.environ.items() if not key.startswith("NUMALIGN_")}
    done = subprocess.run(
        args, check=False, capture_output=True, text=True, timeout=WITHIN, env={**clean, **environment}
    )
    return done.returncode, {int(line) for line in done.stdout.split()}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_program_finds_its_own_cpus(language: str, tmp_path: Path) -> None:
    """From the file, else from the environment; with neither, or with no CPUs of its own, it says so."""
    file = tmp_path / FILE
    args = command(language, tmp_path, file)
    own = CpuSet.of(ALLOWED.first)
    lines = assigned(ALLOWED, own)
    assert ran(args) == (1, set())
    assert ran(args, **{OWN_CPUS: str(own)}) == (0, set(own))
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()), encoding="ascii")
    assert ran(args, **{OWN_CPUS: str(own)}) == (0, set(ALLOWED))
    file.write_text(f"{OWN_CPUS}=\n{SHARED_CPUS}={ALLOWED}\n", encoding="ascii")
    assert ran(args, **{OWN_CPUS: str(own)}) == (1, set())


def test_the_list_format_is_read_as_the_kernel_writes_it(tmp_path: Path) -> None:
    """Ranges and single numbers, which no machine of two CPUs has: by the part of the program that reads them."""
    text = snippet("python").partition("\nown = ")[0].replace(READ, str(tmp_path / FILE))
    (tmp_path / FILE).write_text(f"{OWN_CPUS}=0-2,7,64-65\n{SHARED_CPUS}=3\n", encoding="ascii")
    code = f"{text}\nprint(*sorted(own_cpus()), sep='\\n')\n"
    assert ran([sys.executable, "-c", code]) == (0, {0, 1, 2, 7, 64, 65})


def test_dpdks_line_is_made_of_the_file(tmp_path: Path) -> None:
    """The shell line of the page, with a program in place of DPDK that shows its arguments."""
    (tmp_path / FILE).write_text(
        "".join(f"{k}={v}\n" for k, v in assigned(CpuSet.parse("4-7"), CpuSet.parse("0-1")).items())
    )
    shown = tmp_path / "dpdk-testpmd"
    shown.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    shown.chmod(0o755)
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (text,) = (each for each in blocks if "dpdk" in each)
    done = subprocess.run(
        ["/bin/sh", "-ec", text.replace(READ, str(tmp_path / FILE))],
        check=True, capture_output=True, text=True, timeout=WITHIN,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["--lcores=127@(0-1),4-7", "--main-lcore=127", "--", "--forward-mode=io"]
