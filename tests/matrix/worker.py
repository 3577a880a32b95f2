"""Runs pairs of faults, many at a time: they mostly wait. `python -m tests.matrix.worker THREADS FOLDER`.

Names of pairs come in on standard input, a line each; results go out, a line of JSON each, as they are ready.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.matrix.agents import Agents
from tests.matrix.faults import Pair, pairs
from tests.matrix.pairs import run


def main() -> None:
    """Run what is asked for."""
    threads, folder = int(sys.argv[1]), Path(sys.argv[2])
    known, lock = {pair.name: pair for pair in pairs()}, threading.Lock()
    with Agents() as agents, ThreadPoolExecutor(threads) as pool:

        def one(pair: Pair) -> None:
            home = folder / re.sub(r"\W+", "-", pair.name)
            home.mkdir(parents=True)
            result = run(pair, home, agents)
            if not result.wrong:
                shutil.rmtree(home, ignore_errors=True)
            with lock:
                sys.stdout.write(json.dumps(result.as_json()) + "\n")
                sys.stdout.flush()

        for line in sys.stdin:
            pool.submit(one, known[line.strip()])


if __name__ == "__main__":
    main()
