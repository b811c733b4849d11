//! `jumpstarter-exec`: starts commands in another container on request.
//!
//! The exporter's QEMU driver runs in one container, QEMU in another; they
//! share a volume. `serve` listens on a Unix socket in that volume and starts
//! what a client asks for; `exec` is that client. One connection carries one
//! command, as newline-delimited JSON ([`protocol`]).
//!
//! Like the program that it stands for, the server has no signal handlers: as
//! process 1 of a container it would ignore SIGTERM, so it needs an init.

pub mod cli;
pub mod client;
pub mod log;
pub mod protocol;
pub mod server;
