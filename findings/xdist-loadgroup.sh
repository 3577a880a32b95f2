#!/usr/bin/env bash
# pytest-xdist 3.8.0 with pytest 9.2.0: `--dist loadgroup` does not keep the tests of one xdist_group in one process.
# The documentation of pytest-xdist says that tests of the same xdist_group run in the same worker. pytest-xdist writes
# the group into the attribute `_nodeid` of each test, and reads it back from `nodeid`. Since pytest 9.2.0 `nodeid` is
# made from another attribute, so the group is lost: no error, no warning, each test goes to any worker.
# Seen with Python 3.11: with pytest 9.0.2 a group of 40 tests runs in 1 worker, with pytest 9.2.0 in 2.
# Exit code 0 where that is still so, 1 where it is not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/test_group.py" <<'END'
import os, pathlib, pytest

pytestmark = pytest.mark.xdist_group("one")

@pytest.mark.parametrize("number", range(40))
def test_worker(number, pytestconfig):
    (pathlib.Path(os.environ["SEEN"]) / os.environ["PYTEST_XDIST_WORKER"]).touch()
END
workers() { # workers VERSION: of pytest; how many processes ran tests of the one group
    python3 -m venv "$folder/$1" && "$folder/$1/bin/pip" install --quiet "pytest==$1" pytest-xdist==3.8.0
    mkdir "$folder/seen-$1"
    (cd "$folder" && SEEN="$folder/seen-$1" "$folder/$1/bin/python" -m pytest -q -p no:cacheprovider -n 2 --dist loadgroup test_group.py >&2)
    find "$folder/seen-$1" -type f | wc -l
}
before=$(workers 9.0.2) after=$(workers 9.2.0)
echo "a group of 40 tests: pytest 9.0.2: $before worker(s); pytest 9.2.0: $after worker(s)"
[ "$before" = 1 ] && [ "$after" = 2 ]
