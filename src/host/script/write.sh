# Steps "write-config" and "write-quadlets".

count=0
pending=
wanted=' '

public_dir() {
	if [ -d "$1" ]; then return; fi
	words=$(umask 022 && mkdir -p "$1" 2>&1) || fail HostScriptFailed "can't make $1: $words"
}

# write_config PATH MODE SHA256 CONTENT
write_config() {
	assert_files_ours
	detail="$1 is up to date"
	if file_is "$1" "$2" "$3"; then return; fi
	if [ ! -d "$configs" ]; then
		# The directory of tokens is root's; the one above it may hold other things.
		public_dir "${configs%/*}"
		words=$(mkdir "$configs" 2>&1) || fail HostScriptFailed "can't make $configs: $words"
	fi
	words=$(put_file "$@") || fail HostScriptFailed "can't write $1: $words"
	changed=1
	detail="$1 written"
}

# stage_quadlet PATH MODE SHA256 CONTENT: puts the file where only the dry run sees it, unless it is
# in place already.
stage_quadlet() {
	count=$((count + 1))
	wanted="$wanted$1 "
	if file_is "$1" "$2" "$3"; then return; fi
	if [ -z "$pending" ]; then
		assert_files_ours
		rm -rf "$staging"
		mkdir -p "$staging" || fail HostScriptFailed "can't make $staging"
	fi
	words=$({ printf '%s' "$4" | cat >"$staging/${1##*/}"; } 2>&1) || fail HostScriptFailed "can't write to $staging: $words"
	pending="$pending$1 $2 $3$nl"
}

install_quadlets() {
	assert_files_ours
	detail="$count quadlets are up to date"
	surplus=''
	for file in $files; do
		case $wanted in *" $file "*) continue ;; esac
		if [ -e "$file" ]; then surplus="$surplus $file"; fi
	done
	if [ -z "$pending$surplus" ]; then return; fi
	if [ -n "$pending" ]; then write_pending; fi
	if [ -n "$surplus" ]; then
		# An earlier revision had it: on the host's network there is no holder of one.
		words=$(rm -f $surplus 2>&1 && sync "$quadlets" 2>&1) || fail HostScriptFailed "can't remove$surplus: $words"
	fi
	changed=1
	# What comes next, staging into the volume, takes as long as a reload: both at once.
	reload_beside
}

write_pending() {
	dry_run
	public_dir "$quadlets"
	written=0
	while read -r path mode sum; do
		if [ -z "$path" ]; then continue; fi
		# The "x" keeps line ends that a command substitution would drop.
		content=$(cat "$staging/${path##*/}" && printf x)
		words=$(put_file "$path" "$mode" "$sum" "${content%x}") || fail HostScriptFailed "can't write $path: $words"
		written=$((written + 1))
	done <<-END
		$pending
	END
	rm -rf "$staging"
	detail="$written of $count quadlets written"
}

# The generator's verdict, on these files alone: a unit counts if it comes out by name. Its exit code
# is not enough, as some versions leave out a unit and say so on stderr only.
dry_run() {
	find_generator
	[ -n "$generator" ] || fail PodmanUnsuitable 'the quadlet generator is not installed'
	made=$(QUADLET_UNIT_DIRS=$staging "$generator" -dryrun 2>"$staging/words" 9>&-)
	code=$?
	words=$(grep -v -i -e 'resolving path' -e 'Loading source unit' -e 'No files parsed' "$staging/words" | tail -n 8)
	if [ "$code" -ne 0 ]; then
		fail QuadletRejected "the generator says: $words"
	fi
	for file in "$staging"/*.container; do
		unit=${file##*/}
		unit=${unit%.container}.service
		case "$nl$made$nl" in
		*"$nl---$unit---$nl"*) ;;
		*) fail QuadletRejected "the generator makes no $unit: $words" ;;
		esac
	done
}
