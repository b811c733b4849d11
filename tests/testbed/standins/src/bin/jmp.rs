//! The exporter: see [`testbed_standins::jmp`].

use std::process::ExitCode;

fn main() -> ExitCode {
    testbed_standins::jmp::run::main(std::env::args().skip(1))
}
