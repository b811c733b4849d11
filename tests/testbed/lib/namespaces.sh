# shellcheck shell=bash
# A namespace as the Jumpstarter operator leaves it for a provisioner: ServiceAccount, Role, RoleBinding, CA ConfigMap.

# The operator's names for `qemu-ssh.jumpstarter.dev` in a Jumpstarter resource called `jumpstarter`.
SERVICE_ACCOUNT=jumpstarter-exporterset-qemu-ssh-jumpstarter-dev

namespace_kubeconfig() { printf '%s/namespaces/%s.kubeconfig\n' "$TESTBED_STATE" "$1"; }

# make_namespace NAME: (again) makes what is missing; prints the path of the ServiceAccount's kubeconfig.
make_namespace() {
  local name=$1 kubeconfig token log=$LOG/namespace-$1.log
  [[ $name =~ ^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$ ]] || die "'$name' can't name a namespace: use a-z, 0-9 and -"
  kubeconfig=$(namespace_kubeconfig "$name")
  mkdir -p "${kubeconfig%/*}"
  # Checked by the server, not here: that would cost kubectl the download of all schemas.
  namespace_manifest "$name" |
    kube apply --server-side --force-conflicts --validate=false --filename=- >"$log" 2>&1 ||
    die "namespace $name: $(tail -n3 "$log")"
  token=$(kube --namespace="$name" create token "$SERVICE_ACCOUNT" --duration=24h 2>>"$log") ||
    die "no token for namespace $name: $(tail -n3 "$log")"
  write_kubeconfig "$kubeconfig" "$name" "$token"
  printf '%s\n' "$kubeconfig"
}

namespace_manifest() {
  cat <<YAML
apiVersion: v1
kind: Namespace
metadata: {name: "$1"}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: $SERVICE_ACCOUNT, namespace: "$1"}
---
$(sed "s/^  name: .*/  name: $SERVICE_ACCOUNT-role\n  namespace: \"$1\"/" "$TESTBED_DIR/../../deploy/base/role.yaml")
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: $SERVICE_ACCOUNT-rolebinding, namespace: "$1"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: $SERVICE_ACCOUNT-role}
subjects: [{kind: ServiceAccount, name: $SERVICE_ACCOUNT, namespace: "$1"}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: jumpstarter-service-ca-cert, namespace: "$1"}
data:
  ca.crt: |
$(sed 's/^/    /' "$PKI/jumpstarter-ca.crt")
YAML
}

# Doesn't wait for the end: the namespace's finalizers, and those of what is in it, take their time.
delete_namespace() {
  kube delete namespace "$1" --ignore-not-found --wait=false
  rm -f "$(namespace_kubeconfig "$1")" "$LOG/namespace-$1.log"
}
