#!/usr/bin/env bash
# Creates the virtual environment from the lock file: venv.sh PYTHON FOLDER
#   PYTHON  a program or path, or "" for the first of python3.11 ... python3.14 and python3 that runs
# venv.sh --compare PYTHON FOLDER says on stderr where FOLDER has another version than PYTHON; it changes nothing.
# Debian keeps `ensurepip` in the package python3-venv: root gets it installed, other users read its name.
set -euo pipefail
version() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }
suits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
complete() { "$1" -c 'import ensurepip' 2>/dev/null; }
fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

if [ "$1" = --compare ]; then
    there=$(version "$3/bin/python") || exit 0
    if ! asked=$(version "$2"); then
        echo "PYTHON=$2 does not run here: using $3 with Python $there" >&2
    elif ! suits "$2"; then
        echo "PYTHON=$2 is $asked, and numalign needs 3.11 or newer: using $3 with Python $there" >&2
    elif [ "${asked%.*}" != "${there%.*}" ]; then
        echo "using $3 with Python $there; for another: make clean setup PYTHON=$2" >&2
    fi
    exit 0
fi

asked=$1 venv=$2 python=
if [ -n "$asked" ]; then
    found=$(version "$asked") || fail "PYTHON=$asked does not run here; name another: make PYTHON=/path/to/python3.11 ..."
    suits "$asked" || fail "numalign needs Python 3.11 or newer, and PYTHON=$asked is $found"
    python=$asked
else
    for each in python3.11 python3.12 python3.13 python3.14 python3; do
        if suits "$each" && { [ -z "$python" ] || complete "$each"; }; then
            python=$each
            if complete "$each"; then break; fi
        fi
    done
    found=$(version python3) || found="not here"
    [ -n "$python" ] || fail "numalign needs Python 3.11 or newer; python3 is $found, and python3.11 ... python3.14 do not run." \
        "Install one, or name it: make PYTHON=/path/to/python3.11 ..."
fi

# What an ended setup has left is used again where it is whole, and of the Python that was asked for.
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 || ! suits "$venv/bin/python" ||
    { [ -n "$asked" ] && [ ! -e "$venv/.ready" ] && [ "$(version "$asked")" != "$(version "$venv/bin/python")" ]; }; then
    if ! complete "$python"; then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            echo "installing python3-venv (Debian keeps ensurepip there)"
            apt-get -qq update && apt-get -qq install -y python3-venv >/dev/null
        fi
        complete "$python" || fail "$python cannot create virtual environments: it has no ensurepip." \
            "On Debian or Ubuntu: sudo apt-get install python3-venv"
    fi
    "$python" -m venv --clear "$venv"
fi
echo "filling $venv (Python $(version "$venv/bin/python")) with the versions pinned in deploy/lock/dev.txt (about a minute)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary=:all: -r deploy/lock/dev.txt
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
