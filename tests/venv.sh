#!/bin/sh
# venv.sh PYTHON DIR: a virtual environment; on Debian its module is a package of its own.
set -eu
python=$1
dir=$2
"$python" - <<'CHECK' || { echo "Python 3.11 to 3.13 is needed; set PYTHON=... to name it." >&2; exit 1; }
import sys
sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
CHECK
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    sh "$(dirname "$0")/system.sh" python3-venv
fi
echo "Making a virtual environment and installing into it: half a minute on an idle machine, without a word." >&2
# --clear: what an interrupted run has left is no environment.
"$python" -m venv --clear "$dir"
