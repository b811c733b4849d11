//! Batches on a real lab host of the testbed.
#![allow(missing_docs, unreachable_pub, dead_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "host/access.rs"]
mod access;
#[path = "host/faults.rs"]
mod faults;
#[path = "host/lab.rs"]
mod lab;
#[path = "host/life.rs"]
mod life;
#[path = "host/proxy.rs"]
mod proxy;
#[path = "host/revisions.rs"]
mod revisions;
