#!/usr/bin/env bash
# etcd on loopback: scripts/servers/etcd.sh install|start|stop DIR [--run RUN] [--port PORT] [--auth] [--tls] [--nodes N]
#
# The etcd of the PATH, or Debian's packages unpacked without installing them (11 MB, seconds). Member I listens on
# 127.0.0.I, for clients on PORT and for the other members on PORT+1, and its process is in RUN/nodeI/pid. Said again,
# `start` starts the members that ended; RUN/restart does that, and RUN/etcdctl speaks to them. With --auth the user is
# root, the password forebay-test-secret; with --tls clients trust RUN/tls/ca.pem and show RUN/tls/client.pem and
# client.key.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

secret=forebay-test-secret
usage="usage: etcd.sh install|start|stop DIR [--run RUN] [--port PORT] [--auth] [--tls] [--nodes N]"

install_server() {
    lock "$dir"
    ! "$dir/etcd" --version >/dev/null 2>&1 || [ ! -x "$dir/etcdctl" ] || return 0
    if command -v etcd >/dev/null && command -v etcdctl >/dev/null; then
        ln -sf "$(command -v etcd)" "$(command -v etcdctl)" "$dir/"
        return
    fi
    need apt-get "to fetch etcd, which is not on the PATH"
    need dpkg "to unpack etcd"
    rm -rf "$dir/unpacked" "$dir/packages"
    mkdir -p "$dir/packages"
    # As another user apt cannot read a folder of root's.
    (cd "$dir/packages" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download etcd-server etcd-client)
    for package in "$dir"/packages/*.deb; do dpkg -x "$package" "$dir/unpacked"; done
    ln -sf "$dir/unpacked/usr/bin/etcd" "$dir/unpacked/usr/bin/etcdctl" "$dir/"
    rm -rf "$dir/packages"
}

start_node() { # NUMBER
    local node=$run/node$1 host=127.0.0.$1 secure=()
    ! running "$node/pid" "$node/data" || return 0
    mkdir -p "$node"
    [ "$scheme" = http ] || secure=(--cert-file "$run/tls/server.pem" --key-file "$run/tls/server.key"
        --trusted-ca-file "$run/tls/ca.pem" --client-cert-auth)
    launch "$node/pid" "$node/log" "$dir/etcd" --name "node$1" --data-dir "$node/data" --log-level warn --logger zap \
        --listen-client-urls "$scheme://$host:$base" --advertise-client-urls "$scheme://$host:$base" \
        --listen-peer-urls "http://$host:$((base + 1))" --initial-advertise-peer-urls "http://$host:$((base + 1))" \
        --initial-cluster "$cluster" --initial-cluster-token "forebay-$base" --listen-metrics-urls "" \
        ${secure[@]+"${secure[@]}"}
}

control() {
    local secure=()
    [ "$scheme" = http ] || secure=(--cacert "$run/tls/ca.pem" --cert "$run/tls/client.pem" --key "$run/tls/client.key")
    ETCDCTL_API=3 "$dir/etcdctl" --endpoints "$endpoints" ${secure[@]+"${secure[@]}"} "$@"
}

# Users are there from then on, and nobody else is let in.
add_users() {
    [ -n "$auth" ] && [ ! -e "$run/users" ] || return 0
    control user add "root:$secret" >&2
    control user grant-role root root >&2
    control auth enable >&2
    touch "$run/users"
}

start_server() {
    local nodes=1 number
    [ -x "$dir/etcd" ] || give_up "start etcd: it is not installed in $dir"
    auth='' scheme=http
    set -- ${flags[@]+"${flags[@]}"}
    while [ $# -gt 0 ]; do
        case $1 in
            --auth) auth=1 ;;
            --tls) scheme=https ;;
            --nodes) nodes=${2:?$usage} && shift ;;
            *) give_up "$usage" ;;
        esac
        shift
    done
    case $nodes in [1-9]) ;; *) give_up "start etcd with $nodes members: 1 to 9 are possible" ;; esac
    [ "$scheme" = http ] || certificates "$run/tls"
    keep_port 1
    base=$(<"$run/port") cluster='' endpoints=''
    for ((number = 1; number <= nodes; number++)); do
        cluster+="${cluster:+,}node$number=http://127.0.0.$number:$((base + 1))"
        endpoints+="${endpoints:+,}$scheme://127.0.0.$number:$base"
    done
    for ((number = 1; number <= nodes; number++)); do start_node "$number"; done
    for ((number = 1; number <= nodes; number++)); do
        # Answered when a leader is there. With users it needs one of them, but for this.
        await 60 "$run/node$number/pid" "$run/node$number/data" "$run/node$number/log" \
            control_one "$scheme://127.0.0.$number:$base"
    done
    add_users
    leave_restart
    printf '#!/bin/sh\nETCDCTL_API=3 exec %q --endpoints %q "$@"\n' "$dir/etcdctl" "$endpoints" >"$run/etcdctl"
    chmod +x "$run/etcdctl"
    local bare=${endpoints//https:\/\//}
    echo "etcd://${bare//http:\/\//}"
}

control_one() { # ENDPOINT
    local user=()
    [ ! -e "$run/users" ] || user=(--user "root:$secret")
    (endpoints=$1 && control ${user[@]+"${user[@]}"} --command-timeout 2s get forebay-ready)
}

read_words "$usage" "$@"
case $word in
    install) install_server ;;
    start) start_server ;;
    stop)
        for node in "$run"/node*; do
            [ ! -d "$node" ] || end "$node/pid" "$node/data" 10 &
        done
        wait
        ;;
    *) give_up "$usage" ;;
esac
