#!/bin/sh
# Lays out the whole file tree of the image below DEST: assemble.sh DEST BINARY
#
# The Dockerfile copies what this script has laid out and adds no file of its own, so that the tree can be
# made, looked at and run without Docker. The binary is linked against glibc, whose resolver is the one that
# everything else of a cluster uses, and which cannot be linked into it without losing that resolver's
# modules; so the loader and the few libraries that ldd names come along, out of the system that this runs
# on, which must be the one that the binary was linked on. There is no shell, no package manager and no
# set-uid program in it.
set -eu
umask 022
# Who the gateway is inside, by number: a cluster that demands a user who is not root cannot look up names.
user=65532

[ $# -eq 2 ] || { echo "usage: assemble.sh DEST BINARY" >&2; exit 64; }
dest=$1
binary=$2
[ -x "$binary" ] || { echo "$binary: no program; build it first" >&2; exit 69; }
[ ! -e "$dest" ] || { echo "$dest: is there already; name a new directory" >&2; exit 64; }
authorities=/etc/ssl/certs/ca-certificates.crt
[ -s "$authorities" ] || { echo "$authorities is missing; install ca-certificates" >&2; exit 69; }

# put MODE FILE PATH: FILE as PATH of the tree.
put() {
  mkdir -p "$dest/$(dirname "$3")"
  install -m "$1" "$2" "$dest/$3"
}

put 0755 "$binary" usr/bin/quorumgate
# "name => path (address)", or for the loader "path (address)". The kernel brings linux-vdso itself.
libraries=$(ldd "$binary" | awk '/=> \// { print $3; next } /^[ \t]*\// { print $1 }')
[ -n "$libraries" ] || { echo "$binary: ldd names no libraries" >&2; exit 69; }
for library in $libraries; do
  put 0755 "$library" "$library"
done

# Whom an endpoint, Redis or a collector with TLS is known by.
put 0644 "$authorities" etc/ssl/certs/ca-certificates.crt
printf 'root:x:0:0:root:/:/nonexistent\nquorumgate:x:%s:%s::/var/lib/quorumgate:/nonexistent\n' \
  "$user" "$user" > "$dest/etc/passwd"
printf 'root:x:0:\nquorumgate:x:%s:\n' "$user" > "$dest/etc/group"
# Names: /etc/hosts first, then DNS. Both are in glibc itself.
printf 'hosts: files dns\n' > "$dest/etc/nsswitch.conf"

# Where things are mounted: the configuration, secrets, the state, and what container engines bring
# themselves. Into a read-only root nothing can be mounted where there is no directory.
mkdir -p "$dest/etc/quorumgate" "$dest/run/secrets" "$dest/var/lib/quorumgate"
mkdir -p "$dest/proc" "$dest/dev" "$dest/sys" "$dest/tmp"
: > "$dest/etc/hosts"
: > "$dest/etc/resolv.conf"
: > "$dest/etc/hostname"
chmod 0750 "$dest/var/lib/quorumgate"
chmod 1777 "$dest/tmp"
if ! chown "$user:$user" "$dest/var/lib/quorumgate" 2>/dev/null; then
  echo "$dest/var/lib/quorumgate is to belong to $user, which takes root: mount one there that does" >&2
fi

# The licences of what is in it.
put 0644 "$(dirname "$0")/../../LICENSE" usr/share/doc/quorumgate/LICENSE
for package in libc6 libgcc-s1 ca-certificates; do
  if [ -r "/usr/share/doc/$package/copyright" ]; then
    put 0644 "/usr/share/doc/$package/copyright" "usr/share/doc/$package/copyright"
  fi
done
