#!/bin/sh
# prepare.sh [nginx]: what the tests need besides Python. Installs only what is missing.
set -eu
here=$(dirname "$0")
missing=""
need() { # COMMAND PACKAGE
    command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || missing="$missing $2"
}
need nginx nginx-light
if [ "${1:-}" != nginx ]; then
    need curl curl
    need node nodejs
    need npm npm
    need runuser util-linux
    need redis-server redis-server
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
fi
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086
    sh "$here/system.sh" $missing
fi
if [ "${1:-}" != nginx ]; then
    # The SDKs ask for 22; what the tests use of them runs with 20 as well, and with nothing older.
    if [ "$(node -p 'parseInt(process.versions.node)')" -lt 20 ]; then
        echo "Node 20 or newer is needed for the tests; this is $(node --version)." >&2
        exit 1
    fi
    modules="$here/conformance/node/node_modules"
    if [ ! -e "$modules/.done" ] || [ "$here/conformance/node/package-lock.json" -nt "$modules/.done" ]; then
        (cd "$here/conformance/node" && npm ci --no-audit --no-fund --loglevel=error </dev/null)
        touch "$modules/.done"
    fi
fi
