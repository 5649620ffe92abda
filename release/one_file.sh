#!/bin/sh
# eoctl in one file, for Linux @MACHINE@ with glibc @GLIBC@ or newer; it brings its own Python.
# The first start unpacks it into a folder of this user (EOCTL_BINARY_DIR, else the first of those
# below that keeps programs), later ones begin there. It may be deleted at any time. A library in
# it (psycopg's and crc32c's are LGPL) is replaced by putting another file in its place.
sum=@SUM@
me=$(id -u) || exit 1

# can this folder keep programs? $1: the folder
keeps() {
    probe=$1/.eoctl-$me-$$
    (umask 077 && printf '#!/bin/sh\nexit 0\n' >"$probe" && chmod 700 "$probe") 2>/dev/null || return 1
    "$probe" 2>/dev/null && kept=0 || kept=1
    rm -f "$probe"
    return $kept
}

# whole, ours, and on a file system that runs programs? $1: the folder
whole() {
    [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] && [ -f "$1/_internal/@LAST@" ] && [ -x "$1/eoctl" ]
}

# $1: the folder that is to be
unpack() {
    new=$1.$$
    rm -rf "$new"
    (umask 077 && mkdir -p "$new") 2>/dev/null || return 1
    if tail -n +@LINES@ "$0" | tar xzf - -C "$new" 2>/dev/null; then
        # another start may have been quicker, a cleaner of /var/tmp have left half of it
        whole "$1" || { rm -rf "$1" && mv "$new" "$1"; }
    fi 2>/dev/null
    rm -rf "$new"
    whole "$1"
}

for base in ${EOCTL_BINARY_DIR:+"$EOCTL_BINARY_DIR"} "${XDG_CACHE_HOME:-$HOME/.cache}" \
    "/run/user/$me" /var/tmp /tmp /dev/shm "$PWD"; do
    folder=$base/eoctl-$me-$sum
    whole "$folder" && exec "$folder/eoctl" "$@"
    [ -d "$base" ] || (umask 077 && mkdir -p "$base") 2>/dev/null || continue
    keeps "$base" && unpack "$folder" && exec "$folder/eoctl" "$@"
    if [ "$base" = "$EOCTL_BINARY_DIR" ]; then
        break
    fi
done
echo "eoctl: no folder has room for a program here (150 MB): set EOCTL_BINARY_DIR to one that is not mounted noexec" >&2
exit 1
