#!/usr/bin/env bash
# Apache Cassandra on loopback: scripts/servers/cassandra.sh install|start|stop DIR [--run RUN] [--port PORT] [--auth] [--tls] [--mutual] [--nodes N]
#
# From Maven Central alone (70 MB, a minute). Node I listens on 127.0.0.I, CQL on PORT and between nodes on PORT+1, and its
# process is in RUN/nodeI/pid; RUN/restart starts those again that were killed. With --auth the user is cassandra, the password too; with --tls clients trust RUN/tls/ca.pem;
# with --mutual they also show who they are by RUN/tls/client.pem and client.key. Needs Java 17, which is the newest that
# Cassandra 5.0 runs on, and Maven. A start takes 7 to 20 s and 1 GB of memory, three nodes 40 s and 0.6 GB each.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=5.0.9
store_password=changeit
usage="usage: cassandra.sh install|start|stop DIR [--run RUN] [--port PORT] [--auth] [--tls] [--mutual] [--nodes N]"

install_server() {
    lock "$dir"
    [ "$(cat "$dir/version" 2>/dev/null)" != "$version" ] || return 0
    find_java
    rm -rf "$dir/conf"
    mkdir -p "$dir/conf"
    fetch_jars "$dir" org.apache.cassandra:cassandra-all:$version
    # Found on the class path; without it every debug line is logged.
    cat >"$dir/conf/logback.xml" <<'XML'
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%date{ISO8601} %-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
XML
    java_arguments >"$dir/conf/java.args"
    echo "$version" >"$dir/version"
}

# Cassandra reaches into these parts of the JDK, which stay closed unless each is named.
java_arguments() {
    local part
    printf '%s\n' -ea -da:net.openhft... -Xss512k -XX:+UseG1GC -XX:+ExitOnOutOfMemoryError -XX:+PerfDisableSharedMem \
        -Djava.net.preferIPv4Stack=true -Djdk.attach.allowAttachSelf=true -Dio.netty.tryReflectionSetAccessible=true
    for part in java.base/{jdk.internal.misc,java.lang.ref} java.management.rmi/com.sun.jmx.remote.internal.rmi \
        java.rmi/sun.rmi.{registry,server} java.sql/java.sql jdk.unsupported/sun.misc jdk.attach/sun.tools.attach; do
        echo "--add-exports=$part=ALL-UNNAMED"
    done
    for part in java.base/java.{io,lang,lang.module,lang.reflect,nio,util} \
        java.base/jdk.internal.{loader,math,module,ref,reflect,util.jar} java.base/sun.nio.ch \
        jdk.management/com.sun.management.internal; do
        echo "--add-opens=$part=ALL-UNNAMED"
    done
}

configure() { # NODE HOST
    mkdir -p "$1/conf" "$1/triggers" "$1/tmp"
    cat <<YAML
cluster_name: forebay
num_tokens: 16
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
listen_address: $2
rpc_address: $2
native_transport_port: $base
storage_port: $((base + 1))
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{seeds: "127.0.0.1:$((base + 1))"}]
data_file_directories: ["$1/data"]
commitlog_directory: "$1/commitlog"
saved_caches_directory: "$1/saved_caches"
hints_directory: "$1/hints"
cdc_raw_directory: "$1/cdc_raw"
commitlog_sync: periodic
commitlog_sync_period: 10000ms
auto_snapshot: false
# Nodes join before there is any data that they could take over.
auto_bootstrap: false
YAML
    # Long, because the machine may be busy with a build.
    printf '%s_timeout: 60s\n' request read_request range_request write_request truncate_request native_transport
    [ -z "$auth" ] || printf '%s\n' 'authenticator: PasswordAuthenticator' 'authorizer: CassandraAuthorizer' \
        'role_manager: CassandraRoleManager'
    [ -z "$tls" ] || cat <<YAML
client_encryption_options:
  enabled: true
  optional: false
  require_client_auth: ${mutual:-false}
  keystore: "$run/tls/server.p12"
  keystore_password: $store_password
  truststore: "$run/tls/trusted.p12"
  truststore_password: $store_password
  store_type: PKCS12
YAML
}

