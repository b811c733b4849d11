# shellcheck shell=bash
# The stand-in for jumpstarter-controller, for all namespaces: it gives Exporters their credentials, lets the exporters on
# the lab hosts register, and assigns leases.

# The machine's end of host 1's link, which every host reaches.
JUMPSTARTER_ENDPOINT=10.77.1.1:18082
# Where tests ask it what the exporters report.
JUMPSTARTER_CONTROL=127.0.0.1:18083

# TESTBED_JUMPSTARTER may name the program, built elsewhere.
jumpstarter_path() {
  printf '%s\n' "${TESTBED_JUMPSTARTER:-${CARGO_TARGET_DIR:-$CHECKOUT/target}/debug/jumpstarter-controller}"
}

# With the controller among the packages, whose dependencies are then built for both: they share most of them.
ensure_jumpstarter_built() {
  [[ -z ${TESTBED_JUMPSTARTER:-} ]] || return 0
  cargo_build "$TESTBED_CACHE/jumpstarter.log" --package exporter-set-controller --package testbed-standins \
    --features testbed-standins/controller --bin jumpstarter-controller
}

# Runs what is built: another program takes the place of the one that runs.
ensure_jumpstarter() {
  local program now started=$RUN/jumpstarter.digest
  program=$(jumpstarter_path)
  [[ -x $program ]] || die "there is no program $program; unset TESTBED_JUMPSTARTER to build one"
  now=$(digest "$program")
  if running jumpstarter && [[ $(cat "$started" 2>/dev/null) == "$now" ]]; then return; fi
  stop_jumpstarter
  require_free_port "${JUMPSTARTER_ENDPOINT##*:}" "the stand-in for jumpstarter-controller"
  require_free_port "${JUMPSTARTER_CONTROL##*:}" "the stand-in for jumpstarter-controller"
  printf '%s\n' "$now" >"$started"
  launch jumpstarter env KUBECONFIG="$ADMIN_KUBECONFIG" "$program" --endpoint="$JUMPSTARTER_ENDPOINT" \
    --listen="$JUMPSTARTER_ENDPOINT" --control="$JUMPSTARTER_CONTROL" --ready-file="$RUN/jumpstarter.ready"
  wait_for 30 "readiness of the stand-in for jumpstarter-controller" jumpstarter_is_ready
}

# A process that ended will never be ready: say so at once.
jumpstarter_is_ready() {
  [[ -e $RUN/jumpstarter.ready ]] && return
  ! gone jumpstarter || die "the stand-in for jumpstarter-controller ended: $(tail -n3 "$LOG/jumpstarter.log")"
  return 1
}

stop_jumpstarter() {
  halt jumpstarter
  rm -f "$RUN/jumpstarter.ready" "$RUN/jumpstarter.digest"
}
