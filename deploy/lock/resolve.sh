#!/usr/bin/env bash
# Writes the lock files anew: resolve.sh BIN-FOLDER. runtime.txt is what the image installs, dev.txt adds the tools of the tests,
# build.txt is what builds the wheel.
set -euo pipefail
bin=$1
"$bin/python" -m pip install --quiet uv
common=(--universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --quiet --upgrade)
"$bin/uv" pip compile "${common[@]}" pyproject.toml -o deploy/lock/runtime.txt
"$bin/uv" pip compile "${common[@]}" pyproject.toml --group dev -o deploy/lock/dev.txt
"$bin/python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
    | "$bin/uv" pip compile "${common[@]}" - -o deploy/lock/build.txt
