# What every batch starts with. Runs in any POSIX shell (tried: dash, bash, busybox), as root, with
# no input. Set before: root (empty but in tests), exporter, namespace, uid, lease_uid, epoch, stripe.
#
# Output: one line of JSON per step, each written before the next step starts. SIGPIPE keeps its
# default action: when nobody reads any more (the controller is gone, the connection is cut), the
# next report ends the script, so that a controller which has crashed acts no further than that.
set -u
umask 077
LC_ALL=C
HOME=/root
PATH=${PATH:-/usr/bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL HOME PATH
exec </dev/null

quadlets=$root/etc/containers/systemd
configs=$root/etc/jumpstarter/exporters
generated=$root/run/systemd/generator
run=$root/run/exporter-set-controller
state=$root/var/lib/exporter-set-controller
volumes=$root/var/lib/containers/storage/volumes
fence=$state/epoch/$lease_uid

net=$exporter-net
runtime=$exporter-runtime
serving=$exporter-exporter
stager=$exporter-stage
volume=jumpstarter-$exporter-shared
units="$net.service $runtime.service $serving.service"
files="$quadlets/$net.container $quadlets/$runtime.container $quadlets/$serving.container"
config=$configs/$exporter.yaml
staging=$run/staging/$exporter
staged=$state/staged/$exporter
nl='
'
# Left unquoted below, as lists, are only names and paths without blanks and wildcards.
step=
changed=
reloading=
files_ours=
containers_gone=
image_ids=

# --- Reports -------------------------------------------------------------------------------------

# Prints "$1" as a JSON string. Plain text, which is nearly everything, takes no process.
json_string() {
	case $1 in
	*[!A-Za-z0-9\ _.,:\;/@%=+\(\)\[\]\'-]*)
		printf '"'
		printf '%s\n' "$1" |
			tr '\001-\010\013-\037\177' ' ' |
			sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/	/\\t/g' -e '$!s/$/\\n/' |
			tr -d '\n'
		printf '"'
		;;
	*) printf '"%s"' "$1" ;;
	esac
}

begin() {
	step=$1
	changed=
	detail=
	fence_holds
}

# The step is done; "$detail" says what was there or was done.
finish() {
	outcome=unchanged
	if [ -n "$changed" ]; then outcome=changed; fi
	printf '{"step":"%s","outcome":"%s","detail":%s}\n' "$step" "$outcome" "$(json_string "$detail")" || exit 1
	step=
}

# Ends the batch: fail CLASS TEXT. Full disks are told apart here, whatever tripped over them.
fail() {
	class=$1
	case $2 in
	*'No space left on device'* | *'Disk quota exceeded'*) class=DiskFull ;;
	esac
	text=$(json_string "$(printf '%s' "$2" | tail -c 2000)")
	if [ -n "$step" ]; then
		printf '{"step":"%s","outcome":"failed","class":"%s","detail":%s}\n{"batch":"stopped"}\n' "$step" "$class" "$text"
	else
		printf '{"batch":"failed","class":"%s","detail":%s}\n' "$class" "$text"
	fi
	settle
	exit 0
}

# Reloads systemd beside what follows; settle waits for it, and succeeds if the reload did.
reload_beside() {
	settle
	systemctl daemon-reload >/dev/null 2>&1 &
	reloading=$!
}

settle() {
	if [ -z "$reloading" ]; then return; fi
	wait "$reloading"
	code=$?
	reloading=
	return "$code"
}

# try CLASS WHAT COMMAND…: runs the command, whose words explain a failure.
try() {
	class=$1 what=$2
	shift 2
	words=$("$@" 2>&1) || fail "$class" "$what: $words"
}

# --- Commands ------------------------------------------------------------------------------------

# Children must not inherit the lock (9): conmon outlives us.
podman() { command podman "$@" 9>&-; }
systemctl() { command systemctl "$@" 9>&-; }

# until_true SECONDS COMMAND…: asks again every 0.1 s until the command succeeds or time is up.
until_true() {
	deadline=$(($(date +%s) + $1))
	shift
	until "$@"; do
		if [ "$(date +%s)" -ge "$deadline" ]; then return 1; fi
		sleep 0.1
	done
}

# --- Fence and lock ------------------------------------------------------------------------------

# A leader that was followed by another one must not act any more: the host remembers the highest
# epoch it has seen for each leader Lease, across reboots. Looked at before every step.
fence_holds() {
	seen=0
	if [ -r "$fence" ]; then read -r seen <"$fence" || seen=0; fi
	case $seen in '' | *[!0-9]*) seen=0 ;; esac
	if [ "$epoch" -lt "$seen" ]; then
		step=
		fail Fenced "epoch $epoch is over, this host has seen epoch $seen"
	fi
}

