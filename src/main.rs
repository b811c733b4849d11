//! Thin binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    exporter_set_controller::cli::main(std::env::args_os())
}
