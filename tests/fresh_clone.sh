#!/usr/bin/env bash
# `make test-fresh`: `make demo` and `make test` in a fresh clone, with empty caches and a
# home of its own. Only committed files take part. The lab and the folder are gone afterwards.
set -euo pipefail

source=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
folder=$(mktemp -d "${TMPDIR:-/tmp}/eoctl-fresh-XXXXXX")

end() {
    if [ -x "$folder/clone/.venv/bin/eoctl" ]; then
        "$folder/clone/.venv/bin/eoctl" lab down --name demo >&2 || true
    fi
    rm -rf "$folder"
}
trap end EXIT

# Registries and proxies of this machine stay as they are; everything eoctl keeps is new.
for name in $(compgen -e | grep '^EOCTL_' || true); do unset "$name"; done
unset VIRTUAL_ENV
export HOME=$folder/home
export XDG_CONFIG_HOME=$HOME/.config XDG_CACHE_HOME=$HOME/.cache XDG_STATE_HOME=$HOME/.local/state
mkdir -p "$XDG_CONFIG_HOME"

git clone --quiet "$source" "$folder/clone"
cd "$folder/clone"
time make demo
time make test
echo "a fresh clone of $(git rev-parse --short HEAD) runs: make demo, make test"
