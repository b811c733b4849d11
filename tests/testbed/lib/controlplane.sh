# shellcheck shell=bash
# The control plane: etcd, kube-apiserver with RBAC, and of kube-controller-manager what the tests depend on.

# Below 32768: higher ports are handed out to outgoing connections. Loopback only.
ETCD_PORT=12379
ETCD_PEER_PORT=12380
APISERVER_PORT=16443
CONTROLLER_MANAGER_PORT=11257

APISERVER=https://127.0.0.1:$APISERVER_PORT
PKI=$TESTBED_STATE/pki
ADMIN_KUBECONFIG=$TESTBED_STATE/admin.kubeconfig
CRDS=$CHECKOUT/crds

# Without the garbage collector an ExporterSet's deletion would never reach its Exporters; the rest makes namespaces
# and service accounts work.
CONTROLLERS=garbage-collector-controller,namespace-controller,serviceaccount-controller
CONTROLLERS+=,root-ca-certificate-publisher-controller

kube() { "$KUBECTL" --kubeconfig="$ADMIN_KUBECONFIG" --cache-dir="$TESTBED_STATE/kubectl-cache" "$@"; }

ensure_control_plane() {
  make_pki
  start_etcd
  start_apiserver
  apply_crds
  start_controller_manager
}

# A throw-away CA, the API server's certificate, the key that signs service account tokens, and the admin's token.
make_pki() {
  [[ -s $ADMIN_KUBECONFIG ]] && return
  mkdir -p "$PKI"
  local token
  token=$(openssl rand -hex 24)
  {
    openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/service-account.key"
    make_ca "$PKI/ca" testbed-ca
    make_ca "$PKI/jumpstarter-ca" jumpstarter-testbed-ca
    make_certificate "$PKI/apiserver" kube-apiserver -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" \
      -addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=serverAuth \
      -addext subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc
  } >"$LOG/pki.log" 2>&1 </dev/null || die "openssl failed: $(tail -n3 "$LOG/pki.log")"
  printf '%s,admin,admin,system:masters\n' "$token" >"$PKI/tokens.csv"
  chmod 0600 "$PKI"/*.key "$PKI/tokens.csv"
  write_kubeconfig "$ADMIN_KUBECONFIG" default "$token"
}

make_ca() {
  make_certificate "$1" "$2" -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
}

# make_certificate FILE-STEM COMMON-NAME OPTION…: with a configuration of its own, as the system's would add extensions.
make_certificate() {
  local stem=$1 name=$2
  shift 2
  openssl req -config <(printf '[req]\ndistinguished_name = dn\n[dn]\n') -x509 -nodes -days 30 -subj "/CN=$name" \
    -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -keyout "$stem.key" -out "$stem.crt" "$@"
}

# write_kubeconfig FILE NAMESPACE TOKEN
write_kubeconfig() {
  (
    umask 077
    cat >"$1.tmp" <<YAML
apiVersion: v1
kind: Config
current-context: testbed
contexts: [{name: testbed, context: {cluster: testbed, user: testbed, namespace: "$2"}}]
clusters:
  - name: testbed
    cluster:
      server: $APISERVER
      certificate-authority-data: $(base64 -w0 <"$PKI/ca.crt")
users: [{name: testbed, user: {token: "$3"}}]
YAML
    mv "$1.tmp" "$1"
  )
}

answers() { curl --silent --fail --noproxy '*' --max-time 2 --output /dev/null "$@"; }

# A port that somebody else holds is better named now than found in a log later.
require_free_port() {
  local holder
  holder=$(ss -Hltnp "sport = :$1" | head -n1)
  [[ -z $holder ]] || die "port $1, which $2 needs, is taken: $holder"
}

start_etcd() {
  running etcd && return
  require_free_port "$ETCD_PORT" etcd
  launch etcd "$ETCD" --name=testbed --data-dir="$TESTBED_STATE/etcd" --unsafe-no-fsync --log-level=warn \
    --listen-client-urls="http://127.0.0.1:$ETCD_PORT" --advertise-client-urls="http://127.0.0.1:$ETCD_PORT" \
    --listen-peer-urls="http://127.0.0.1:$ETCD_PEER_PORT" \
    --initial-advertise-peer-urls="http://127.0.0.1:$ETCD_PEER_PORT" \
    --initial-cluster="testbed=http://127.0.0.1:$ETCD_PEER_PORT"
}

start_apiserver() {
  if ! running kube-apiserver; then
    require_free_port "$APISERVER_PORT" kube-apiserver
    launch kube-apiserver "$KUBE_APISERVER" --etcd-servers="http://127.0.0.1:$ETCD_PORT" \
      --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="$APISERVER_PORT" \
      --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" --cert-dir="$PKI" \
      --service-account-issuer=https://kubernetes.default.svc --api-audiences=https://kubernetes.default.svc \
      --service-account-signing-key-file="$PKI/service-account.key" \
      --service-account-key-file="$PKI/service-account.key" \
      --authorization-mode=RBAC --token-auth-file="$PKI/tokens.csv" \
      --service-cluster-ip-range=10.0.0.0/24 --endpoint-reconciler-type=none --allow-privileged
  fi
  wait_for 60 "kube-apiserver's readiness" answers --cacert "$PKI/ca.crt" "$APISERVER/readyz"
}

start_controller_manager() {
  if ! running kube-controller-manager; then
    require_free_port "$CONTROLLER_MANAGER_PORT" kube-controller-manager
    launch kube-controller-manager "$KUBE_CONTROLLER_MANAGER" --kubeconfig="$ADMIN_KUBECONFIG" \
      --controllers="$CONTROLLERS" --leader-elect=false --bind-address=127.0.0.1 \
      --secure-port="$CONTROLLER_MANAGER_PORT" --cert-dir="$PKI" --root-ca-file="$PKI/ca.crt" \
      --service-account-private-key-file="$PKI/service-account.key"
  fi
  wait_for 30 "kube-controller-manager's health" answers --insecure "https://127.0.0.1:$CONTROLLER_MANAGER_PORT/healthz"
}

# The checkout's CRDs, when they changed since they were last applied. The garbage collector learns of new kinds every
# 30 s only, so that it is started after them, and again when they change.
apply_crds() {
  local files=("$CRDS"/*.yaml) applied=$TESTBED_STATE/crds.digest now
  [[ -e ${files[0]} ]] || { say "no CRDs in $CRDS: none applied" && return; }
  now=$(digest "${files[@]}")
  [[ ! -e $applied || $(<"$applied") != "$now" ]] || return 0
  {
    kube apply --server-side --force-conflicts "${files[@]/#/--filename=}" &&
      kube wait --for=condition=Established --timeout=30s "${files[@]/#/--filename=}"
  } >"$LOG/crds.log" 2>&1 || die "the CRDs in $CRDS were refused: $(tail -n5 "$LOG/crds.log")"
  halt kube-controller-manager KILL
  printf '%s\n' "$now" >"$applied"
}

stop_control_plane() {
  halt kube-controller-manager KILL
  halt kube-apiserver KILL
  halt etcd KILL
}
