#!/usr/bin/env bash
# MinIO, an S3 server, on loopback: scripts/servers/minio.sh install|start|stop DIR [--run RUN] [--port PORT] [--tls]
#
# Built from Go modules (about 6 minutes of one core, once). It is a test server: nothing of ours links or ships it.
# Region us-east-1, path-style addresses, keys in FOREBAY_S3_KEY and FOREBAY_S3_SECRET. There are two buckets:
# `forebay-test`, and `forebay-public`, which anyone may read. With --tls clients trust RUN/tls/ca.pem. Its process is in
# RUN/pid; RUN/restart starts it again when it was killed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=v0.0.0-20260212201848-7aac2a2c5b7c
key=${FOREBAY_S3_KEY:-forebay-test-key}
secret=${FOREBAY_S3_SECRET:-forebay-test-secret}
usage="usage: minio.sh install|start|stop DIR [--run RUN] [--port PORT] [--tls]"

install_server() {
    lock "$dir"
    [ "$(cat "$dir/version" 2>/dev/null)" != "$version" ] || return 0
    find_go
    GOBIN="$dir" go install -trimpath -ldflags "-s -w" "github.com/minio/minio@$version"
    echo "$version" >"$dir/version"
}

# Lets everyone read the bucket `forebay-public`; fails when that does not show yet.
publish() {
    local policy
    policy='{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["*"]},"Action":["s3:GetObject"],
        "Resource":["arn:aws:s3:::forebay-public/*"]},{"Effect":"Allow","Principal":{"AWS":["*"]},
        "Action":["s3:ListBucket"],"Resource":["arn:aws:s3:::forebay-public"]}]}'
    curl -sSf "${trust[@]}" --aws-sigv4 aws:amz:us-east-1:s3 --user "$key:$secret" -X PUT -d "$policy" \
        -H "x-amz-content-sha256: UNSIGNED-PAYLOAD" "$address/forebay-public?policy=" || return 1
    # A server that is still reading its buckets may forget it again, so one look is not enough.
    for _ in 1 2 3 4; do
        curl -sSf "${trust[@]}" -o /dev/null "$address/forebay-public" || return 1
        sleep 0.4
    done
}

start_server() {
    local scheme=http certificates_dir=$run/no-tls
    [ -x "$dir/minio" ] || give_up "start MinIO: it is not installed in $dir"
    need curl "to see when the server is ready"
    trust=()
    case "${flags[*]-}" in
        '') ;;
        --tls)
            scheme=https certificates_dir=$run/minio-tls trust=(--cacert "$run/tls/ca.pem")
            certificates "$run/tls"
            mkdir -p "$certificates_dir"
            cp "$run/tls/server.pem" "$certificates_dir/public.crt"
            cp "$run/tls/server.key" "$certificates_dir/private.key"
            ;;
        *) give_up "$usage" ;;
    esac
    # To MinIO a directory is a bucket.
    mkdir -p "$run/data/forebay-test" "$run/data/forebay-public" "$certificates_dir"
    if ! running "$run/pid" "$run/data"; then
        keep_port
        # Without console and update check nothing listens or calls out but the one port.
        MINIO_ROOT_USER=$key MINIO_ROOT_PASSWORD=$secret \
            MINIO_BROWSER=off MINIO_UPDATE=off MINIO_CALLHOME_ENABLE=off \
            launch "$run/pid" "$run/log" "$dir/minio" server --quiet --address "127.0.0.1:$(<"$run/port")" \
            --certs-dir "$certificates_dir" "$run/data"
    fi
    address=$scheme://127.0.0.1:$(<"$run/port")
    await 60 "$run/pid" "$run/data" "$run/log" curl -sSf "${trust[@]}" -o /dev/null "$address/minio/health/ready"
    # Said again until it holds: a server that is just up may still be reading its buckets.
    await 60 "$run/pid" "$run/data" "$run/log" publish
    leave_restart
    echo "$address"
}

read_words "$usage" "$@"
case $word in
    install) install_server ;;
    start) start_server ;;
    stop) end "$run/pid" "$run/data" 20 ;;
    *) give_up "$usage" ;;
esac
