#!/usr/bin/env bash
# NVIDIA AIStore, a proxy and a target, on loopback: scripts/servers/aistore.sh install|start|stop DIR [--run RUN] [--port PORT]
#
# Built from its Go module (about 5 minutes of one core, once). The address is the proxy's. Uses PORT, PORT+1, PORT+10,
# PORT+11, PORT+20 and PORT+21. It needs 13 s to start: the proxy waits for targets to join. Its processes are in RUN/proxy.pid
# and RUN/target.pid; RUN/restart starts those again that were killed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

module=github.com/NVIDIA/aistore
version=v1.5.0
sum=h1:no092uKzQfSVwZQ6X+b3ObimSRLRjwKiLiC+SRJJIJw=
usage="usage: aistore.sh install|start|stop DIR [--run RUN] [--port PORT]"

install_server() {
    local facts source
    lock "$dir"
    [ "$(cat "$dir/version" 2>/dev/null)" != "$version" ] || return 0
    find_go
    # By exact version: `go install` would ask for the list of versions, which not every module proxy gives.
    facts=$(cd "$dir" && GOFLAGS='' go mod download -json "$module@$version") || give_up "fetch $module $version: $facts"
    grep -qF "\"Sum\": \"$sum\"" <<<"$facts" || give_up "fetch $module $version: its checksum is not $sum"
    source=$(awk -F '"' '$2 == "Dir" { print $4 }' <<<"$facts")
    rm -rf "$dir/source"
    cp -r "$source" "$dir/source"
    chmod -R u+w "$dir/source"
    # It would listen on every interface of the machine. One function says so; it has to be there, once.
    awk '/^func \(h \*htrun\) pubAddrAny\(/ { inside = 1 } inside && sub(/return true/, "return false") { changed++ }
        /^}/ { inside = 0 } { print } END { exit changed != 1 }' "$source/ais/htrun.go" >"$dir/source/ais/htrun.go" \
        || give_up "build AIStore $version: the line that opens its port to all interfaces is not where it was"
    (cd "$dir/source" && GOFLAGS="$GOFLAGS -mod=readonly" go build -trimpath -tags dsort \
        -ldflags "-s -w -X main.build=$version -X main.buildtime=test" -o "$dir/aisnode" ./cmd/aisnode)
    rm -rf "$dir/source"
    echo "$version" >"$dir/version"
}

# Settings of one node; what is not said here is the server's default.
configure() { # NODE OFFSET
    local home=$run/$1 port proxy=http://127.0.0.1:$base
    port=$((base + $2))
    mkdir -p "$home/log" "$home/data"
    cat >"$home/cluster.json" <<JSON
{
  "backend": {}, "auth": {},
  "proxy": {"primary_url": "$proxy", "original_url": "$proxy", "discovery_url": "", "non_electable": false},
  "timeout": {"cplane_operation": "2s", "max_keepalive": "5s", "cold_get_conflict": "5s", "max_host_busy": "20s",
    "startup_time": "30s", "join_startup_time": "1m", "send_file_time": "5m", "ec_streams_time": "10m", "object_md": "2h"},
  "space": {"cleanupwm": 90, "lowwm": 95, "highwm": 97, "out_of_space": 99, "batch_size": 32768, "dont_cleanup_time": "120m"},
  "resilver": {"enabled": false},
  "memsys": {"min_free": "256mb", "default_buf": "32kb", "to_gc": "1gb", "hk_time": "3m", "min_pct_total": 0, "min_pct_free": 0},
  "versioning": {"enabled": true, "validate_warm_get": false},
  "net": {"l4": {"proto": "tcp", "sndrcv_buf_size": 131072}, "use_ipv6": false,
    "http": {"use_https": false, "server_crt": "", "server_key": "", "domain_tls": "", "client_ca_tls": "",
      "client_auth_tls": 0, "idle_conn_time": "6s", "idle_conns_per_host": 32, "idle_conns": 256,
      "write_buffer_size": 65536, "read_buffer_size": 65536, "chunked_transfer": true, "skip_verify": false}},
  "distributed_sort": {"duplicated_records": "ignore", "missing_shards": "ignore", "ekm_malformed_line": "abort",
    "ekm_missing_key": "abort", "default_max_mem_usage": "80%", "call_timeout": "10m",
    "dsorter_mem_threshold": "100GB", "compression": "never", "bundle_multiplier": 4}
}
JSON
    # A count of test paths lets the target keep its data in a plain directory instead of disks of its own.
    cat >"$home/node.json" <<JSON
{
  "confdir": "$home", "log_dir": "$home/log", "fspaths": {},
  "test_fspaths": {"root": "$home/data/", "count": 1, "instance": $2},
  "host_net": {"hostname": "127.0.0.1", "hostname_intra_control": "127.0.0.1", "hostname_intra_data": "127.0.0.1",
    "port": "$port", "port_intra_control": "$((port + 10))", "port_intra_data": "$((port + 20))"}
}
JSON
}

start_node() { # NODE ROLE OFFSET [OPTION...]
    local node=$1 role=$2 offset=$3
    shift 3
    ! running "$run/$node.pid" "$run/$node/" || return 0
    configure "$node" "$offset"
    launch "$run/$node.pid" "$run/$node.log" "$dir/aisnode" -role="$role" \
        -config="$run/$node/cluster.json" -local_config="$run/$node/node.json" "$@"
}

start_server() {
    [ -x "$dir/aisnode" ] || give_up "start AIStore: it is not installed in $dir"
    [ ${#flags[@]} -eq 0 ] || give_up "$usage"
    need curl "to see when the server is ready"
    running "$run/proxy.pid" "$run/proxy/" || keep_port 1 10 11 20 21
    base=$(<"$run/port")
    start_node proxy proxy 0 -ntargets=1
    start_node target target 1
    # Ready when the proxy says so of the whole cluster, which includes that the target has joined.
    await 120 "$run/proxy.pid" "$run/proxy/" "$run/proxy.log" \
        curl -sSf -o /dev/null "http://127.0.0.1:$base/v1/health?prr=true"
    running "$run/target.pid" "$run/target/" || give_up "the target ended while it started; its log is $run/target.log"
    leave_restart
    echo "http://127.0.0.1:$base"
}

read_words "$usage" "$@"
case $word in
    install) install_server ;;
    start) start_server ;;
    stop)
        end "$run/target.pid" "$run/target/" 20
        end "$run/proxy.pid" "$run/proxy/" 20
        ;;
    *) give_up "$usage" ;;
esac
