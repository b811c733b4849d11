# shellcheck shell=bash
# Lab hosts: systemd in systemd-nspawn on an overlay of the one tree, with their own network and Podman storage.

# Hosts are 1 to 8; 9 is the one without Podman.
MAX_HOSTS=8
BARE_HOST=9

host_dir() { printf '%s/hosts/%s\n' "$TESTBED_STATE" "$1"; }

host_exists() { [[ -e $(host_dir "$1")/complete ]]; }

require_host() {
  [[ ${1:-} =~ ^[1-9]$ && -e $(host_dir "${1:-}")/complete ]] ||
    die "there is no host '${1:-}'; there are: $(existing_hosts | xargs)"
}

existing_hosts() {
  local n
  for n in {1..9}; do
    ! host_exists "$n" || printf '%s\n' "$n"
  done
}

# The host's PID 1, seen from outside: the process in the host's network namespace that is 1 one pid namespace below ours.
# Its parent, nspawn, can't stand for it: that one may die and leave the host running.
host_init() {
  local pid
  netns_exists "$1" || return 1
  for pid in $(ip netns pids "lab$1"); do
    if awk '/^NSpid:/ {found = NF == 3 && $3 == 1} END {exit !found}' "/proc/$pid/status" 2>/dev/null; then
      printf '%s\n' "$pid"
      return 0
    fi
  done
  return 1
}

host_is_on() { host_init "$1" >/dev/null; }

host_is_off() { ! host_is_on "$1" && gone "host-$1"; }

# Makes host N's files: overlay, identity, Podman's storage with the test images in it.
create_host() {
  local n=$1 dir
  dir=$(host_dir "$n")
  [[ ! -e $dir ]] || { unmount_below "$dir" && rm -rf --one-file-system "$dir"; }
  mkdir -p "$dir"/{up,wk,root}
  make_host_identity "$n" "$dir/up"
  printf '%s %s\n' "$(host_address "$n")" "$(host_public_key "$n")" >"$dir/known_hosts"
  # On the plain file system: overlay storage on an overlay is refused.
  cp -a "$(images_path)/containers" "$dir/containers"
  images_path >"$dir/images"
  [[ $n != "$BARE_HOST" ]] || hide_podman "$dir/up"
  : >"$dir/complete"
}

# A host on which nobody has installed Podman: an overlay hides a file by a device node 0:0.
hide_podman() {
  local path
  for path in usr/bin/podman usr/libexec/podman usr/lib/systemd/system-generators/podman-system-generator; do
    mkdir -p "$1/$(dirname "$path")"
    mknod "$1/$path" c 0 0
  done
}

# Starts host N, on the overlay that it had; returns when sshd answers.
boot_host() {
  local n=$1 dir
  dir=$(host_dir "$n")
  host_exists "$n" || create_host "$n"
  ensure_network "$n"
  if ! host_is_on "$n"; then
    halt "host-$n" KILL
    mountpoint -q "$dir/root" ||
      mount -t overlay "lab$n" -o "lowerdir=$(tree_path),upperdir=$dir/up,workdir=$dir/wk" "$dir/root"
    launch_host "$n" "$dir"
  fi
  join_link "$n"
  wait_for 60 "sshd of host $n" host_ssh "$n" true
}

# Unified hierarchy: systemd 257 wants cgroup v2 whatever the machine has. Writable API file systems: netavark sets sysctls.
launch_host() {
  local n=$1 dir=$2
  local -a cgroups
  mapfile -t cgroups < <(make_cgroups "$n")
  # shellcheck disable=SC2016 # expanded by the inner shell
  SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 SYSTEMD_NSPAWN_API_VFS_WRITABLE=1 \
    launch "host-$n" bash -ec 'while [[ $1 != -- ]]; do echo $$ >"$1"; shift; done; shift; exec "$@"' enter \
    "${cgroups[@]}" -- systemd-nspawn --quiet --boot --directory="$dir/root" --machine="lab$n" \
    --register=no --keep-unit --capability=all --system-call-filter=@known \
    --network-namespace-path="/run/netns/lab$n" --resolv-conf=off --timezone=off --link-journal=no \
    --bind=/dev/fuse --bind="$(kvm_node):/dev/kvm" --bind="$dir/containers:/var/lib/containers"
  wait_for 20 "PID 1 of host $n" host_is_on "$n"
}

# The machine's own, or a node that nothing answers, so that the path at least is there.
kvm_node() {
  local node=$TESTBED_STATE/kvm
  if [[ -e /dev/kvm ]]; then
    node=/dev/kvm
  elif [[ ! -e $node ]]; then
    mknod -m 0660 "$node" c 10 232
  fi
  printf '%s\n' "$node"
}

# Power loss: the link goes first, so that no FIN or RST tells the other side, and connections die with the host.
kill_host() {
  local n=$1 init
  ! netns_exists "$n" || cut_link "$n"
  if init=$(host_init "$n"); then kill -s KILL "$init" 2>/dev/null || true; fi
  for _ in {1..60}; do
    host_is_off "$n" && break
    sleep 0.05
  done
  halt "host-$n" KILL
  wait_for 10 "end of host $n" host_is_off "$n"
  remove_cgroups "$n"
  ! netns_exists "$n" || ip netns exec "lab$n" ss --kill --all >/dev/null 2>&1 || true
}

remove_host() {
  local n=$1
  ! state_is_current || kill_host "$n"
  unmount_below "$(host_dir "$n")"
  remove_network "$n"
}

# Innermost first. What can't be unmounted must not be deleted through.
unmount_below() {
  local path
  awk -v top="$1/" 'index($5, top) == 1 {print $5}' /proc/self/mountinfo | sort -r | while read -r path; do
    umount "$path" || die "can't unmount $path: $(fuser -vm "$path" 2>&1 | tail -n3 | xargs)"
  done
}
