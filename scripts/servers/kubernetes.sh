#!/usr/bin/env bash
# Kubernetes with one node that runs pods: scripts/servers/kubernetes.sh install|start|stop|load DIR [--run RUN] [IMAGE.tar...]
#
# `start` prints the path of a kubeconfig for an administrator; `load` puts image archives (scripts/image.sh) into the
# node. The programs of Kubernetes are built from Go modules of one release (about 16 minutes of one core, once), the
# rest are Debian's packages, unpacked into DIR and not installed: etcd, containerd, runc, plugins for the pods' network.
#
# It lays out a network of its own, so it must be run where there is none: inside `unshare --net`, as root.
#
#   10.96.0.1      the API server, as pods know it (port 443)
#   10.96.0.10     names of headless Services (cluster_dns.py)
#   10.244.0.1     this machine, on the bridge that pods are on; pods have the addresses behind it
#
# There is no proxy for Services with an address of their own, no metrics server and no provisioner of volumes. Stop is
# a power cut for the pods.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
source "$here/lib.sh"

release=34.1 # of Kubernetes 1 and of its modules 0
keda=v2.18.1 # whose kinds of objects are known here; KEDA itself does not run
programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl)
packages=(etcd-server containerd runc containernetworking-plugins)
usage="usage: kubernetes.sh install|start|stop|load DIR [--run RUN] [IMAGE.tar...]"
admin_token=forebay-test-administrator

install_server() {
    lock "$dir"
    [ "$(cat "$dir/version" 2>/dev/null)" != "$release $keda" ] || return 0
    find_go
    need apt-get "to fetch etcd, containerd and runc"
    build_programs
    unpack_packages
    build_pause
    fetch_keda
    echo "$release $keda" >"$dir/version"
}

