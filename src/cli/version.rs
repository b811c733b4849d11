//! `version`.

use super::CliError;
use std::io::Write;

/// Prints name and version.
pub(super) fn print(out: &mut impl Write) -> Result<(), CliError> {
    writeln!(out, "exporter-set-controller {}", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
