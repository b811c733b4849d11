//! Stand-ins for the parts of Jumpstarter that the testbed can't or won't run.
//!
//! Three programs share this library:
//!
//! | program | plays | runs |
//! |---|---|---|
//! | `jumpstarter-exec` | the launcher that starts QEMU next to the exporter ([`exec`]) | in the runtime container |
//! | `jmp` | the exporter | in the exporter container |
//! | `jumpstarter-controller` | the service that credentials exporters and hands out leases (feature `controller`) | beside the API server |
//!
//! They follow the rules and the timing that were observed with the real
//! programs, as far as a provisioner can tell the difference, and report what
//! they see so that tests can ask.

pub mod config;
#[cfg(feature = "controller")]
pub mod controller;
pub mod exec;
pub mod jmp;
pub mod log;
pub mod ndjson;
pub mod report;
pub mod timestamp;
pub mod wire;
pub mod yaml;