# As a module of our own that needs Kubernetes: the parts it is made of have to be named, because its own go.mod points at
# folders beside it that the published module does not have.
build_programs() {
    local work=$dir/build go_mod part program flags="-s -w"
    rm -rf "$work"
    mkdir -p "$work" "$dir/bin"
    go_mod=$(cd "$work" && go mod download -json "k8s.io/kubernetes@v1.$release" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
    {
        echo "module forebay.test/kubernetes"
        sed -n '/^go /p' "$go_mod"
        echo "require k8s.io/kubernetes v1.$release"
        sed -n 's#^\t\(k8s\.io/[a-z-]*\) v0\.0\.0$#\1#p' "$go_mod" | while read -r part; do
            echo "replace $part => $part v0.$release"
        done
    } >"$work/go.mod"
    # Otherwise they say a version that clients cannot read.
    for part in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags+=" -X $part.gitVersion=v1.$release -X $part.gitMajor=1 -X $part.gitMinor=${release%.*}"
    done
    for program in "${programs[@]}"; do
        (cd "$work" && GOFLAGS="$GOFLAGS -mod=mod" go build -trimpath -ldflags "$flags" -o "$dir/bin/$program" \
            "k8s.io/kubernetes/cmd/$program")
    done
    rm -rf "$work"
}

unpack_packages() {
    local work=$dir/packages package
    rm -rf "$work" "$dir/root"
    mkdir -p "$work" "$dir/root"
    (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}") ||
        give_up "Debian's packages ${packages[*]} could not be fetched; \`apt-get update\` may help"
    for package in "$work"/*.deb; do dpkg-deb --extract "$package" "$dir/root"; done
    rm -rf "$work"
}

# What keeps the network of a pod: waits for its end, as an image of its own.
build_pause() {
    local work=$dir/pause
    rm -rf "$work"
    mkdir -p "$work/root"
    cat >"$work/main.go" <<'END'
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM)
	<-asked
}
END
    (cd "$work" && GO111MODULE=off go build -trimpath -ldflags "-s -w" -o root/pause main.go)
    "$here/../image.sh" --root "$work/root" --entrypoint /pause --name localhost/pause:1 --out "$dir/pause.tar"
    rm -rf "$work"
}

# What KEDA's objects look like, so that the API server can judge ours.
fetch_keda() {
    local source kind
    source=$(cd "$dir" && go mod download -json "github.com/kedacore/keda/v2@$keda" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    mkdir -p "$dir/keda"
    for kind in scaledobjects triggerauthentications; do
        install -m 644 "$source/config/crd/bases/keda.sh_$kind.yaml" "$dir/keda/"
    done
}

# An authority, a certificate of the API server, and one that it shows to the kubelet (for logs and exec).
make_keys() {
    local pki=$run/pki key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
    [ ! -s "$pki/client.pem" ] || return 0
    mkdir -p "$pki"
    openssl req -x509 "${key[@]}" -days 365 -subj "/CN=test cluster" -keyout "$pki/ca.key" -out "$pki/ca.pem" 2>/dev/null
    printf '%s\n' 'basicConstraints=CA:FALSE' 'extendedKeyUsage=serverAuth,clientAuth' \
        'subjectAltName=DNS:kubernetes.default.svc,IP:10.96.0.1,IP:10.244.0.1,IP:127.0.0.1' >"$pki/extensions"
    local name
    for name in server client; do
        openssl req "${key[@]}" -subj "/CN=$name" -keyout "$pki/$name.key" -out "$pki/$name.csr" 2>/dev/null
        openssl x509 -req -in "$pki/$name.csr" -CA "$pki/ca.pem" -CAkey "$pki/ca.key" -CAcreateserial -days 365 \
            -extfile "$pki/extensions" -out "$pki/$name.pem" 2>/dev/null
    done
    openssl genrsa -out "$pki/accounts.key" 2048 2>/dev/null
    echo "$admin_token,admin,admin,system:masters" >"$pki/tokens.csv"
}

lay_network() {
    [ "$(ip -brief link | grep -cv '^lo ')" = 0 ] || [ -e "$run/network" ] ||
        give_up "start Kubernetes: this network is not empty; run it inside \`unshare --net\`"
    [ ! -e "$run/network" ] || return 0
    ip link set lo up
    ip address add 10.96.0.1/32 dev lo
    ip address add 10.96.0.10/32 dev lo
    ip link add pods type bridge
    ip address add 10.244.0.1/24 dev pods
    ip link set pods up
    touch "$run/network"
}

kubectl() { "$dir/bin/kubectl" --kubeconfig "$run/kubeconfig" "$@"; }
ctr() { "$dir/root/usr/bin/ctr" --address "$run/containerd.sock" --namespace k8s.io "$@"; }

start_server() {
    [ -s "$dir/version" ] || give_up "start Kubernetes: it is not installed in $dir"
    [ "$(id -u)" = 0 ] || give_up "start Kubernetes: a node needs root"
    # Paths of sockets are short.
    [ ${#run} -le 80 ] || give_up "start Kubernetes: the path $run is too long"
    need openssl "to make certificates"
    need curl "to see when the server is ready"
    make_keys
    lay_network
    start_control
    start_node
    await 90 "$run/node.pid" "$run/node.sh" "$run/kubelet.log" is_ready
    echo "$run/kubeconfig"
}

start_control() {
    local pki=$run/pki etcd=http://127.0.0.1:2379
    # What it keeps is worth nothing after the test, so it need not wait for the disk.
    running "$run/etcd.pid" "$run/etcd" || launch "$run/etcd.pid" "$run/etcd.log" \
        "$dir/root/usr/bin/etcd" --data-dir "$run/etcd" --unsafe-no-fsync --logger zap --log-level error \
        --listen-client-urls "$etcd" --advertise-client-urls "$etcd" --listen-peer-urls http://127.0.0.1:2380
    # The reconciler would want an address that is not of loopback for itself.
    running "$run/apiserver.pid" "$pki" || launch "$run/apiserver.pid" "$run/apiserver.log" \
        "$dir/bin/kube-apiserver" --etcd-servers "$etcd" --bind-address 0.0.0.0 --secure-port 443 \
        --advertise-address 10.244.0.1 --endpoint-reconciler-type none --service-cluster-ip-range 10.96.0.0/24 \
        --tls-cert-file "$pki/server.pem" --tls-private-key-file "$pki/server.key" \
        --token-auth-file "$pki/tokens.csv" --authorization-mode RBAC --allow-privileged=false \
        --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$pki/accounts.key" \
        --service-account-signing-key-file "$pki/accounts.key" --kubelet-certificate-authority "$pki/ca.pem" --kubelet-preferred-address-types InternalIP \
        --kubelet-client-certificate "$pki/client.pem" --kubelet-client-key "$pki/client.key"
    cat >"$run/kubeconfig" <<END
apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: admin}}]
clusters: [{name: test, cluster: {server: "https://127.0.0.1:443", certificate-authority: "$pki/ca.pem"}}]
users: [{name: admin, user: {token: "$admin_token"}}]
END
    await 90 "$run/apiserver.pid" "$pki" "$run/apiserver.log" curl -sSf --cacert "$pki/ca.pem" \
        -H "Authorization: Bearer $admin_token" https://127.0.0.1/readyz
    running "$run/controllers.pid" "$run/kubeconfig" || launch "$run/controllers.pid" "$run/controllers.log" \
        "$dir/bin/kube-controller-manager" --kubeconfig "$run/kubeconfig" --leader-elect=false \
        --bind-address 127.0.0.1 --root-ca-file "$pki/ca.pem" --service-account-private-key-file "$pki/accounts.key"
    running "$run/scheduler.pid" "$run/kubeconfig" || launch "$run/scheduler.pid" "$run/scheduler.log" \
        "$dir/bin/kube-scheduler" --kubeconfig "$run/kubeconfig" --leader-elect=false --bind-address 127.0.0.1
    running "$run/dns.pid" cluster_dns.py || launch "$run/dns.pid" "$run/dns.log" \
        python3 "$here/cluster_dns.py" --listen 10.96.0.10 --server https://10.96.0.1 --ca "$pki/ca.pem" \
        --token "$admin_token"
}

# The folders of control groups that are ours: one in each hierarchy, or one where there is one hierarchy.
control_groups() {
    local root=/sys/fs/cgroup
    if [ -e "$root/cgroup.controllers" ]; then
        echo "$root/$(<"$run/group")"
    else
        printf '%s\n' "$root"/*/ | sed "s#\$#$(<"$run/group")#"
    fi
}

# Containers and mounts of the node live in its own process and mount spaces and end with the first process there. Paths
# that a kubelet and containerd insist on are folders of RUN in that space, and so are kernel settings that it would
# change for the whole machine.
start_node() {
    local group file
    ! running "$run/node.pid" "$run/node.sh" || return 0
    # Not by the number of this process: others may have the same in a space of their own.
    echo "forebay-kubernetes-$(cksum <<<"$run" | cut -d ' ' -f 1)" >"$run/group"
    while read -r group; do
        mkdir -p "$group"
        # In the first version of control groups a new one may use no processor and no memory node.
        for file in cpuset.cpus cpuset.mems; do
            [ ! -e "$group/$file" ] || [ -n "$(<"$group/$file")" ] || cat "${group%/*}/$file" >"$group/$file"
        done
    done < <(control_groups)
    mkdir -p "$run"/{lib,log,settings,network.d,containerd}
    write_node_files
    launch "$run/node.pid" "$run/node.log" unshare --mount --propagation private --pid --fork --kill-child \
        --mount-proc bash "$run/node.sh"
}

write_node_files() {
    cat >"$run/network.d/pods.conflist" <<'END'
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "pods", "isGateway": true,
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24", "rangeStart": "10.244.0.10"}]],
          "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
    cat >"$run/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 10.244.0.1
tlsCertFile: "$run/pki/server.pem"
tlsPrivateKeyFile: "$run/pki/server.key"
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: "$run/pki/ca.pem"}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: "unix://$run/containerd.sock"
cgroupDriver: cgroupfs
cgroupRoot: "/$(<"$run/group")"
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
oomScoreAdj: 0
maxOpenFiles: $(ulimit -Hn)
clusterDNS: ["10.96.0.10"]
clusterDomain: cluster.local
resolvConf: ""
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}
END
    cat >"$run/containerd.toml" <<END
