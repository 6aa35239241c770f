#!/bin/sh
# system.sh PACKAGE...: install Debian packages, as root or with sudo.
set -eu
as_root=""
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "Install these packages first: $*" >&2; exit 1; }
    as_root="sudo"
fi
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get -qq update
$as_root apt-get -qq install -y --no-install-recommends "$@" </dev/null
