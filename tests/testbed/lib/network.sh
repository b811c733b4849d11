# shellcheck shell=bash
# Each lab host N has its own network namespace `labN`, joined to the machine by a veth pair: 10.77.N.1 is the machine,
# 10.77.N.2 the host, whose default route leads to the machine. So every host also reaches 10.77.1.1. Where the machine has
# IPv6, fd77:0:0:N::1 and ::2 are the same two.

# Addresses of hosts that don't exist, or are down, must not leave the machine by its default route.
FENCE=(unreachable 10.77.0.0/16 metric 4278198272)
FENCE_6=(unreachable fd77::/48 metric 4278198272)

has_ipv6() { [[ $(cat /proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null) == 0 ]]; }

ensure_fence() {
  [[ -n $(ip route show type unreachable 10.77.0.0/16) ]] || ip route add "${FENCE[@]}"
  ! has_ipv6 || [[ -n $(ip -6 route show type unreachable fd77::/48) ]] || ip -6 route add "${FENCE_6[@]}"
}

host_address() { printf '10.77.%s.2\n' "$1"; }

host_address_6() { printf 'fd77:0:0:%s::2\n' "$1"; }

netns_exists() { [[ -e /run/netns/lab$1 ]]; }

link_exists() { [[ -e /sys/class/net/ve-lab$1 ]]; }

# The record precedes the namespace: `down` removes only what a record says is ours.
ensure_network() {
  local n=$1
  if ! [[ -e $RUN/lab$n.net ]]; then
    ! netns_exists "$n" || die "network namespace lab$n exists and is not the testbed's: remove it first"
    ! link_exists "$n" || die "link ve-lab$n exists and is not the testbed's: remove it first"
    : >"$RUN/lab$n.net"
  fi
  netns_exists "$n" || ip netns add "lab$n"
  link_exists "$n" || ip link add "ve-lab$n" type veth peer name host0 netns "lab$n"
  ip address replace "10.77.$n.1/24" dev "ve-lab$n"
  ip link set "ve-lab$n" up
  ! has_ipv6 || ip address replace "fd77:0:0:$n::1/64" dev "ve-lab$n" nodad
  # A host reaches this machine and nothing beyond it, also on a machine that forwards.
  echo 0 >"/proc/sys/net/ipv4/conf/ve-lab$n/forwarding"
  ip -n "lab$n" address replace "10.77.$n.2/24" dev host0
  ip -n "lab$n" link set lo up
}

# The host's end of the link goes down, so that the machine keeps its address and its route: packets to the host are lost,
# as behind a pulled cable, and no end of a connection is told.
cut_link() { ip -n "lab$1" link set host0 down; }

join_link() {
  ip -n "lab$1" link set host0 up
  # Both were lost with the link.
  ip -n "lab$1" route replace default via "10.77.$1.1"
  ! has_ipv6 || ip -n "lab$1" address replace "$(host_address_6 "$1")/64" dev host0 nodad
}

link_is_up() { netns_exists "$1" && ip -n "lab$1" link show dev host0 2>/dev/null | grep -q '[<,]UP[,>]'; }

remove_network() {
  local n=$1
  [[ -e $RUN/lab$n.net ]] || return 0
  # The link goes with its peer's namespace, but only some time later.
  ! link_exists "$n" || ip link delete "ve-lab$n"
  ! netns_exists "$n" || ip netns delete "lab$n"
  rm -f "$RUN/lab$n.net"
}

remove_fence() {
  ip route delete "${FENCE[@]}" 2>/dev/null || true
  ip -6 route delete "${FENCE_6[@]}" 2>/dev/null || true
}
