# shellcheck shell=bash
# What the testbed needs of the machine.

# need COMMAND PACKAGE…: notes the packages when the command is missing.
need() {
  command -v "$1" >/dev/null && return
  shift
  MISSING+=("$@")
}

install_packages() {
  local -a MISSING=()
  need systemd-nspawn systemd-container
  need ip iproute2
  need ssh openssh-client
  need openssl openssl
  need pgrep procps
  need curl curl
  need cc gcc libc6-dev
  [[ -d $(tree_path) ]] || need mmdebstrap mmdebstrap debian-archive-keyring
  ((${#MISSING[@]})) || return 0
  command -v apt-get >/dev/null || die "missing: ${MISSING[*]}; install them (only apt is known here)"
  phase "packages (${MISSING[*]})" apt_install "${MISSING[@]}"
}

apt_install() {
  mkdir -p "$TESTBED_CACHE"
  local log=$TESTBED_CACHE/apt.log
  {
    apt-get update -q &&
      DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
  } >"$log" 2>&1 </dev/null || die "apt-get install $* failed: $(tail -n3 "$log")"
}
