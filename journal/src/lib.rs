//! A durable, tamper-evident event journal.
