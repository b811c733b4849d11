//! Lab hosts: SSH connections, host keys, the script protocol.

mod batch;
mod target;

pub use batch::{Batch, Fence, Op, Outcome, Owner, Report};
pub use target::{HostKeys, PrivateKey, Target};
