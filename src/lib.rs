//! The `qemu-ssh.jumpstarter.dev` provisioner: QEMU test targets on lab hosts over SSH.
#![forbid(unsafe_code)]

pub mod api;
pub mod cli;
pub mod cluster;
pub mod controller;
pub mod host;
pub mod instance;
pub mod pool;
pub mod render;
pub mod telemetry;
