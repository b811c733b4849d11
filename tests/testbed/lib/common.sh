# shellcheck shell=bash
# What every part of the testbed uses: paths, messages, deadlines, and a record of the processes it started.

# Where built things are kept; keyed by a hash of their inputs, so that a change rebuilds.
TESTBED_CACHE=$(realpath -m "${TESTBED_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/exporter-set-controller-testbed}")
# Everything of one run: pids, overlays, etcd's data, keys, the env file. Overlays can't lie on an overlay filesystem,
# which is what a container's /tmp often is.
TESTBED_STATE=$(realpath -m "${TESTBED_STATE:-/var/tmp/exporter-set-controller-testbed}")
RUN=$TESTBED_STATE/run
LOG=$TESTBED_STATE/log
ENV_FILE=$TESTBED_STATE/env
MARKER=$TESTBED_STATE/.exporter-set-controller-testbed

say() { printf 'testbed: %s\n' "$*" >&2; }

die() {
  say "error: $*"
  exit 1
}

# phase WHAT COMMAND…: runs it and says in one line how long it took; until then, every half minute, that it goes on.
# The command must not stand in a condition: there `set -e` would be off inside it.
phase() {
  # Behind the `&` it would be the reminder's own.
  local what=$1 begin=${EPOCHREALTIME/./} reminder self=$BASHPID
  shift
  remind "$what" "$self" >/dev/null 9>&- &
  reminder=$!
  disown "$reminder"
  "$@"
  # A caller that ignores SIGTERM while it cleans up hands that down.
  kill -KILL "$reminder" 2>/dev/null || true
  local took=$(((${EPOCHREALTIME/./} - begin) / 1000))
  say "$(printf '%s: %d.%d s' "$what" $((took / 1000)) $((took % 1000 / 100)))"
}

# remind WHAT PID: until that process is gone. It waits by a read that nobody answers: a `sleep` would outlive it.
remind() {
  local begin=$SECONDS said=0 never
  exec {never}<> <(:)
  while kill -0 "$2" 2>/dev/null; do
    read -rt 1 -u "$never" || true
    ((SECONDS - begin < said + 30)) || { said=$((SECONDS - begin)) && say "$1: still at it after $said s"; }
  done
}

# wait_for SECONDS WHAT COMMAND…: polls until the command succeeds; dies when the deadline passes.
wait_for() {
  local deadline=$((SECONDS + $1)) seconds=$1 what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || die "$what: not within $seconds s (logs: $LOG)"
    sleep 0.05
  done
}

# join_all PID…: waits for background jobs; fails when one of them did.
join_all() {
  local pid failed=0
  for pid in "$@"; do
    wait "$pid" || failed=1
  done
  ((failed == 0)) || die "a part of the testbed did not come up (logs: $LOG)"
}

# digest FILE…: one short hash over names-independent contents.
digest() { sha256sum -- "$@" | cut -d' ' -f1 | sha256sum | cut -c1-16; }

# cargo_build LOG OPTION…: Cargo decides whether there is anything to build.
cargo_build() {
  local log=$1 cargo
  shift
  cargo=$(find_cargo)
  (cd "$CHECKOUT" && "$cargo" build "$@") >"$log" 2>&1 </dev/null || die "cargo build failed: $(tail -n20 "$log")"
}

find_cargo() {
  command -v cargo || { [[ -x $HOME/.cargo/bin/cargo ]] && printf '%s\n' "$HOME/.cargo/bin/cargo"; } ||
    die "no cargo to build the stand-ins with: install Rust by rustup (https://rustup.rs)"
}

# One change of the testbed at a time. Daemons are started with 9>&-, or they would hold the lock for ever.
lock_state() {
  [[ $EUID == 0 ]] || die "the testbed needs root: it mounts, makes network namespaces and boots systemd"
  exec 9>/run/exporter-set-controller-testbed.lock
  flock --nonblock 9 || say "waiting for another testbed command to end"
  flock --wait 1800 9 || die "another testbed command has not ended for half an hour"
}

# Only a folder that we made ourselves is ever filled, and later removed.
make_state() {
  if [[ -d $TESTBED_STATE && ! -e $MARKER ]] && [[ -n $(ls -A "$TESTBED_STATE") ]]; then
    die "TESTBED_STATE=$TESTBED_STATE holds something else; name an empty or a new folder"
  fi
  mkdir -p "$TESTBED_STATE"
  boot_id >>"$MARKER"
  chmod 0755 "$TESTBED_STATE"
  mkdir -p "$RUN" "$LOG"
}

boot_id() { cat /proc/sys/kernel/random/boot_id; }

# True when the state is of this boot of the machine: after a reboot no recorded pid, mount or link means anything.
state_is_current() { [[ -e $MARKER ]] && [[ $(tail -n1 "$MARKER") == "$(boot_id)" ]]; }

is_up() { state_is_current && [[ -s $ENV_FILE ]]; }

require_up() { is_up || die "the testbed is not up; run: $TESTBED_SCRIPT up"; }

# --- processes -------------------------------------------------------------------------------------------------------
# A record is "PID START-TIME"; the start time (clock ticks since boot) tells our process from a later one with its pid.

start_time() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # The second field is the program's name in parentheses and may hold blanks: count from its end.
  read -r -a stat <<<"${stat##*) }"
  printf '%s\n' "${stat[19]}"
}

# launch NAME COMMAND…: starts a daemon. It writes its record itself before it becomes the command, so that there is no
# moment at which it runs unrecorded.
launch() {
  local name=$1
  shift
  # shellcheck disable=SC2016 # expanded by the inner shell
  setsid bash -c '
    stat=$(<"/proc/$$/stat"); read -r -a stat <<<"${stat##*) }"
    printf "%s %s\n" "$$" "${stat[19]}" >"$1.tmp" && mv "$1.tmp" "$1"
    shift; exec "$@"' launch "$RUN/$name.pid" "$@" >>"$LOG/$name.log" 2>&1 </dev/null 9>&- &
  wait_for 10 "$name: its pid" test -s "$RUN/$name.pid"
}

# pid_of NAME: its pid when it runs and is ours.
pid_of() {
  local pid begun
  [[ -s $RUN/$1.pid ]] && read -r pid begun <"$RUN/$1.pid" || return 1
  [[ $(start_time "$pid") == "$begun" ]] || return 1
  # A zombie holds its pid until its parent reads it.
  [[ $(process_state "$pid") != Z ]] && printf '%s\n' "$pid"
}

process_state() { sed -nE 's/^State:\s+(.).*/\1/p' "/proc/$1/status" 2>/dev/null; }

running() { pid_of "$1" >/dev/null; }

gone() { ! running "$1"; }

# halt NAME [SIGNAL]: ends a process of ours, by force after 5 s, and forgets it.
halt() {
  local name=$1 signal=${2:-TERM} pid
  if pid=$(pid_of "$name"); then
    kill -s "$signal" "$pid" 2>/dev/null || true
    for _ in {1..100}; do
      running "$name" || break
      sleep 0.05
    done
    if pid=$(pid_of "$name"); then
      kill -s KILL "$pid" 2>/dev/null || true
      wait_for 10 "end of $name" gone "$name"
    fi
  fi
  rm -f "$RUN/$name.pid"
}
