# Steps "remove-files", "remove-volume" and "reload".

remove_files() {
	assert_files_ours
	removed=0
	for file in "$quadlets/$serving.container" "$quadlets/$runtime.container" "$quadlets/$net.container" "$config"; do
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
	known=$(generated_units)
	for unit in $net $runtime $serving; do
		unit_facts "$unit"
		if [ "$load" != not-found ]; then known="$known $unit"; fi
	done
	detail='nothing is left'
	if [ -n "$known" ]; then
		try HostScriptFailed 'systemctl daemon-reload' systemctl daemon-reload
		changed=1
	fi
	left=
	for unit in $net $runtime $serving; do
		rm -f "$run/effective/$unit"
		unit_facts "$unit"
		if [ "$active" = failed ]; then
			systemctl reset-failed "$unit.service" 2>/dev/null
			unit_facts "$unit"
		fi
		if [ "$load" != not-found ] || [ "$active" != inactive ]; then left="$left $unit.service ($load, $active)"; fi
		for file in "$quadlets/$unit.container" "$quadlets/.$unit.container.tmp"; do
			if [ -e "$file" ]; then left="$left $file"; fi
		done
	done
	for file in "$config" "$configs/.$exporter.yaml.tmp" "$staging" "$staged" "$run/$exporter.start"; do
		if [ -e "$file" ]; then left="$left $file"; fi
	done
	left="$left$(generated_units)"
	find_containers
	find_volume
	left="$left$containers${mountpoint:+ $volume}"
	case $left in
	*[!\ ]*) fail HostScriptFailed "still on the host: $left" ;;
	esac
}
