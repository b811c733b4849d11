# Steps "start" and "stop".

# visit_units FUNCTION: asks systemd about the units in "$units" and calls FUNCTION for each in their
# order, with what it said in unit, load, active, sub, pid, result, status, stale, restarts, since.
visit_units() {
	unit=''
	while IFS='=' read -r key value; do
		case $key in
		Id) unit=${value%.service} ;;
		LoadState) load=$value ;;
		ActiveState) active=$value ;;
		SubState) sub=$value ;;
		MainPID) pid=$value ;;
		Result) result=$value ;;
		ExecMainStatus) status=$value ;;
		NeedDaemonReload) stale=$value ;;
		NRestarts) restarts=$value ;;
		ExecMainStartTimestamp) since=$value ;;
		'')
			if [ -n "$unit" ]; then "$1"; fi
			unit='' load='' active='' sub='' pid=0 result='' status='' stale='' restarts=0 since=''
			;;
		esac
	done <<-END

		$(systemctl show --timestamp=us+utc -p Id,LoadState,ActiveState,SubState,MainPID,Result,ExecMainStatus,NeedDaemonReload,NRestarts,ExecMainStartTimestamp $units 2>/dev/null)

	END
}

# Has systemd read the units if it has not read them as they are, and marks since when they hold:
# a unit that was started before that runs with another revision.
load_units() {
	settle
	unread=''
	visit_units note_unread
	if [ -z "$unread" ]; then return; fi
	try HostScriptFailed 'systemctl daemon-reload' systemctl daemon-reload
	for file in $unread; do touch "$run/effective/$file"; done
	changed=1
	unread=''
	visit_units note_unread
	if [ -n "$unread" ]; then fail QuadletRejected "systemd does not load$unread after a reload; is the generator at work?"; fi
}

note_unread() {
	if [ "$load" != loaded ] || [ "$stale" = yes ]; then unread="$unread $unit"; fi
}

# The unit was started before its files were as they are now.
runs_old() {
	parts="$quadlets/$unit.container $run/effective/$unit"
	if [ "$unit" = "$serving" ]; then parts="$parts $config"; fi
	[ -n "$(find $parts -newermt "$since" 2>/dev/null)" ]
}

# start_units restart|keep
start_units() {
	assert_files_ours
	# On the host's network there is no holder of one.
	if [ ! -e "$quadlets/$net.container" ]; then units="$runtime.service $serving.service"; fi
	load_units
	to_start='' to_restart='' policy=$1
	visit_units note_idle
	detail='all units are active'
	if [ -z "$to_start$to_restart" ]; then return; fi
	changed=1
	detail="started:$to_start$to_restart"
	bring_up
}

note_idle() {
	if [ "$active" != active ]; then
		to_start="$to_start $unit.service"
	elif [ "$policy" = restart ] && runs_old; then
		to_restart="$to_restart $unit.service"
	fi
}

# Starts or restarts what is in to_start and to_restart, and sees that all is well.
bring_up() {
	launcher=$volumes/$volume/_data/launcher.sock
	case "$to_start$to_restart " in
	*" $net.service "* | *" $runtime.service "*)
		# A socket that a dead launcher left would pass for the new one; and an exporter that has
		# seen another launcher believes that its guest still runs.
		rm -f "$launcher"
		case "$to_start$to_restart " in *" $serving.service "*) ;; *) to_restart="$to_restart $serving.service" ;; esac
		;;
	esac
	# Takes away the marks of earlier failures, and the count of restarts with them.
	systemctl reset-failed $units 2>/dev/null
	# One job for all, so that they start side by side.
	if [ -n "$to_restart" ]; then
		words=$(systemctl restart $to_restart $to_start 2>&1)
	else
		words=$(systemctl start $to_start 2>&1)
	fi
	until_true 30 units_settled
	visit_units assert_up
	case $units in
	"$net.service "*) ;;
	*)
		# Its file is gone, and with it what systemd knew of its exit codes.
		systemctl stop "$net.service" 2>/dev/null
		systemctl reset-failed "$net.service" 2>/dev/null
		;;
	esac
	if [ ! -e "$launcher" ]; then
		fail UnitFailed "$runtime.service is active, but its launcher does not listen at /shared/launcher.sock after 30 s$nl$(unit_log "$runtime")"
	fi
}

unit_is_up() { [ "$active" = active ] && [ "$pid" -gt 0 ] && [ "$restarts" -eq 0 ]; }

# Whether there is nothing to wait for: all units are up and the runtime's launcher listens, or one
# has failed. That systemctl start exits with 0 says neither (it does so when an ExecCondition= is
# false, and when a container's init runs and its program is missing).
units_settled() {
	failed='' waiting=''
	visit_units note_unsettled
	if [ -n "$failed" ]; then return 0; fi
	[ -z "$waiting" ] && [ -e "$launcher" ]
}

note_unsettled() {
	if unit_is_up; then return; fi
	case $active:$sub:$restarts in
	activating:auto-restart*:* | activating:*:[1-9]*) failed=1 ;;
	activating:* | reloading:*) waiting=1 ;;
	*) failed=1 ;;
	esac
}

assert_up() {
	if unit_is_up; then return; fi
	reason="$unit.service is $active ($sub), Result=$result, status $status"
	if [ "$result" = exec-condition ]; then
		reason="$reason: its ExecCondition= is false, the machine has been used"
	fi
	fail UnitFailed "$reason${words:+; $words}$nl$(unit_log "$unit")"
}

# The last words of a unit, without Podman's own record of its containers ("… container died …").
unit_log() {
	journalctl --quiet --no-pager -u "$1.service" -n 40 -o cat 2>/dev/null |
		grep -v '^[-0-9]* [.:0-9]* [-+0-9]* UTC m=' | tail -n 20 | tail -c 1500
}

# Stops the units and sees them inactive; the holder of the network is stopped last, by its order.
stop_units() {
	settle
	running=''
	visit_units note_running
	if [ -z "$running" ]; then return; fi
	changed=1
	timeout 60 systemctl stop $running 2>/dev/null || systemctl kill --signal=KILL $running 2>/dev/null
	until_true 20 units_are_down || fail Timeout "still active after a stop: $running"
}

note_running() {
	case $active in
	'' | inactive) ;;
	failed) systemctl reset-failed "$unit.service" 2>/dev/null ;;
	*) running="$running $unit.service" ;;
	esac
}

units_are_down() {
	running=''
	visit_units note_running
	[ -z "$running" ]
}

stop_instance() {
	assert_files_ours
	stop_units
	remove_containers
	detail='no unit was active'
	if [ -n "$changed" ]; then detail='units stopped'; fi
}