version = 2
root = "$run/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "$run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/pause:1"
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "$dir/root/usr/lib/cni"
conf_dir = "$run/network.d"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "@snapshotter@"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "$dir/root/usr/sbin/runc"
END
    cat >"$run/node.sh" <<END
set -euo pipefail
export PATH="$dir/root/usr/bin:$dir/root/usr/sbin:\$PATH"
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind "$run/lib" /var/lib
mount --bind "$run/log" /var/log
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \\
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file="$run/settings/\$(basename "\${setting%=*}")"
    echo "\${setting#*=}" >"\$file"
    mount --bind "\$file" "/proc/sys/\${setting%=*}"
done
# Images as layers over each other where the file system can do that, else as copies.
mkdir -p /run/try "$run/containerd/try"/{lower,upper,work}
snapshotter=native
if mount -t overlay -o "lowerdir=$run/containerd/try/lower,upperdir=$run/containerd/try/upper,workdir=$run/containerd/try/work" \\
    overlay /run/try; then
    umount /run/try
    snapshotter=overlayfs
fi
rm -rf "$run/containerd/try"
echo "\$snapshotter" >"$run/snapshotter"
sed -i "s/@snapshotter@/\$snapshotter/" "$run/containerd.toml"
containerd --config "$run/containerd.toml" >"$run/containerd.log" 2>&1 &
until ctr --address "$run/containerd.sock" version >/dev/null 2>&1; do sleep 0.1; done
ctr --address "$run/containerd.sock" --namespace k8s.io images import --snapshotter "\$snapshotter" "$dir/pause.tar"
"$dir/bin/kubelet" --config "$run/kubelet.yaml" --kubeconfig "$run/kubeconfig" --hostname-override node --node-ip 10.244.0.1 \\
    >"$run/kubelet.log" 2>&1 &
