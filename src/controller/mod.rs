//! The loop that joins the parts.

pub mod ports;
