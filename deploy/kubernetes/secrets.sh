#!/usr/bin/env bash
# Makes an authority, a certificate and two tokens, and prints them as Secrets:
#   deploy/kubernetes/secrets.sh DIR [NAMESPACE] | kubectl apply -f -
#
# All processes of the service show one certificate with the name `forebay`. The files stay in DIR, for jobs that are not
# pods; whoever has them can take part, so keep them well. Said again it prints the same Secrets. Where cert-manager
# runs, let it make the Secret forebay-tls instead: the keys in it have the same names.
set -euo pipefail
umask 077
dir=${1:?usage: secrets.sh DIR [NAMESPACE]} namespace=${2:-forebay}
mkdir -p "$dir"
cd "$dir"
if [ ! -s tls.crt ]; then
    key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
    openssl req -x509 "${key[@]}" -days 3650 -subj "/CN=forebay authority" -keyout ca.key -out ca.crt 2>/dev/null
    openssl req "${key[@]}" -subj "/CN=forebay" -keyout tls.key -out tls.csr 2>/dev/null
    openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out tls.crt 2>/dev/null -extfile <(
        printf '%s\n' basicConstraints=CA:FALSE extendedKeyUsage=serverAuth,clientAuth subjectAltName=DNS:forebay
    )
    rm tls.csr
fi
for name in token metrics-token; do
    [ -s "$name" ] || openssl rand -base64 32 >"$name"
done

encoded() { base64 --wrap=0 <"$1"; }
cat <<END
apiVersion: v1
kind: Secret
metadata: {name: forebay-tls, namespace: "$namespace"}
type: kubernetes.io/tls
data: {ca.crt: "$(encoded ca.crt)", tls.crt: "$(encoded tls.crt)", tls.key: "$(encoded tls.key)"}
---
apiVersion: v1
kind: Secret
metadata: {name: forebay-token, namespace: "$namespace"}
data: {token: "$(encoded token)"}
---
apiVersion: v1
kind: Secret
metadata: {name: forebay-metrics-token, namespace: "$namespace"}
data: {token: "$(encoded metrics-token)"}
END