start_node() { # NUMBER NODES
    local node=$run/node$1 first='' quick=() less=()
    ! running "$node/pid" "$node/conf/cassandra.yaml" || return 0
    [ -d "$node/data" ] || first=$1
    mkdir -p "$node/conf"
    configure "$node" "127.0.0.$1" >"$node/conf/cassandra.yaml"
    # One node has nobody to wait for.
    if [ "$2" = 1 ]; then
        quick=(-Dcassandra.ring_delay_ms=0 -Dcassandra.skip_wait_for_gossip_to_settle=0)
    else
        quick=(-Dcassandra.ring_delay_ms=2000 -Dcassandra.consistent.rangemovement=false
            -Dcassandra.gossip_settle_min_wait_ms=1000 -Dcassandra.gossip_settle_interval_ms=500)
    fi
    # As root it would lock its whole heap in memory.
    if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
        less=(setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock)
        ulimit -l 64
    fi
    # The simple compiler alone halves the start.
    launch "$node/pid" "$node/log" "${less[@]}" "$JAVA_HOME/bin/java" -Xms128m "-Xmx$heap" -XX:TieredStopAtLevel=1 \
        "@$dir/conf/java.args" -javaagent:"$(echo "$dir"/lib/jamm-*.jar)" -Djava.io.tmpdir="$node/tmp" \
        -Dcassandra.config="file://$node/conf/cassandra.yaml" -Dcassandra.storagedir="$node" -Dcassandra.logdir="$node" \
        -Dcassandra.triggers_dir="$node/triggers" -Dcassandra-foreground=yes -Dcassandra.superuser_setup_delay_ms=0 \
        -Dcassandra.shutdown_announce_in_ms=0 -Dcassandra.memtable.row_overhead_size=180 "${quick[@]}" \
        -cp "$dir/conf:$dir/lib/*" org.apache.cassandra.service.CassandraDaemon
    await 300 "$node/pid" "$node/conf/cassandra.yaml" "$node/log" grep -q 'Startup complete' "$node/log"
    # The very first start makes the user, a moment after the port is open.
    [ "$first" != 1 ] || await 60 "$node/pid" "$node/conf/cassandra.yaml" "$node/log" \
        grep -q 'Created default superuser role' "$node/log"
}

# Whether the first node has seen all the others.
joined() { # NODES
    [ "$(grep -o '127.0.0.[0-9]*:[0-9]* is now UP' "$run/node1/log" | sort -u | wc -l)" -ge $(($1 - 1)) ]
}

start_server() {
    local nodes=1 number waiting=() comma
    [ -d "$dir/lib" ] || give_up "start Cassandra: it is not installed in $dir"
    auth='' tls='' mutual=''
    set -- ${flags[@]+"${flags[@]}"}
    while [ $# -gt 0 ]; do
        case $1 in
            --auth) auth=1 ;;
            --tls) tls=1 ;;
            --mutual) tls=1 mutual=true ;;
            --nodes) nodes=${2:?$usage} && shift ;;
            *) give_up "$usage" ;;
        esac
        shift
    done
    case $nodes in [1-9]) ;; *) give_up "start Cassandra with $nodes nodes: 1 to 9 are possible" ;; esac
    find_java
    if [ -n "$tls" ] && [ ! -s "$run/tls/server.p12" ]; then
        certificates "$run/tls"
        openssl pkcs12 -export -name cassandra -in "$run/tls/server.pem" -inkey "$run/tls/server.key" \
            -certfile "$run/tls/ca.pem" -out "$run/tls/server.p12" -passout "pass:$store_password"
        "$JAVA_HOME/bin/keytool" -importcert -noprompt -alias authority -file "$run/tls/ca.pem" \
            -keystore "$run/tls/trusted.p12" -storetype PKCS12 -storepass "$store_password" 2>/dev/null
    fi
    running "$run/node1/pid" "$run/node1/conf/" || keep_port 1
    base=$(<"$run/port")
    heap=${FOREBAY_CASSANDRA_HEAP:-$([ "$nodes" = 1 ] && echo 1g || echo 512m)}
    start_node 1 "$nodes"
    # The others find it there, and need not wait for each other.
    for ((number = 2; number <= nodes; number++)); do
        start_node "$number" "$nodes" &
        waiting+=("$!")
    done
    for number in ${waiting[@]+"${waiting[@]}"}; do wait "$number"; done
    [ "$nodes" = 1 ] || await 60 "$run/node1/pid" "$run/node1/conf/cassandra.yaml" "$run/node1/log" joined "$nodes"
    leave_restart
    for ((number = 1; number <= nodes; number++)); do printf '%s127.0.0.%d:%d' "${comma-}" "$number" "$base" && comma=,; done
    echo
}

read_words "$usage" "$@"
case $word in
    install) install_server ;;
    start) start_server ;;
    stop)
        # The last one that joined leaves first.
        for number in 9 8 7 6 5 4 3 2 1; do
            [ ! -d "$run/node$number" ] || end "$run/node$number/pid" "$run/node$number/conf/cassandra.yaml" 60
        done
        ;;
    *) give_up "$usage" ;;
esac
