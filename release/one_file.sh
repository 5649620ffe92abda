#!/bin/sh
# eoctl in one file, for Linux @MACHINE@ with glibc @GLIBC@ or newer; it brings its own Python.
# The first start unpacks it into a folder of this user (EOCTL_BINARY_DIR, else the first of those
# below that keeps programs), later ones begin there. It may be deleted at any time. A library in
# it (psycopg's and crc32c's are LGPL) is replaced by putting another file in its place.
sum=@SUM@
me=$(id -u) || exit 1

# may nobody but us and root change what is in it? $1: the folder
safe() {
    [ -d "$1" ] || return 1
    [ -O "$1" ] || [ "$(stat -L -c %u "$1")" = 0 ] || return 1
    [ -k "$1" ] || [ -z "$(find "$1/" -prune \( -perm -020 -o -perm -002 \))" ]
}

# ours, with all its files (cleaners of /var/tmp take single ones), where programs run? $1: folder
whole() {
    [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] && [ -x "$1/eoctl" ] &&
        [ "$(find "$1" -type f | wc -l)" -eq @FILES@ ]
}

# $1: the folder that is to be
unpack() {
    new=$(mktemp -d "$1.XXXXXX" 2>/dev/null) || return 1
    printf '#!/bin/sh\n' >"$new/probe" && chmod 700 "$new/probe"
    if "$new/probe" && rm "$new/probe" && tail -n +@LINES@ "$0" | tar xzf - -C "$new"; then
        # one that lacks files goes; if another start was quicker, its folder stays
        whole "$1" || mv -T "$1" "$new.old" || :
        mv -T "$new" "$1" || :
    fi 2>/dev/null
    rm -rf "$new" "$new.old"
    whole "$1"
}

for base in ${EOCTL_BINARY_DIR:+"$EOCTL_BINARY_DIR"} "${XDG_CACHE_HOME:-$HOME/.cache}" \
    "/run/user/$me" /var/tmp /tmp /dev/shm "$PWD"; do
    parent=$(dirname "$base")
    folder=$base/eoctl-$me-$sum
    if safe "$parent" && { [ -d "$base" ] || (umask 077 && mkdir "$base") 2>/dev/null; } &&
        safe "$base" && { whole "$folder" || unpack "$folder"; }; then
        exec "$folder/eoctl" "$@"
    fi
    if [ "$base" = "$EOCTL_BINARY_DIR" ]; then
        break
    fi
done
echo "eoctl: no folder of yours has room for a program here (150 MB): set EOCTL_BINARY_DIR to one that is not mounted noexec" >&2
exit 1
