# Step "connect": Podman and its generator, what quadlets with RunInit= need, devices, images.

preflight_host() {
	# podman info says more, and takes five times as long.
	found=$(podman --version 2>&1) || fail PodmanUnsuitable "podman --version: $found"
	version=${found##* }
	major=${version%%.*}
	minor=${version#*.}
	minor=${minor%%.*}
	case $major$minor in '' | *[!0-9]*) fail PodmanUnsuitable "podman --version says $found" ;; esac
	if [ "$major" -lt 4 ] || { [ "$major" -eq 4 ] && [ "$minor" -lt 9 ]; }; then
		fail PodmanUnsuitable "Podman is $version, needed is 4.9 or newer"
	fi
	find_generator
	[ -n "$generator" ] || fail PodmanUnsuitable "Podman $version is here without its quadlet generator"
	[ -n "$(first_executable /usr/libexec/podman/catatonit /usr/lib/podman/catatonit /usr/local/libexec/podman/catatonit /usr/bin/catatonit)" ] ||
		fail PodmanUnsuitable 'catatonit is not installed (Debian: apt install catatonit)'
	detail="Podman $version"
}

first_executable() {
	for file; do
		if [ -x "$root$file" ]; then
			printf '%s' "$root$file"
			return
		fi
	done
}

find_generator() {
	generator=$(first_executable /usr/libexec/podman/quadlet /usr/lib/podman/quadlet /usr/local/libexec/podman/quadlet \
		/usr/lib/systemd/system-generators/podman-system-generator /lib/systemd/system-generators/podman-system-generator)
}

preflight_device() {
	if [ -c "$root$1" ] || [ -b "$root$1" ] || [ -d "$root$1" ]; then return; fi
	if [ -e "$root$1" ]; then fail DeviceMissing "$1 is on the host, but is no device"; fi
	fail DeviceMissing "$1 is not on the host"
}

# preflight_images, then REFERENCE POLICY UNIT for each image.
preflight_images() {
	policies='' references=''
	for word; do
		case $word in
		IfNotPresent | Never | Always) policies=$policies$word ;;
		exporter-set-pull-*) ;;
		*) references="$references $word" ;;
		esac
	done
	# One question for all of them, if none has to be pulled anyway.
	case $policies in
	*Always*) ;;
	*)
		if image_ids=$(podman image inspect --format '{{.Id}}' $references 2>/dev/null); then
			image_ids="$references:$nl$image_ids"
			return
		fi
		;;
	esac
	while [ $# -ge 3 ]; do
		preflight_image "$1" "$2" "$3"
		shift 3
	done
}

preflight_image() {
	before=$(podman image inspect --format '{{.Id}}' "$1" 2>/dev/null)
	if [ -n "$before" ] && [ "$2" != Always ]; then return; fi
	if [ "$2" = Never ]; then
		fail ImageUnavailable "$1 is not on the host and must not be pulled (imagePullPolicy: Never)"
	fi
	pull "$1" "$3"
	after=$(podman image inspect --format '{{.Id}}' "$1" 2>&1) || fail ImageUnavailable "$1 was pulled, and is not on the host: $after"
	if [ "$after" = "$before" ]; then return; fi
	changed=1
	detail="$detail, pulled $1"
}

# A pull is a transient unit: a cut connection doesn't stop it, and a second batch that wants the
# same image waits for it instead of pulling beside it (and then asks again, which is cheap).
pull() {
	started=$(date '+%Y-%m-%d %H:%M:%S')
	while :; do
		words=$(systemd-run --unit="$2" --collect --wait --quiet --property=RuntimeMaxSec=3600 \
			--property=SyslogIdentifier="$2" -- podman pull --quiet "$1" 2>&1 9>&-) && return
		case $words in
		*'already loaded'* | *'already exists'* | *'has a fragment file'*) ;;
		*) break ;;
		esac
		until_true 3600 pull_is_over "$2" || fail Timeout "$1 is still being pulled"
	done
	said=$(journalctl --quiet --no-pager --since "$started" -t "$2" -n 3 -o cat 2>/dev/null)
	fail ImageUnavailable "podman pull $1: ${said:-$words}"
}

pull_is_over() { ! systemctl is-active --quiet "$1.service"; }
