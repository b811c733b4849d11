# shellcheck shell=bash
# Each lab host has a cgroup of its own. nspawn puts its machine below the cgroup that it is started in; two hosts in one
# would share units' cgroups, and a unit killed on one host would be killed on the other.

# Where the machine's cgroup v2 tree is mounted, and v1's tree of systemd where there is one.
cgroup_roots() { awk '$3 == "cgroup2" || ($3 == "cgroup" && $4 ~ /name=systemd/) {print $2}' /proc/self/mounts; }

host_cgroups() {
  local root
  for root in $(cgroup_roots); do printf '%s/testbed-lab%s\n' "$root" "$1"; done
}

# Prints the files through which a process of host N enters the host's cgroups.
make_cgroups() {
  local path
  for path in $(host_cgroups "$1"); do
    mkdir -p "$path"
    printf '%s/cgroup.procs\n' "$path"
  done
}

remove_cgroups() {
  local path
  for path in $(host_cgroups "$1"); do
    # Processes leave their cgroup a moment after they are gone.
    wait_for 10 "end of the cgroup $path" remove_cgroup "$path"
  done
}

remove_cgroup() { [[ ! -d $1 ]] || find "$1" -depth -type d -exec rmdir {} +; }
