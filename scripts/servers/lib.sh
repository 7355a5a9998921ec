# What the scripts of this folder share. Sourced, never run; the caller has set -euo pipefail.
#
# A server script knows three words: `install DIR`, `start DIR`, `stop DIR`. Each may be said again without harm. All
# that a server keeps lies in DIR; with `--run RUN` at start and stop its data and process lie in RUN, so that several
# can run from one installation. `start` prints the address on its last line.

# Programs are kept here between runs, outside the checkout.
servers_cache=${FOREBAY_SERVERS:-${XDG_CACHE_HOME:-$HOME/.cache}/forebay-servers}

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
give_up() {
    say "$*"
    exit 3
}

need() { # PROGRAM WHY
    command -v "$1" >/dev/null || give_up "no \`$1\` on the PATH, which is needed $2"
}

# Go's own installer does not touch the PATH.
find_go() {
    command -v go >/dev/null || PATH="$PATH:/usr/local/go/bin"
    need go "to build the server"
    # No C compiler, no other toolchain than the one found, no version control.
    export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-buildvcs=false
}

# Java 17, for servers that run on nothing newer: JAVA_HOME.
find_java() {
    local home
    for home in "${JAVA_HOME:-}" /usr/lib/jvm/*17*; do
        if [ -x "$home/bin/java" ] && "$home/bin/java" -version 2>&1 | grep -q 'version "17\.'; then
            export JAVA_HOME=$home
            return
        fi
    done
    give_up "no Java 17 found; JAVA_HOME may name one"
}

# Programs of Maven Central and all that they need, as jars in DIR/lib.
fetch_jars() { # DIR GROUP:ARTIFACT:VERSION...
    local dir=$1 group artifact version
    shift
    need mvn "to fetch the server"
    rm -rf "$dir/lib"
    {
        echo '<project><modelVersion>4.0.0</modelVersion>'
        echo '<groupId>forebay</groupId><artifactId>servers</artifactId><version>1</version><packaging>pom</packaging>'
        echo '<dependencies>'
        while IFS=: read -r group artifact version; do
            echo "<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version></dependency>"
        done < <(printf '%s\n' "$@")
        echo '</dependencies></project>'
    } >"$dir/pom.xml"
    mvn -q -B -ntp -f "$dir/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$dir/lib"
}

# Holds a lock on DIR until the script ends: two installations at once would write the same files.
lock() { # DIR
    exec 9>"$1/.lock"
    flock 9
}

# Whether the process in a pid file is still the one that was started: its command line must name the given text.
running() { # PIDFILE TEXT
    local pid
    [ -s "$1" ] || return 1
    pid=$(<"$1")
    [ -r "/proc/$pid/cmdline" ] && tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- "$2"
}

# Starts a process that outlives this script. It gets none of the caller's files: a lock would stay held.
launch() { # PIDFILE LOG COMMAND...
    local pidfile=$1 log=$2
    shift 2
    setsid "$@" </dev/null >"$log" 2>&1 9>&- &
    echo $! >"$pidfile"
    # Until then it is a copy of this shell, which `running` would not know.
    while [ "$(readlink "/proc/$!/exe")" = "$(readlink "/proc/$$/exe")" ]; do sleep 0.01; done
}

# Waits until a command succeeds, as long as the process lives.
await() { # SECONDS PIDFILE TEXT LOG COMMAND...
    local deadline=$((SECONDS + $1)) pidfile=$2 text=$3 log=$4
    shift 4
    until "$@" >/dev/null 2>&1; do
        if ! running "$pidfile" "$text"; then
            tail -n 20 "$log" >&2
            give_up "the server ended while it started; its last lines are above"
        fi
        [ "$SECONDS" -lt "$deadline" ] || give_up "the server did not answer in time; its log is $log"
        sleep 0.1
    done
}

# Ends the process of a pid file, if it is still the one that was started: first with TERM, after SECONDS with KILL.
end() { # PIDFILE TEXT SECONDS
    local pid deadline=$((SECONDS + $3))
    if running "$1" "$2"; then
        pid=$(<"$1")
        kill -TERM "$pid" 2>/dev/null || true
        while running "$1" "$2"; do
            [ "$SECONDS" -lt "$deadline" ] || kill -KILL "$pid" 2>/dev/null || true
            sleep 0.1
        done
    fi
    rm -f "$1"
}

# Leaves RUN/restart behind, which says `start` again as it was said: a server that was killed comes back with its port.
leave_restart() {
    printf '#!/bin/sh\nexec %q start %q --run %q%s\n' "$(cd "$(dirname "$0")" && pwd -P)/${0##*/}" "$dir" "$run" \
        "${flags[*]+ ${flags[*]}}" >"$run/restart"
    chmod +x "$run/restart"
}

# The port that was asked for, or else that of an earlier start, or a free one of which P+OFFSET... are free too.
keep_port() { # OFFSET...
    if [ -n "$port" ]; then echo "$port" >"$run/port"; fi
    [ -s "$run/port" ] || free_port "$@" >"$run/port"
}

# A port P of which P and P+OFFSET... are free. Another process may take it before the server does, and then the server
# ends at its start: whoever wants certainty tries again.
free_port() { # OFFSET...
    local port offset
    for _ in {1..200}; do
        # Below the ports that the kernel hands out by itself.
        port=$((20000 + RANDOM % 12000))
        for offset in 0 "$@"; do
            ! (exec 3<>"/dev/tcp/127.0.0.1/$((port + offset))") 2>/dev/null || continue 2
        done
        echo "$port"
        return
    done
    give_up "no free port found"
}

# A certificate authority of its own and a certificate for loopback under it: DIR/ca.pem, DIR/server.pem, DIR/server.key,
# and DIR/client.pem, DIR/client.key for servers that ask for one.
certificates() { # DIR
    local dir=$1 name key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
    [ ! -s "$dir/client.pem" ] || return 0
    need openssl "to make certificates"
    mkdir -p "$dir"
    openssl req -x509 "${key[@]}" -days 3650 -subj "/CN=forebay test authority" \
        -keyout "$dir/ca.key" -out "$dir/ca.pem" 2>/dev/null
    printf 'basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=DNS:localhost%s\n' \
        "$(printf ',IP:127.0.0.%d' {1..9})" >"$dir/extensions"
    for name in server client; do
        openssl req "${key[@]}" -subj "/CN=$name" -keyout "$dir/$name.key" -out "$dir/$name.csr" 2>/dev/null
        openssl x509 -req -in "$dir/$name.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -days 3650 \
            -extfile "$dir/extensions" -out "$dir/$name.pem" 2>/dev/null
    done
}

# Reads the words of a server script into: word, dir, run, port, and flags (an array with what is left).
read_words() { # USAGE ARGUMENTS...
    local usage=$1
    shift
    [ $# -ge 2 ] || give_up "$usage"
    word=$1 dir=$2 run='' port='' flags=()
    shift 2
    while [ $# -gt 0 ]; do
        case $1 in
            --run) run=${2:?$usage} && shift ;;
            --port) port=${2:?$usage} && shift ;;
            *) flags+=("$1") ;;
        esac
        shift
    done
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd -P)
    run=${run:-$dir/run}
    mkdir -p "$run"
    run=$(cd "$run" && pwd -P)
}
