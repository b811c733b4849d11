# Step "create-volume": the volume, and what must be in it before the runtime starts.

# create_volume EXPORTER_IMAGE RUNTIME_IMAGE WIPE
create_volume() {
	detail='volume is up to date'
	# A look at the disk saves asking Podman about a volume that can't be there.
	mountpoint=
	if [ -d "$volumes/$volume" ]; then find_volume; fi
	if [ -z "$mountpoint" ]; then
		rm -f "$staged"
		try HostScriptFailed 'podman volume create' podman volume create \
			--label jumpstarter.dev/managed-by=qemu-ssh \
			--label "jumpstarter.dev/exporter=$exporter" \
			--label "jumpstarter.dev/namespace=$namespace" \
			--label "jumpstarter.dev/exporter-uid=$uid" "$volume"
		mountpoint=$volumes/$volume/_data
		changed=1
		detail='volume created'
	elif [ "$3" = wipe ]; then
		wipe_volume
	fi
	if [ "$mountpoint" != "$volumes/$volume/_data" ] || [ ! -d "$mountpoint" ]; then
		fail PodmanUnsuitable "Podman does not keep the volume at $volumes/$volume/_data, where the units expect it"
	fi
	find_images "$1" "$2"
	if staged_is_current; then return; fi
	stage "$1" "$2"
	changed=1
	detail="$detail, jumpstarter-exec staged"
}

# Sets images to the IDs of both; the preflight of this batch may have seen them.
find_images() {
	case $image_ids in
	" $1 $2:"*) images=${image_ids#*:"$nl"} ;;
	*) images=$(podman image inspect --format '{{.Id}}' "$1" "$2" 2>&1) || fail ImageUnavailable "$images" ;;
	esac
	images=$(printf '%s' "$images" | tr '\n' ' ')
}

# Nothing of the last user may stay. Whoever could still write is stopped first.
wipe_volume() {
	stop_units
	rm -f "$staged"
	words=$(find "$mountpoint" -mindepth 1 -delete 2>&1) || fail HostScriptFailed "can't empty $mountpoint: $words"
	changed=1
	detail='volume wiped'
}

staged_sum() { sha256sum <"$mountpoint/jumpstarter-exec"; }

# The record is outside the volume, where the containers can't forge it: image IDs and digest.
staged_is_current() {
	[ -f "$staged" ] && [ -x "$mountpoint/jumpstarter-exec" ] && [ ! -L "$mountpoint/jumpstarter-exec" ] || return 1
	[ "$(cat "$staged")" = "$images$(staged_sum)" ]
}

# Copies inside a container, where an image's symlinks lead nowhere else. UEFI firmware comes along
# if the runtime image has it; QEMU's driver looks for it beside the disks, under these names.
stage() {
	rm -f "$staged"
	words=$(stage_with "$1" --mount "type=image,source=$2,destination=/firmware-from" 2>&1) ||
		words=$(stage_with "$1" 2>&1) ||
		fail ImageUnavailable "can't copy /jumpstarter/bin/jumpstarter-exec out of $1: $words"
	sync -f "$mountpoint" || fail HostScriptFailed "can't sync $mountpoint"
	{ printf '%s\n' "$images$(staged_sum)" >"$staged.tmp" && mv -f "$staged.tmp" "$staged"; } ||
		fail HostScriptFailed "can't write $staged"
}

stage_with() {
	image=$1
	shift
	podman run --rm --replace --name "$stager" --pull=never --network=none --no-hosts --log-driver=none --cgroups=disabled \
		--label "jumpstarter.dev/exporter-uid=$uid" --user 0:0 --volume "$volume:/shared:z" "$@" --entrypoint sh "$image" -c "$stage_inside"
}

# shellcheck disable=SC2016 # expands inside the container
stage_inside='
put() { cp "$1" "/shared/.$2.tmp" && chmod "$3" "/shared/.$2.tmp" && mv -f "/shared/.$2.tmp" "/shared/$2"; }
put /jumpstarter/bin/jumpstarter-exec jumpstarter-exec 755 || exit 1
for dir in /usr/share/OVMF /usr/share/edk2/ovmf /usr/share/edk2/x64; do
	for size in "" _4M .4m; do
		code=/firmware-from$dir/OVMF_CODE$size.fd
		vars=/firmware-from$dir/OVMF_VARS$size.fd
		if [ -f "$code" ] && [ -f "$vars" ]; then
			put "$code" OVMF_CODE.fd 644 && { [ -f /shared/OVMF_VARS.fd ] || put "$vars" OVMF_VARS.fd 644; }
			exit 0
		fi
	done
done
exit 0'
