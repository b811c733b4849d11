//! Log lines for people on standard error.

use std::io::{self, Write as _};
use std::time::SystemTime;

use crate::timestamp::rfc3339_millis;

/// Writes one line with the time. Never give it a token.
pub fn log(message: &str) {
    // Nobody to tell when even standard error is gone.
    let _ = writeln!(
        io::stderr(),
        "{} {message}",
        rfc3339_millis(SystemTime::now())
    );
}
