//! `jmp run`: the exporter.
//!
//! It reads its configuration once, registers, serves leases one after the
//! other, and says what it sees. What it decides is in [`session`] (a lease's
//! life) and [`patience`] (a controller that is away); [`run`] carries it out.
//!
//! Like the real program it ends with exit code 0 in nearly every case: only a
//! configuration that it can't use gives 1.

pub mod patience;
pub mod run;
pub mod session;
