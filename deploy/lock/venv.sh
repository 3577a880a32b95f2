#!/usr/bin/env bash
# Creates the virtual environment from the lock file: venv.sh PYTHON FOLDER
# Debian keeps `ensurepip` in the package python3-venv: root gets it installed, others are told.
set -euo pipefail
python=$1 venv=$2
command -v "$python" >/dev/null || python=python3
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "numalign needs Python 3.11 or newer; \"$python\" is $("$python" -V). Set it with: make PYTHON=/path/to/python3.11 ..." >&2
    exit 1
}
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing python3-venv (Debian keeps ensurepip there)"
        apt-get -qq update && apt-get -qq install -y python3-venv >/dev/null
    else
        echo "\"$python\" cannot create virtual environments. On Debian or Ubuntu: sudo apt-get install python3-venv" >&2
        exit 1
    fi
fi
echo "creating $venv with the versions pinned in deploy/lock/dev.txt (about a minute)"
[ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r deploy/lock/dev.txt
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
