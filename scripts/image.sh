#!/usr/bin/env bash
# Packs a container image without a registry or an engine: scripts/image.sh --out FILE.tar [OPTION...]
#
#   --name NAME:TAG      what it is called [localhost/forebay:dev]
#   --binary FILE        the `forebay` program [target/release/forebay]; its shared libraries come along
#   --root DIR           pack this folder instead, as it is
#   --entrypoint PROGRAM what it runs [/usr/bin/forebay]
#
# The archive is what `docker load`, `podman load` and `ctr images import` take: one layer, a config, a manifest. The same
# content gives the same bytes. Inside there is no shell and no user but 65532; certificates of the public authorities
# come from this machine.
set -euo pipefail
give_up() {
    echo "image.sh: $*" >&2
    exit 3
}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
out='' name=localhost/forebay:dev binary=${CARGO_TARGET_DIR:-$top/target}/release/forebay root='' entrypoint=/usr/bin/forebay
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=${2:?} ;;
        --name) name=${2:?} ;;
        --binary) binary=${2:?} ;;
        --root) root=${2:?} ;;
        --entrypoint) entrypoint=${2:?} ;;
        *) give_up "there is no \`$1\`" ;;
    esac
    shift 2
done
[ -n "$out" ] || give_up "usage: image.sh --out FILE.tar [--name NAME:TAG] [--binary FILE | --root DIR] [--entrypoint PROGRAM]"
case $(uname -m) in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) give_up "an image for $(uname -m) has not been tried" ;;
esac
work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-image.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The program, what it is linked with under the same paths, and the few files that looking up names and users needs.
fill() { # ROOT
    local file
    [ -x "$binary" ] || give_up "there is no program \`$binary\`; \`cargo build --release -p forebay-cli\` makes one"
    mkdir -p "$1"/{etc/ssl/certs,tmp,usr/bin,var/lib/forebay}
    chmod 1777 "$1/tmp"
    install -m 755 "$binary" "$1/usr/bin/forebay"
    strip --strip-debug "$1/usr/bin/forebay" 2>/dev/null || true
    if file=$(ldd "$binary" 2>/dev/null); then
        while read -r file; do
            mkdir -p "$1${file%/*}"
            cp --dereference "$file" "$1$file"
        done < <(grep -o '/[^ ]*' <<<"$file" | sort -u)
    fi
    echo 'root:x:0:0::/:/none
forebay:x:65532:65532::/tmp:/none' >"$1/etc/passwd"
    echo 'forebay:x:65532:' >"$1/etc/group"
    echo 'hosts: files dns' >"$1/etc/nsswitch.conf"
    if [ -r /etc/ssl/certs/ca-certificates.crt ]; then
        cp --dereference /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
    fi
}
if [ -z "$root" ]; then
    root=$work/root
    fill "$root"
fi

tar --create --file "$work/layer.tar" --directory "$root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner .
digest=$(sha256sum <"$work/layer.tar" | cut -d ' ' -f 1)
cat >"$work/config.json" <<END
{"architecture":"$architecture","os":"linux","created":"1970-01-01T00:00:00Z",
 "config":{"User":"65532:65532","Entrypoint":["$entrypoint"],"WorkingDir":"/","Env":["PATH=/usr/bin","HOME=/tmp"]},
 "rootfs":{"type":"layers","diff_ids":["sha256:$digest"]}}
END
echo "[{\"Config\":\"config.json\",\"RepoTags\":[\"$name\"],\"Layers\":[\"layer.tar\"]}]" >"$work/manifest.json"
tar --create --file "$out" --directory "$work" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
    config.json layer.tar manifest.json
echo "$name $out"
