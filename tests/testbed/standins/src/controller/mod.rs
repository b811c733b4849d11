//! `jumpstarter-controller`: credentials exporters, watches over them, and hands out leases.
//!
//! One task ([`brain`]) owns everything that is known: the Exporters, Leases and
//! credential Secrets of the cluster and the exporters that are connected. It
//! takes one input after the other, so that no two leases can get the same
//! exporter. What is decided stands in pure functions: [`exporter_rules`] and
//! [`lease_rules`]; [`peers`] speaks with exporters and [`control`] with tests.
//!
//! # What it does like the real one
//! Statuses are merge patches with what changed, and only then. Credentials are
//! bound to the Exporter's UID, and a token that was replaced stays valid. A
//! lease that matches nothing is ended at once; one whose exporters are away waits.
//! Leases belong to the Exporter that they were given, and go with it.
//!
//! # What is simpler
//! Clients and access policies aren't looked at: every lease may have every
//! exporter of its namespace. Priorities and spot access are ignored.

pub mod brain;
pub mod control;
pub mod credentials;
pub mod duration;
pub mod exporter_rules;
pub mod lease_rules;
pub mod objects;
pub mod peers;
pub mod serve;
pub mod store;
