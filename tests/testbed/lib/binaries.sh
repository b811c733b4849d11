# shellcheck shell=bash
# etcd, kube-apiserver, kube-controller-manager and kubectl: from KUBEBUILDER_ASSETS where that is set, else built from
# their Go modules. Afterwards ETCD, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER and KUBECTL hold their paths.

KUBERNETES_VERSION=$(awk '$1 == "k8s.io/kubernetes" {print substr($2, 2)}' "$TESTBED_DIR/controlplane/go.mod")

# The programs by the packages that they are built from.
declare -A PROGRAMS=(
  [etcd]=go.etcd.io/etcd/server/v3
  [kube-apiserver]=k8s.io/kubernetes/cmd/kube-apiserver
  [kube-controller-manager]=k8s.io/kubernetes/cmd/kube-controller-manager
  [kubectl]=k8s.io/kubernetes/cmd/kubectl
)

binaries_path() {
  printf '%s/controlplane-%s\n' "$TESTBED_CACHE" "$(digest "$TESTBED_DIR"/controlplane/go.{mod,sum})"
}

# Where a program is, built or not.
program_path() {
  if [[ -n ${KUBEBUILDER_ASSETS:-} && -x $KUBEBUILDER_ASSETS/$1 ]]; then
    printf '%s\n' "$KUBEBUILDER_ASSETS/$1"
  else
    printf '%s/%s\n' "$(binaries_path)" "$1"
  fi
}

locate_binaries() {
  ETCD=$(program_path etcd)
  KUBE_APISERVER=$(program_path kube-apiserver)
  KUBE_CONTROLLER_MANAGER=$(program_path kube-controller-manager)
  KUBECTL=$(program_path kubectl)
}

ensure_binaries() {
  locate_binaries
  [[ -x $ETCD ]] || phase "etcd, built" build_program etcd
  local -a missing=()
  local name
  for name in kubectl kube-apiserver kube-controller-manager; do
    [[ -x $(program_path "$name") ]] || missing+=("$name")
  done
  ((${#missing[@]})) || return 0
  say "building ${missing[*]} (5 to 10 minutes on two cores, once; KUBEBUILDER_ASSETS would spare most of it)"
  phase "${missing[*]}, built" build_program "${missing[@]}"
}

find_go() {
  command -v go || { [[ -x /usr/local/go/bin/go ]] && printf '/usr/local/go/bin/go\n'; } ||
    die "no Go to build the control plane with: install Go 1.21 or later (it fetches the version that go.mod names)," \
      "or set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver and kubectl"
}

build_program() {
  local go out log=$TESTBED_CACHE/controlplane.log version=k8s.io/component-base/version name
  local -a packages=()
  go=$(find_go)
  out=$(binaries_path)
  for name in "$@"; do packages+=("${PROGRAMS[$name]}"); done
  # Without the version the server calls itself v0.0.0, and clients take a wrong path.
  local flags="-s -w -X $version.gitVersion=v$KUBERNETES_VERSION"
  flags+=" -X $version.gitMajor=${KUBERNETES_VERSION%%.*} -X $version.gitMinor=$(cut -d. -f2 <<<"$KUBERNETES_VERSION")"
  rm -rf "$out.partial" && mkdir -p "$out.partial" "$out"
  (cd "$TESTBED_DIR/controlplane" &&
    CGO_ENABLED=0 GOFLAGS='' "$go" build -mod=readonly -buildvcs=false -trimpath -ldflags "$flags" \
      -o "$out.partial/" "${packages[@]}") >"$log" 2>&1 </dev/null ||
    die "go build failed: $(tail -n5 "$log")"
  # etcd's package is called after its folder.
  [[ ! -e $out.partial/v3 ]] || mv "$out.partial/v3" "$out.partial/etcd"
  [[ ! -e $out.partial/server ]] || mv "$out.partial/server" "$out.partial/etcd"
  mv "$out.partial"/* "$out/"
  rmdir "$out.partial"
}
