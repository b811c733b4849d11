# Steps "start" and "stop".

# What systemd says of a unit: unit_facts NAME sets load, active, sub, pid, result, status, stale,
# restarts, since.
unit_facts() {
	load='' active='' sub='' pid='' result='' status='' stale='' restarts='' since=''
	while IFS='=' read -r key value; do
		case $key in
		LoadState) load=$value ;;
		ActiveState) active=$value ;;
		SubState) sub=$value ;;
		MainPID) pid=$value ;;
		Result) result=$value ;;
		ExecMainStatus) status=$value ;;
		NeedDaemonReload) stale=$value ;;
		NRestarts) restarts=$value ;;
		ExecMainStartTimestamp) since=$value ;;
		esac
	done <<-END
		$(systemctl show --timestamp=us+utc -p LoadState,ActiveState,SubState,MainPID,Result,ExecMainStatus,NeedDaemonReload,NRestarts,ExecMainStartTimestamp "$1.service" 2>/dev/null)
	END
}

# Has systemd read the units if it has not read them as they are, and marks since when they hold:
# a unit that was started before that runs with another revision.
load_units() {
	settle
	unread=
	for unit in $net $runtime $serving; do
		unit_facts "$unit"
		if [ "$load" != loaded ] || [ "$stale" = yes ]; then unread="$unread $unit"; fi
	done
	if [ -z "$unread" ]; then return; fi
	try HostScriptFailed 'systemctl daemon-reload' systemctl daemon-reload
	for unit in $unread; do
		unit_facts "$unit"
		if [ "$load" != loaded ]; then fail QuadletRejected "systemd has no $unit.service after a reload (it is $load)"; fi
		touch "$run/effective/$unit"
	done
	changed=1
}

# runs_old NAME: the unit was started before its files were as they are now. "$since" is its start.
runs_old() {
	files="$quadlets/$1.container $run/effective/$1"
	if [ "$1" = "$serving" ]; then files="$files $config"; fi
	[ -n "$(find $files -newermt "$since" 2>/dev/null)" ]
}

# start_units restart|keep
start_units() {
	assert_files_ours
	load_units
	to_start='' to_restart=''
	for unit in $net $runtime $serving; do
		unit_facts "$unit"
		if [ "$active" != active ]; then
			to_start="$to_start $unit.service"
		elif [ "$1" = restart ] && runs_old "$unit"; then
			to_restart="$to_restart $unit.service"
		fi
	done
	detail='all units are active'
	if [ -z "$to_start$to_restart" ]; then return; fi
	changed=1
	detail="started:$to_start$to_restart"
	bring_up
}

# Starts or restarts what is in to_start and to_restart, and sees that all is well.
bring_up() {
	case "$to_start$to_restart " in
	*" $net.service "* | *" $runtime.service "*)
		# A socket that a dead launcher left would pass for the new one; and an exporter that has
		# seen another launcher believes that its guest still runs.
		rm -f "$volumes/$volume/_data/launcher.sock"
		case "$to_start$to_restart " in *" $serving.service "*) ;; *) to_restart="$to_restart $serving.service" ;; esac
		;;
	esac
	# Takes away the marks of earlier failures, and the count of restarts with them.
	systemctl reset-failed "$net.service" "$runtime.service" "$serving.service" 2>/dev/null
	if [ -n "$to_restart" ]; then
		words=$(systemctl restart $to_restart $to_start 2>&1)
	else
		words=$(systemctl start $to_start 2>&1)
	fi
	until_true 30 units_settled
	for unit in $net $runtime $serving; do
		unit_facts "$unit"
		unit_is_up || fail_unit "$unit" "$words"
	done
	if [ ! -e "$volumes/$volume/_data/launcher.sock" ]; then
		unit_facts "$runtime"
		fail_unit "$runtime" 'its launcher does not listen at /shared/launcher.sock'
	fi
}

unit_is_up() { [ "$active" = active ] && [ "${pid:-0}" -gt 0 ] && [ "${restarts:-0}" -eq 0 ]; }

# Whether there is nothing to wait for: all units are up, and the runtime's launcher listens; or one
# has failed. An exit code of 0 from systemctl start says neither (a false ExecCondition= gives 0,
# and so does a container whose init starts and whose program is missing).
units_settled() {
	for unit in $net $runtime $serving; do
		unit_facts "$unit"
		if unit_is_up; then continue; fi
		case $active in
		activating | reloading) if [ "$sub" = auto-restart ] || [ "${restarts:-0}" -gt 0 ]; then return 0; fi ;;
		*) return 0 ;;
		esac
		return 1
	done
	[ -e "$volumes/$volume/_data/launcher.sock" ]
}

# fail_unit NAME WORDS: the facts are those of that unit.
fail_unit() {
	reason="$1.service is $active ($sub), Result=$result, status $status"
	if [ "$result" = exec-condition ]; then
		reason="$reason: its ExecCondition= is false, the machine has been used"
	fi
	log=$(journalctl --quiet --no-pager -u "$1.service" -n 20 -o cat 2>/dev/null | tail -c 1500)
	fail UnitFailed "$reason${2:+; $2}${nl}$log"
}

# Stops the units and sees them inactive; the holder of the network is stopped last, by its order.
stop_units() {
	settle
	to_stop=
	for unit in $serving $runtime $net; do
		unit_facts "$unit"
		case $active in
		'' | inactive) ;;
		failed) systemctl reset-failed "$unit.service" 2>/dev/null ;;
		*) to_stop="$to_stop $unit.service" ;;
		esac
	done
	if [ -z "$to_stop" ]; then return; fi
	changed=1
	timeout 60 systemctl stop $to_stop 2>/dev/null || systemctl kill --signal=KILL $to_stop 2>/dev/null
	until_true 20 units_down || fail Timeout "$unit.service is still $active after a stop"
}

units_down() {
	for unit in $serving $runtime $net; do
		unit_facts "$unit"
		case $active in
		'' | inactive) ;;
		failed) systemctl reset-failed "$unit.service" 2>/dev/null ;;
		*) return 1 ;;
		esac
	done
}

stop_instance() {
	assert_files_ours
	stop_units
	remove_containers
	detail='no unit was active'
	if [ -n "$changed" ]; then detail='units stopped'; fi
}
