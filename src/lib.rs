//! The `qemu-ssh.jumpstarter.dev` provisioner.
