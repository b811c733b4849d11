# Steps "remove-files", "remove-volume" and "reload".

remove_files() {
	assert_files_ours
	removed=0
	for file in $files "$config"; do
		rm -f "${file%/*}/.${file##*/}.tmp"
		if [ ! -e "$file" ] && [ ! -L "$file" ]; then continue; fi
		words=$(rm -f "$file" 2>&1) || fail HostScriptFailed "can't remove $file: $words"
		removed=$((removed + 1))
	done
	rm -rf "$staging"
	rm -f "$run/$exporter.start"
	detail='no file was there'
	if [ "$removed" -eq 0 ]; then return; fi
	for dir in "$quadlets" "$configs"; do
		if [ -d "$dir" ]; then sync "$dir"; fi
	done
	changed=1
	detail="$removed files removed"
}

remove_volume() {
	remove_containers
	find_volume
	rm -f "$staged" "$staged.tmp"
	detail='no volume was there'
	if [ -z "$mountpoint" ]; then return; fi
	try HostScriptFailed "podman volume rm $volume" podman volume rm --force "$volume"
	changed=1
	detail='volume removed'
}

generated_units() {
	for unit in $net $runtime $serving; do
		for file in "$generated/$unit.service" "$generated"/*/"$unit.service"; do
			if [ -e "$file" ] || [ -L "$file" ]; then printf '%s ' "$file"; fi
		done
	done
}

# Has systemd forget the units, and proves that nothing of the instance is left.
reload_and_prove() {
	detail='nothing is left'
	left=$(generated_units)
	visit_units note_left
	if [ -n "$left" ]; then
		reload_beside
		changed=1
	fi
	find_containers
	find_volume
	settle || fail HostScriptFailed 'systemctl daemon-reload failed'
	left="$containers${mountpoint:+ $volume} $(generated_units)"
	for unit in $net $runtime $serving; do
		rm -f "$run/effective/$unit"
		note_files "$quadlets/$unit.container" "$quadlets/.$unit.container.tmp"
	done
	note_files "$config" "$configs/.$exporter.yaml.tmp" "$staging" "$staged" "$run/$exporter.start"
	if [ -n "$changed" ]; then visit_units note_left; fi
	case $left in
	*[!\ ]*) fail HostScriptFailed "still on the host: $left" ;;
	esac
}

note_left() {
	if [ "$active" = failed ]; then
		systemctl reset-failed "$unit.service" 2>/dev/null
		active=inactive
	fi
	if [ "$load" != not-found ] || [ "$active" != inactive ]; then left="$left $unit.service ($load, $active)"; fi
}

note_files() {
	for file; do
		if [ -e "$file" ] || [ -L "$file" ]; then left="$left $file"; fi
	done
}
