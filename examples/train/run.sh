#!/bin/sh
# Trains with and without Millrace, and draws the curves: ./run.sh --quick, ./run.sh --seeds 0 1 2 --out results
# Needs Node 24 and Python 3.10 or newer with venv. Python packages go into a folder of the user's cache.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=${MILLRACE_TRAIN_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/millrace-train/venv}
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$here/requirements.txt" "$root/clients/python"
# In a clone of the repository, Node 24 is one of its packages.
PATH="$root/node_modules/.bin:$PATH" PYTHONDONTWRITEBYTECODE=1 exec "$venv/bin/python" "$here/main.py" "$@"
