# shellcheck shell=bash
# What the demo prints: titles, commands with their output, and the controller's log as lines for people.

# Colours, where somebody looks and hasn't asked for none.
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
  BOLD=$'\e[1m' DIM=$'\e[2m' GREEN=$'\e[32m' YELLOW=$'\e[33m' RED=$'\e[31m' PLAIN=$'\e[0m'
else
  BOLD='' DIM='' GREEN='' YELLOW='' RED='' PLAIN=''
fi

title() { printf '\n%s%s%s\n' "$BOLD" "$*" "$PLAIN"; }

command_line() { printf '%s$ %s%s\n' "$DIM" "$*" "$PLAIN"; }

fail() {
  printf '%sdemo: %s%s\n' "$RED" "$*" "$PLAIN" >&2
  exit 1
}

value() { sed -n "s/^$1=//p" "$WORK/env"; }

kube() { "$TESTBED" kubectl --namespace="$NAMESPACE" "$@"; }

ssh_host() { "$TESTBED" ssh 1 "$@" </dev/null; }

# shown NAME COMMAND ARGUMENT…: prints the command line, with NAME for the command, then runs it.
shown() {
  local name=$1
  shift
  command_line "$name ${*:2}"
  "$@"
}

on_host() {
  command_line "$1"
  ssh_host "$1"
}

# --- the controller's log ----------------------------------------------------------------------------------------------

# field NAME LINE: the text or bare word that a line of JSON has under that name.
field() {
  local text="\"$1\":\"(([^\"\\\\]|\\\\.)*)\"" word="\"$1\":([^,}\"]+)"
  if [[ $2 =~ $text ]] || [[ $2 =~ $word ]]; then printf '%s\n' "${BASH_REMATCH[1]}"; fi
}

# Milliseconds of the day in an RFC 3339 time.
clock() {
  local hours minutes seconds millis
  IFS=:. read -r hours minutes seconds millis <<<"${1:11:12}"
  printf '%s\n' $((((10#$hours * 60 + 10#$minutes) * 60 + 10#$seconds) * 1000 + 10#$millis))
}

begin_clock() { CLOCK_BEGIN=$(clock "$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)"); }

# follow_log FILE PID: from now on `follow` reads it; it ends with the process.
follow_log() { exec {EVENTS}< <(exec tail --lines=+1 --follow --sleep-interval=0.1 --pid="$2" "$1"); }

# follow PATTERN SECONDS: prints what the log tells until a line of it matches.
follow() {
  local deadline=$((SECONDS + $2)) line part begun=''
  while ((SECONDS < deadline)); do
    if IFS= read -rt 1 -u "$EVENTS" part; then
      line=$begun$part begun=''
      narrate "$line"
      if [[ $line == *"$1"* ]]; then return; fi
    elif (($? > 128)); then
      # The rest of the line is still to come.
      begun+=$part
    else
      fail "the controller has ended: $(tail -n3 "$WORK/controller.err" "$WORK/controller.log")"
    fi
  done
  fail "within $2 s the controller's log has had no $1"
}

narrate() {
  local line=$1 from detail
  case $line in
    *'"msg":"transition"'*)
      from=$(field from "$line")
      told "$line" "$GREEN" "$(printf '%-12s → %-12s %s' "${from:-(new)}" "$(field to "$line")" "$(field host "$line")")"
      ;;
    *'"msg":"step done"'*)
      detail=$(field detail "$line")
      told "$line" "$DIM" "  $(field step "$line"): ${detail:-done}"
      ;;
    *'"level":"warn"'*) told "$line" "$YELLOW" "$(field msg "$line")" ;;
    *'"level":"error"'*) told "$line" "$RED" "$(field msg "$line")" ;;
  esac
}

# told LINE COLOUR TEXT: the time of day, the seconds since the manifests were applied, the exporter, the text.
told() {
  local at
  at=$(($(clock "$(field ts "$1")") - CLOCK_BEGIN))
  ((at >= 0)) || at=0
  printf '%s%s %+4d.%03d s  %-22s %.100s%s\n' "$2" "$(field ts "$1" | cut -c12-23)" $((at / 1000)) $((at % 1000)) \
    "$(field exporter "$1")" "$3" "$PLAIN"
}
