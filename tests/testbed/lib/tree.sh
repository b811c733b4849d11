# shellcheck shell=bash
# The lab hosts' file system: Debian 13, the first Debian whose Podman (5.4) is new enough for quadlets. Built once.

TREE_SUITE=trixie
TREE_PACKAGES=systemd,systemd-sysv,dbus,udev,openssh-server,sudo
TREE_PACKAGES+=,podman,netavark,aardvark-dns,passt,crun,catatonit,nftables
TREE_PACKAGES+=,iproute2,procps,ca-certificates,busybox-static
SECOND_SSH_PORT=2200

# This file is its own input: a change of it makes a new tree.
tree_path() { printf '%s/tree-%s\n' "$TESTBED_CACHE" "$(digest "$TESTBED_DIR/lib/tree.sh")"; }

ensure_tree() {
  local tree
  tree=$(tree_path)
  [[ -d $tree ]] && return
  say "building the lab hosts' tree (Debian $TREE_SUITE, about a minute, once)"
  phase "lab host tree" build_tree "$tree"
}

build_tree() {
  local tree=$1 mirror=${TESTBED_MIRROR:-} work=$1.partial
  # The machine's own mirror, if it is a Debian; else mmdebstrap's default.
  [[ -n $mirror || ! -e /etc/apt/sources.list.d/debian.sources ]] ||
    mirror=$(awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources)
  rm -rf --one-file-system "$work"
  mkdir -p "$TESTBED_CACHE"
  mmdebstrap --quiet --variant=minbase --include="$TREE_PACKAGES" "$TREE_SUITE" "$work" ${mirror:+"$mirror"} \
    >"$TESTBED_CACHE/tree.log" 2>&1 </dev/null || die "mmdebstrap failed: $(tail -n5 "$TESTBED_CACHE/tree.log")"
  customise_tree "$work" >>"$TESTBED_CACHE/tree.log" 2>&1
  mv "$work" "$tree"
}

customise_tree() {
  local tree=$1
  # Made per host at `up`, so that no two hosts share an identity.
  rm -f "$tree"/etc/ssh/ssh_host_*_key* "$tree/etc/machine-id" "$tree/var/lib/dbus/machine-id"
  # The container's cgroup tree has no controllers here, and crun refuses a pids limit without one.
  mkdir -p "$tree/etc/containers"
  printf '[containers]\npids_limit = 0\n' >"$tree/etc/containers/containers.conf"
  # networkd would replace the address that the testbed gives, and quadlets wait for network-online.target.
  systemctl --root="$tree" mask systemd-networkd.service systemd-networkd.socket systemd-networkd-wait-online.service
  # What a host under test has no use for costs boot time.
  systemctl --root="$tree" mask console-getty.service getty.target systemd-logind.service \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
    podman-auto-update.timer podman-auto-update.service podman-restart.service
  systemctl --root="$tree" enable ssh.service
  # A second port, for the tests of the port. Many tests share a host, and come from one address: those with wrong keys must
  # not have sshd turn the others away.
  printf '%s\n' 'Port 22' "Port $SECOND_SSH_PORT" 'PerSourcePenalties no' 'MaxStartups 100' \
    >"$tree/etc/ssh/sshd_config.d/testbed.conf"
  : >"$tree/etc/resolv.conf"
  add_user "$tree" lab
  printf 'lab ALL=(ALL) NOPASSWD: ALL\n' >"$tree/etc/sudoers.d/lab"
  chmod 0440 "$tree/etc/sudoers.d/lab"
  add_user "$tree" visitor
}

# Two users beside root: `lab` may use sudo without a password, `visitor` may not.
add_user() {
  chroot "$1" useradd --create-home --shell /bin/bash "$2"
  mkdir -p "$1/home/$2/.ssh"
}
