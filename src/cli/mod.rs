//! The command line: `run` with the flags of Jumpstarter's own provisioners, and tools beside it.
//!
//! Data goes to stdout, everything else to stderr. Each subcommand has a file of its own.

mod args;
mod clock;
mod crds;
mod error;
mod flags;
mod journal_dir;
mod run;
mod signals;
mod version;

pub use clock::SystemClock;
pub use error::CliError;
pub use run::Parts;

use args::{Arguments, Command};
use clap::Parser;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// All went well; for `run`: it was asked to end, and did.
pub const EXIT_OK: u8 = 0;
/// Something failed; for `run` also: a setting is missing or wrong, or the leadership was lost.
pub const EXIT_FAILURE: u8 = 1;
/// The command line can't be understood.
pub const EXIT_USAGE: u8 = 2;

/// Does what `arguments` (with the program's name in front) ask for. Returns the exit code:
/// [`EXIT_OK`], [`EXIT_FAILURE`] or [`EXIT_USAGE`].
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(flags::normalize(arguments)) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version come this way, too, on stdout and with 0.
            let code = u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE);
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let done = match arguments.command {
        Command::Run(flags) => run::run(&flags),
        Command::Crds => crds::print(&mut io::stdout().lock()).map(|()| EXIT_OK),
        Command::Version => version::print(&mut io::stdout().lock()).map(|()| EXIT_OK),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        // Whoever reads our output has seen enough, as in `… crds | head -1`.
        Err(CliError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::from(EXIT_OK)
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(EXIT_FAILURE)
        }
    }
}
