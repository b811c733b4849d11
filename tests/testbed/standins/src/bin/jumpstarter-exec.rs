//! Starts commands in another container on request: see [`testbed_standins::exec`].

use std::process::ExitCode;

fn main() -> ExitCode {
    testbed_standins::exec::cli::main(std::env::args().skip(1))
}
