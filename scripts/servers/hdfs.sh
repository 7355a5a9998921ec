#!/usr/bin/env bash
# Hadoop's HDFS, a NameNode and a DataNode, on loopback: scripts/servers/hdfs.sh install|start|stop DIR [--run RUN] [--port PORT]
#
# From Maven Central alone. The address is the NameNode's. Uses PORT to PORT+5. Whoever asks is believed to be the user
# they say they are, as Hadoop does without Kerberos. Needs Java 17 and Maven; each of the two takes about 0.25 GB.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=3.4.2
usage="usage: hdfs.sh install|start|stop DIR [--run RUN] [--port PORT]"

install_server() {
    lock "$dir"
    [ "$(cat "$dir/version" 2>/dev/null)" != "$version" ] || return 0
    find_java
    fetch_jars "$dir" org.apache.hadoop:hadoop-{hdfs,hdfs-client,common}:"$version"
    rm -rf "$dir/conf"
    # Both have a web server, which wants to find its pages; nobody looks at them.
    mkdir -p "$dir/conf/webapps/hdfs" "$dir/conf/webapps/datanode"
    printf '%s\n' 'log4j.rootLogger=INFO,out' 'log4j.appender.out=org.apache.log4j.ConsoleAppender' \
        'log4j.appender.out.layout=org.apache.log4j.PatternLayout' \
        'log4j.appender.out.layout.ConversionPattern=%d %-5p %c{1} %m%n' >"$dir/conf/log4j.properties"
    echo "$version" >"$dir/version"
}

# Settings, as the lines of NAME VALUE on standard input.
configure() {
    local name value
    echo '<configuration>'
    while read -r name value; do
        echo "<property><name>$name</name><value>$value</value></property>"
    done
    echo '</configuration>'
}

# The command that runs a class of Hadoop's.
java_of() { # CLASS [ARGUMENT...]
    command=("$JAVA_HOME/bin/java" -Xms64m -Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData
        -Djava.net.preferIPv4Stack=true --add-opens=java.base/java.lang=ALL-UNNAMED
        --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED
        -cp "$run/conf:$dir/conf:$dir/lib/*" "$@")
}

start_server() {
    local base host=127.0.0.1 server=org.apache.hadoop.hdfs.server
    [ -d "$dir/lib" ] || give_up "start HDFS: it is not installed in $dir"
    [ ${#flags[@]} -eq 0 ] || give_up "$usage"
    find_java
    running "$run/name.pid" "$run/conf" || echo "${port:-$(free_port 1 2 3 4 5)}" >"$run/port"
    base=$(<"$run/port")
    mkdir -p "$run/conf"
    configure >"$run/conf/core-site.xml" <<LINES
fs.defaultFS hdfs://$host:$base
hadoop.tmp.dir $run/tmp
LINES
    configure >"$run/conf/hdfs-site.xml" <<LINES
dfs.replication 1
dfs.blocksize 1048576
dfs.namenode.fs-limits.min-block-size 4096
dfs.permissions.enabled false
dfs.namenode.name.dir file://$run/name
dfs.datanode.data.dir file://$run/data
dfs.namenode.http-address $host:$((base + 1))
dfs.datanode.address $host:$((base + 2))
dfs.datanode.http.address $host:$((base + 3))
dfs.datanode.ipc.address $host:$((base + 4))
dfs.datanode.hostname $host
dfs.namenode.datanode.registration.ip-hostname-check false
dfs.namenode.safemode.extension 0
dfs.heartbeat.interval 1
LINES
    if ! running "$run/name.pid" "$run/conf"; then
        java_of "$server.namenode.NameNode" -format -nonInteractive
        [ -d "$run/name/current" ] || "${command[@]}" >"$run/format.log" 2>&1 \
            || give_up "format HDFS: $(tail -n 1 "$run/format.log")"
        java_of "$server.namenode.NameNode"
        launch "$run/name.pid" "$run/name.log" "${command[@]}"
    fi
    if ! running "$run/data.pid" "$run/conf"; then
        java_of "$server.datanode.DataNode"
        launch "$run/data.pid" "$run/data.log" "${command[@]}"
    fi
    # Ready when the NameNode knows the DataNode with its blocks and has left safe mode.
    await 120 "$run/name.pid" "$run/conf" "$run/name.log" grep -q 'Processing first storage report' "$run/name.log"
    running "$run/data.pid" "$run/conf" || give_up "the DataNode ended while it started; its log is $run/data.log"
    echo "$host:$base"
}

read_words "$usage" "$@"
case $word in
    install) install_server ;;
    start) start_server ;;
    stop)
        end "$run/data.pid" "$run/conf" 20
        end "$run/name.pid" "$run/conf" 20
        ;;
    *) give_up "$usage" ;;
esac
