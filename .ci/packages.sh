# Sourced by the scripts of this folder: what installs Debian packages, or names them.
# shellcheck shell=bash

say() { echo "${0##*/}: $*" >&2; }

# debian PACKAGE...: install Debian packages, or say which ones are wanted.
debian() {
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        say "please install: $*"
        return 1
    fi
    say "installing $*"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >&2
}
