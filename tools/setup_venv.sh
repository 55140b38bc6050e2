#!/bin/sh
# Make .venv hold exactly requirements.txt. Does nothing when it already does.
set -eu
cd "$(dirname "$0")/.."
stamp=.venv/.requirements
wanted=$(cksum <requirements.txt)
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && [ -x .venv/bin/ansible-playbook ] && exit 0

# ansible-core 2.19 runs on Python 3.11 to 3.13.
python=
for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if command -v "$name" >/dev/null 2>&1 &&
        "$name" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
        python=$name
        break
    fi
done
if [ -z "$python" ]; then
    echo "setup: no Python 3.11 to 3.13 with venv found; install one (Debian, Ubuntu: apt-get install python3 python3-venv) or name it: make setup PYTHON=/path/to/python3.12" >&2
    exit 1
fi
echo "setup: making .venv with $("$python" --version) (about a minute)"
rm -f "$stamp"
"$python" -m venv --clear .venv
# What pip has to say (of a configuration that names places which are not there, say) matters when it fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! .venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt >"$log" 2>&1; then
    cat "$log" >&2
    echo "setup: pip could not install requirements.txt into .venv" >&2
    exit 1
fi
echo "$wanted" >"$stamp"
