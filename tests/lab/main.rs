//! Black-box tests: the controller as a process, against the real API server and real lab hosts of
//! the testbed (`make testbed-up`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod api_server;
mod crashes;
mod deletion;
mod failures;
mod first_light;
mod harness;
mod manifests;
mod neighbours;
mod replicas;
mod scaling;
mod secrecy;
