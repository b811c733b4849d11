# shellcheck shell=bash
# The verbs that concern the whole: up, down, status; and those that do something to one host.

DEFAULT_HOSTS=2
DEFAULT_NAMESPACE=jumpstarter

# Boots what does not run, checks what does. Everything is found by its record, so that `up` also completes half an `up`.
up() {
  local -a wanted jobs=()
  local with_jumpstarter=yes
  parse_up "$@"
  local n begin=$SECONDS
  if [[ -e $MARKER ]] && ! state_is_current; then phase "leftovers of an earlier boot, removed" remove_everything; fi
  trap 'kill $(jobs -p) 2>/dev/null' INT TERM
  install_packages
  make_state
  ensure_keys
  ensure_fence
  prepare_control_plane &
  jobs+=($!)
  ensure_tree
  ensure_images
  [[ $with_jumpstarter == no ]] || phase "stand-in for jumpstarter-controller" ensure_jumpstarter_built
  for n in "${wanted[@]}"; do
    phase "host $n ($(host_address "$n"))" bring_host_up "$n" &
    jobs+=($!)
  done
  join_all "${jobs[@]}"
  # It listens on host 1's link.
  if [[ $with_jumpstarter == yes ]]; then ensure_jumpstarter; else stop_jumpstarter; fi
  write_env
  say "up after $((SECONDS - begin)) s
  cluster      $TESTBED_SCRIPT kubectl get namespaces
  a lab host   $TESTBED_SCRIPT ssh 1
  the rest     $ENV_FILE"
}

# All that `up` builds, without booting anything.
build() {
  install_packages
  mkdir -p "$TESTBED_CACHE"
  ensure_binaries &
  local jobs=($!)
  ensure_tree
  ensure_images
  [[ -n ${TESTBED_JUMPSTARTER:-} ]] || phase "stand-in for jumpstarter-controller" ensure_jumpstarter_built
  join_all "${jobs[@]}"
}

# Sets `wanted`: the hosts that exist, and those asked for.
parse_up() {
  local count='' n
  wanted=()
  ! state_is_current || mapfile -t wanted < <(existing_hosts)
  while (($#)); do
    case $1 in
      --hosts)
        count=${2:-}
        [[ $count =~ ^[1-$MAX_HOSTS]$ ]] || die "--hosts takes 1 to $MAX_HOSTS, not '$count'"
        shift 2
        ;;
      --bare-host)
        [[ " ${wanted[*]} " == *" $BARE_HOST "* ]] || wanted+=("$BARE_HOST")
        shift
        ;;
      --no-jumpstarter)
        with_jumpstarter=no
        shift
        ;;
      *) die "up does not know '$1'; it takes --hosts N, --bare-host and --no-jumpstarter" ;;
    esac
  done
  [[ " ${wanted[*]}" =~ " "[1-8] ]] || count=${count:-$DEFAULT_HOSTS}
  for ((n = 1; n <= ${count:-0}; n++)); do
    [[ " ${wanted[*]} " == *" $n "* ]] || wanted+=("$n")
  done
}

prepare_control_plane() {
  ensure_binaries
  phase "control plane" ensure_control_plane
  phase "namespace $DEFAULT_NAMESPACE" make_namespace "$DEFAULT_NAMESPACE" >/dev/null
}

bring_host_up() {
  boot_host "$1"
  # Reached only by what boot starts; a unit that a test left behind must not hold `up`.
  host_ssh "$1" 'timeout 20 systemctl is-system-running --wait' >>"$LOG/host-$1.log" 2>&1 || true
  load_images "$1"
}

