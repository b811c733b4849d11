# shellcheck shell=bash
# The test images: busybox and our stand-ins for `jmp` and `jumpstarter-exec`, imported without a registry.

EXPORTER_IMAGE=localhost/jumpstarter-standin:test
RUNTIME_IMAGE=localhost/qemu-runtime-standin:test
STANDINS_TARGET=$(uname -m)-unknown-linux-musl

# TESTBED_STANDINS may name a folder with both programs, built elsewhere.
standins_path() {
  printf '%s\n' "${TESTBED_STANDINS:-${CARGO_TARGET_DIR:-$CHECKOUT/target}/$STANDINS_TARGET/release}"
}

# Cargo decides whether there is anything to build; libc is linked in, as the images have none.
ensure_standins() {
  [[ -z ${TESTBED_STANDINS:-} ]] || return 0
  find_cargo >/dev/null
  ! command -v rustup >/dev/null || [[ $(cd "$CHECKOUT" && rustup target list --installed) == *"$STANDINS_TARGET"* ]] ||
    phase "Rust target $STANDINS_TARGET" add_rust_target
  cargo_build "$TESTBED_CACHE/standins.log" --release --package testbed-standins --bin jmp --bin jumpstarter-exec \
    --target "$STANDINS_TARGET"
}

add_rust_target() { (cd "$CHECKOUT" && rustup --quiet target add "$STANDINS_TARGET") </dev/null; }

# `containers` in it is Podman's storage with both images, copied to each new host; images.tar loads them into running ones.
images_path() {
  local standins
  standins=$(standins_path)
  printf '%s/images-%s-%s\n' "$TESTBED_CACHE" \
    "$(digest "$standins/jmp" "$standins/jumpstarter-exec" "$TESTBED_DIR/lib/images.sh")" "$(basename "$(tree_path)")"
}

ensure_images() {
  phase "stand-ins in the images" ensure_standins
  [[ -d $(images_path) ]] || phase "test images" build_images "$(images_path)"
}

build_images() {
  local out=$1 work=$1.partial log=$TESTBED_CACHE/images.log
  [[ ! -e $work ]] || { unmount_below "$work" && rm -rf --one-file-system "$work"; }
  mkdir -p "$work"/{containers,exporter,runtime,up,wk,root}
  populate_image "$work/exporter"
  mkdir -p "$work/exporter/jumpstarter/bin"
  install -m 0755 "$(standins_path)"/{jmp,jumpstarter-exec} "$work/exporter/jumpstarter/bin/"
  populate_image "$work/runtime"
  # Where Fedora, which the real image is made of, keeps its firmware.
  mkdir -p "$work/runtime/usr/share/edk2/ovmf"
  printf 'stand-in for UEFI code\n' >"$work/runtime/usr/share/edk2/ovmf/OVMF_CODE.fd"
  printf 'stand-in for UEFI variables\n' >"$work/runtime/usr/share/edk2/ovmf/OVMF_VARS.fd"
  mount -t overlay images -o "lowerdir=$(tree_path),upperdir=$work/up,workdir=$work/wk" "$work/root"
  import_images "$work" >"$log" 2>&1 </dev/null || die "the images can't be imported: $(tail -n5 "$log")"
  umount "$work/root"
  rm -rf --one-file-system "${work:?}"/{exporter,runtime,up,wk,root}
  mv "$work" "$out"
}

# A tree with all of busybox's commands on the usual PATH.
populate_image() {
  local root=$1
  mkdir -p "$root"/{bin,sbin,usr/bin,usr/sbin,etc,dev,proc,sys,run,tmp,root,var}
  chmod 1777 "$root/tmp"
  install -m 0755 "$(tree_path)/usr/bin/busybox" "$root/bin/busybox"
  chroot "$root" /bin/busybox --install -s
  printf 'root:x:0:0:root:/root:/bin/sh\nnonroot:x:65532:65532::/:/bin/sh\n' >"$root/etc/passwd"
  printf 'root:x:0:\nnonroot:x:65532:\n' >"$root/etc/group"
}

# By the lab hosts' own Podman, in their tree, with nothing booted. The runtime image's user is the real one's: a unit
# that needs root there must say so.
import_images() {
  local path=PATH=/jumpstarter/bin:/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin
  # shellcheck disable=SC2016 # expanded by the inner shell
  systemd-nspawn --quiet --register=no --keep-unit --pipe --directory="$1/root" --private-network \
    --capability=all --system-call-filter=@known --resolv-conf=off --timezone=off \
    --bind="$1/containers:/var/lib/containers" --bind="$1:/import" sh -euc '
      printf "127.0.0.1 localhost\n" >/etc/hosts
      tar -C /import/exporter -c . | podman import --quiet --change "ENV $3" - "$1"
      tar -C /import/runtime -c . | podman import --quiet --change "USER 65532:65532" \
        --change "ENTRYPOINT [\"/shared/jumpstarter-exec\"]" \
        --change "CMD [\"serve\",\"--socket\",\"/shared/launcher.sock\"]" - "$2"
      podman save --quiet --multi-image-archive --output /import/images.tar "$1" "$2"
    ' sh "$EXPORTER_IMAGE" "$RUNTIME_IMAGE" "$path"
}

# Brings the images of a running host up to date; containers that run keep the ones they were started from.
load_images() {
  local n=$1 loaded
  loaded=$(host_dir "$n")/images
  [[ $n != "$BARE_HOST" ]] || return 0
  [[ $(cat "$loaded" 2>/dev/null) != "$(images_path)" ]] || return 0
  host_ssh "$n" podman load --quiet <"$(images_path)/images.tar" >"$LOG/images-$n.log" 2>&1 ||
    die "host $n does not take the images: $(tail -n3 "$LOG/images-$n.log")"
  images_path >"$loaded"
}
