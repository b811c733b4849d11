# shellcheck shell=bash
# SSH keys of one run: the controller's key, the same behind a passphrase, one that no host knows, and the hosts' own.

SSH_DIR=$TESTBED_STATE/ssh
SSH_KEY=$SSH_DIR/id_ed25519

ensure_keys() {
  [[ -s $SSH_KEY.wrong ]] && return
  rm -rf "$SSH_DIR"
  mkdir -m 0700 "$SSH_DIR"
  ssh-keygen -q -t ed25519 -N '' -C testbed -f "$SSH_KEY"
  cp -p "$SSH_KEY" "$SSH_KEY.encrypted"
  ssh-keygen -q -p -P '' -N testbed -f "$SSH_KEY.encrypted" >/dev/null
  ssh-keygen -q -t ed25519 -N '' -C unauthorised -f "$SSH_KEY.wrong"
}

# make_host_identity N UPPER-DIR: what makes host N itself; kept over its reboots.
make_host_identity() {
  local n=$1 etc=$2/etc user home
  mkdir -p "$etc/ssh"
  ssh-keygen -q -t ed25519 -N '' -C "lab$n" -f "$etc/ssh/ssh_host_ed25519_key"
  ssh-keygen -q -t ecdsa -N '' -C "lab$n" -f "$etc/ssh/ssh_host_ecdsa_key"
  tr -d - </proc/sys/kernel/random/uuid >"$etc/machine-id"
  printf 'lab%s\n' "$n" >"$etc/hostname"
  # Without it Podman looks "localhost" up for ten seconds at each layer of an import.
  printf '127.0.0.1 localhost\n127.0.1.1 lab%s\n' "$n" >"$etc/hosts"
  for user in root lab visitor; do
    home=$2/home/$user
    [[ $user != root ]] || home=$2/root
    mkdir -p "$home/.ssh"
    chmod 0700 "$home/.ssh"
    cp "$SSH_KEY.pub" "$home/.ssh/authorized_keys"
    # Numbers: the users exist in the host's tree only.
    [[ $user == root ]] || chown -R "$(host_uid "$user")" "$home"
  done
}

host_uid() { awk -F: -v user="$1" '$1 == user {print $3 ":" $4}' "$(tree_path)/etc/passwd"; }

host_public_key() { cut -d' ' -f1,2 "$(host_dir "$1")/up/etc/ssh/ssh_host_ed25519_key.pub"; }

# host_ssh N COMMAND…: as root, with the host's key checked.
host_ssh() {
  local n=$1
  shift
  ssh -F none -i "$SSH_KEY" -o IdentitiesOnly=yes -o BatchMode=yes -o LogLevel=ERROR -o ConnectTimeout=5 \
    -o UserKnownHostsFile="$(host_dir "$n")/known_hosts" -o StrictHostKeyChecking=yes -o HostKeyAlgorithms=ssh-ed25519 \
    "root@$(host_address "$n")" "$@"
}
