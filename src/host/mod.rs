//! Lab hosts: SSH connections, host keys, the script protocol.

mod batch;
mod connection;
mod connections;
mod exec;
mod host_key;
mod hosts;
mod key;
mod known_hosts;
mod quote;
mod redact;
mod report;
mod script;
mod target;

pub use batch::{Batch, Fence, Op, Outcome, Owner, Report};
pub use hosts::SshHosts;
pub use target::{HostKeys, PrivateKey, Target};
