#!/bin/sh
# Resolve requirements.in afresh in a throw-away environment and write every version into requirements.txt.
set -eu
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
.venv/bin/python -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check --requirement requirements.in >"$scratch/log" 2>&1 || {
    cat "$scratch/log" >&2
    exit 1
}
{
    echo '# Complete lock of the controller environment (Python 3.11 to 3.13); made from requirements.in by make lock.'
    "$scratch/venv/bin/pip" freeze
} >"$scratch/requirements.txt"
mv "$scratch/requirements.txt" requirements.txt