write_env() {
  local n
  local -a hosts
  mapfile -t hosts < <(existing_hosts)
  {
    printf 'TESTBED_SCRIPT=%s\nTESTBED_STATE=%s\nTESTBED_CACHE=%s\n' "$TESTBED_SCRIPT" "$TESTBED_STATE" "$TESTBED_CACHE"
    printf 'TESTBED_APISERVER=%s\nTESTBED_KUBECTL=%s\n' "$APISERVER" "$KUBECTL"
    printf 'TESTBED_KUBECONFIG=%s\n' "$ADMIN_KUBECONFIG"
    printf 'TESTBED_CONTROLLER_KUBECONFIG=%s\n' "$(namespace_kubeconfig "$DEFAULT_NAMESPACE")"
    printf 'TESTBED_SSH_KEY=%s\nTESTBED_SSH_KEY_ENCRYPTED=%s\n' "$SSH_KEY" "$SSH_KEY.encrypted"
    printf 'TESTBED_SSH_KEY_WRONG=%s\n' "$SSH_KEY.wrong"
    printf 'TESTBED_HOSTS=%s\n' "$(grep -cv "^$BARE_HOST$" < <(printf '%s\n' "${hosts[@]}"))"
    for n in "${hosts[@]}"; do
      printf 'TESTBED_HOST_%s=%s\nTESTBED_HOST_%s_KEY=%s\n' "$n" "$(host_address "$n")" "$n" "$(host_public_key "$n")"
      ! has_ipv6 || printf 'TESTBED_HOST_%s_IPV6=%s\n' "$n" "$(host_address_6 "$n")"
    done
    printf 'TESTBED_SSH_SECOND_PORT=%s\n' "$SECOND_SSH_PORT"
    ! host_exists "$BARE_HOST" || printf 'TESTBED_BARE_HOST=%s\n' "$BARE_HOST"
    printf 'TESTBED_EXPORTER_IMAGE=%s\nTESTBED_RUNTIME_IMAGE=%s\n' "$EXPORTER_IMAGE" "$RUNTIME_IMAGE"
    printf 'TESTBED_JUMPSTARTER_ENDPOINT=%s\n' "$JUMPSTARTER_ENDPOINT"
    ! running jumpstarter || printf 'TESTBED_JUMPSTARTER_CONTROL=%s\n' "$JUMPSTARTER_CONTROL"
  } >"$ENV_FILE.tmp"
  mv "$ENV_FILE.tmp" "$ENV_FILE"
}

down() {
  if [[ -e $MARKER ]]; then
    phase "down" remove_everything
  else
    say "nothing to take down: no state in $TESTBED_STATE"
  fi
}

remove_everything() {
  local n
  local -a jobs=()
  # A pid of an earlier boot is somebody else's by now.
  state_is_current || rm -f "$RUN"/*.pid
  stop_jumpstarter
  for n in {1..9}; do
    [[ -e $(host_dir "$n") || -e $RUN/lab$n.net ]] || continue
    remove_host "$n" &
    jobs+=($!)
  done
  stop_control_plane
  join_all "${jobs[@]}"
  remove_fence
  unmount_below "$TESTBED_STATE"
  rm -rf --one-file-system "$TESTBED_STATE"
}

status() {
  is_up || {
    printf 'down\n'
    return 3
  }
  local name n state failed=0
  for name in etcd kube-apiserver kube-controller-manager jumpstarter; do
    # Left out by `up --no-jumpstarter`.
    [[ $name != jumpstarter || -e $RUN/jumpstarter.pid ]] || continue
    state="pid $(pid_of "$name")" || { state=dead && failed=1; }
    printf '%-26s %s\n' "$name" "$state"
  done
  for n in $(existing_hosts); do
    state=$(host_state "$n") || failed=1
    printf '%-26s %s\n' "host $n ($(host_address "$n"))" "$state"
  done
  return "$failed"
}

host_state() {
  host_is_on "$1" || { printf 'off\n' && return 1; }
  link_is_up "$1" || { printf 'on, cable pulled\n' && return 1; }
  host_ssh "$1" true || { printf 'on, no ssh\n' && return 1; }
  printf 'on, PID 1 is %s\n' "$(host_init "$1")"
}

host_kill() { phase "host $1 off" kill_host "$1"; }

host_start() { phase "host $1 on" boot_host "$1"; }

host_cut() { cut_link "$1"; }

host_join() {
  host_is_on "$1" || die "host $1 is off; host-start also joins it"
  join_link "$1"
}

reload_images() {
  local n
  ensure_images
  for n in $(existing_hosts); do
    phase "images of host $n" load_images "$n"
  done
}