raise_fence() {
	exec 8>"$run/epoch.lock"
	flock -w 20 8 || fail Timeout "the lock $run/epoch.lock is held for more than 20 s"
	fence_holds
	if [ "$epoch" -gt "$seen" ]; then
		words=$({ printf '%s\n' "$epoch" >"$fence.tmp" && sync "$fence.tmp" && mv -f "$fence.tmp" "$fence"; } 2>&1) ||
			fail HostScriptFailed "can't write $fence: $words"
	fi
	exec 8>&-
}

# One script at a time works on an instance; instances of a host don't wait for each other (but for
# those few that share one of 256 lock files, so that no file per instance is left behind).
lock() {
	exec 9>"$run/lock/$stripe"
	flock -w 120 9 || fail Timeout "another batch has held the lock $run/lock/$stripe for more than 120 s"
}

open_batch() {
	printf '{"batch":"begun"}\n' || exit 1
	[ "$(id -u)" = 0 ] || fail PermissionDenied 'the login is not root'
	for tool in podman systemctl flock sha256sum; do
		(unset -f podman systemctl && command -v "$tool") >/dev/null || case $tool in
		podman) fail PodmanUnsuitable 'podman is not installed' ;;
		*) fail HostScriptFailed "$tool is not installed" ;;
		esac
	done
	try HostScriptFailed "can't make $run and $state" \
		mkdir -p "$run/lock" "$run/staging" "$run/effective" "$state/epoch" "$state/staged"
	raise_fence
}

close_batch() {
	settle
	printf '{"batch":"done"}\n'
}

# --- Ownership -----------------------------------------------------------------------------------

# What carries another Exporter's UID belongs to somebody else; what carries none is adopted. Once
# per batch is enough: it holds the lock.
assert_files_ours() {
	if [ -n "$files_ours" ]; then return; fi
	for other in $(sed -n '/^Label=/s/.*jumpstarter\.dev\/exporter-uid=\([A-Za-z0-9-]*\).*/\1/p' $files 2>/dev/null); do
		if [ "$other" != "$uid" ]; then
			fail NameConflict "$(grep -l -F "exporter-uid=$other" $files 2>/dev/null | head -n 1) belongs to the Exporter with UID $other, not to $uid"
		fi
	done
	files_ours=1
}

# Sets containers to the names of those that exist, all ours.
find_containers() {
	found=$(podman ps --all --filter "name=^$exporter-(net|runtime|exporter|stage)\$" \
		--format '{{.Names}} {{index .Labels "jumpstarter.dev/exporter-uid"}}' 2>&1) ||
		fail PodmanUnsuitable "podman ps: $found"
	containers=
	while read -r name other; do
		# The filter is a regular expression, in which a dot of the name stands for anything.
		case $name in "$net" | "$runtime" | "$serving" | "$stager") ;; *) continue ;; esac
		case $other in
		'' | "$uid" | '<no value>') ;;
		*) fail NameConflict "the container $name belongs to the Exporter with UID $other, not to $uid" ;;
		esac
		containers="$containers $name"
	done <<-END
		$found
	END
}

# Removes what is left of our containers; those that join a network before the one that holds it.
remove_containers() {
	if [ -n "$containers_gone" ]; then return; fi
	find_containers
	if [ -n "$containers" ]; then
		changed=1
		try HostScriptFailed 'podman rm' podman rm --force --ignore --time 2 "$serving" "$runtime" "$stager" "$net"
	fi
	containers_gone=1
}

# Sets mountpoint to the volume's, or to nothing if there is no such volume.
find_volume() {
	mountpoint=
	found=$(podman volume inspect --format '{{.Mountpoint}} {{index .Labels "jumpstarter.dev/exporter-uid"}}' "$volume" 2>&1) ||
		case $found in
		*'no such volume'*) return 0 ;;
		*) fail HostScriptFailed "podman volume inspect: $found" ;;
		esac
	mountpoint=${found%% *}
	other=${found#"$mountpoint"}
	other=${other# }
	case $other in
	'' | "$uid" | '<no value>') ;;
	*) fail NameConflict "the volume $volume belongs to the Exporter with UID $other, not to $uid" ;;
	esac
}

# --- Files ---------------------------------------------------------------------------------------

# file_is PATH MODE SHA256: the file is there with that content, and root's.
file_is() {
	[ -f "$1" ] && [ ! -L "$1" ] || return 1
	[ "$(stat -c '%a %u:%g' "$1")" = "$2 0:0" ] || return 1
	sum=$(sha256sum <"$1") && [ "${sum%% *}" = "$3" ]
}

# put_file PATH MODE SHA256 CONTENT: makes it so. The content is never visible under its name before
# it is complete, on the disk, and has its owner and mode; nor to anybody but root before that.
put_file() {
	dir=${1%/*}
	temp=$dir/.${1##*/}.tmp
	{
		rm -f "$temp" &&
			printf '%s' "$4" | cat >"$temp" &&
			chown 0:0 "$temp" && chmod "$2" "$temp" && file_is "$temp" "$2" "$3" &&
			sync "$temp" && mv -f -T "$temp" "$1" && sync "$dir"
	} 2>&1
}