wait -n
END
}

# The node takes pods, and there is an account for the first of them.
is_ready() {
    [ "$(kubectl get node node -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}{.spec.taints}')" = True ] &&
        kubectl get serviceaccount default
}

load_images() {
    local image
    [ -s "$run/snapshotter" ] || give_up "load images: no node runs in $run"
    for image in ${flags[@]+"${flags[@]}"}; do
        ctr images import --snapshotter "$(<"$run/snapshotter")" "$image"
    done
}

stop_server() {
    local group name
    if [ -s "$run/node.pid" ]; then
        ! running "$run/node.pid" "$run/node.sh" || kill -KILL "$(<"$run/node.pid")" 2>/dev/null || true
        # Those that were in it are gone a moment later.
        while read -r group; do
            for _ in {1..100}; do
                [ -d "$group" ] || break
                ! find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || break
                sleep 0.1
            done
        done < <(control_groups)
        rm -f "$run/node.pid" "$run/containerd.sock"*
    fi
    end "$run/dns.pid" cluster_dns.py 5
    end "$run/scheduler.pid" "$run/kubeconfig" 5
    end "$run/controllers.pid" "$run/kubeconfig" 5
    end "$run/apiserver.pid" "$run/pki" 5
    end "$run/etcd.pid" "$run/etcd" 5
}

read_words "$usage" "$@"
case $word in
    install) install_server ;;
    start) start_server ;;
    stop) stop_server ;;
    load) load_images ;;
    *) give_up "$usage" ;;
esac
