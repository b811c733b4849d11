//! Plays jumpstarter-controller: see [`testbed_standins::controller`].

use std::process::ExitCode;

use clap::Parser as _;
use testbed_standins::controller::serve::{Options, serve};
use testbed_standins::log::log;

#[tokio::main]
async fn main() -> ExitCode {
    match serve(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&format!("Error: {error}"));
            ExitCode::FAILURE
        }
    }
}
