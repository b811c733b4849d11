//! The command line of `jumpstarter-exec`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use super::client;
use super::log::{FIELDS_VARIABLE, Log, parse_fields};
use super::protocol::DEFAULT_SOCKET;
use super::server::Server;

const USAGE: &str = "\
usage: jumpstarter-exec serve [--socket PATH] [--debug] [--log-format json|text] [--log-field K=V]...
       jumpstarter-exec exec [--socket PATH] -- COMMAND [ARGUMENT]...
       jumpstarter-exec shutdown [--socket PATH]
       jumpstarter-exec version
";

/// Exit code when a signal ended the command, so that it has no code of its own.
const SIGNALLED: u8 = 255;

/// Carries out the command line (without the program's name).
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let outcome = match parse(arguments) {
        Ok(command) => run(command),
        Err(message) => Err(format!("{message}\n{USAGE}")),
    };
    outcome.unwrap_or_else(|message| {
        let _ = writeln!(io::stderr(), "jumpstarter-exec: {message}");
        ExitCode::FAILURE
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Serve {
        socket: PathBuf,
        debug: bool,
        json: bool,
        fields: Vec<(String, String)>,
    },
    Exec {
        socket: PathBuf,
        argv: Vec<String>,
    },
    Shutdown {
        socket: PathBuf,
    },
    Version,
}

fn run(command: Command) -> Result<ExitCode, String> {
    match command {
        Command::Serve {
            socket,
            debug,
            json,
            fields,
        } => {
            let debug = debug || std::env::var("JUMPSTARTER_EXEC_DEBUG").is_ok_and(|v| v == "1");
            let mut all = parse_fields(&std::env::var(FIELDS_VARIABLE).unwrap_or_default());
            all.extend(fields);
            let log = Log::new(debug, json, all);
            Server::bind(&socket, log)
                .map_err(|error| error.to_string())?
                .run();
        }
        Command::Exec { socket, argv } => {
            let (mut output, mut errors) = (io::stdout(), io::stderr());
            let code = client::exec(&socket, argv, io::stdin(), &mut output, &mut errors)
                .map_err(|error| error.to_string())?;
            let code = code
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(SIGNALLED);
            return Ok(ExitCode::from(code));
        }
        Command::Shutdown { socket } => {
            client::shutdown(&socket).map_err(|error| error.to_string())?;
        }
        Command::Version => {
            writeln!(
                io::stdout(),
                "jumpstarter-exec {} (stand-in)",
                env!("CARGO_PKG_VERSION")
            )
            .map_err(|error| error.to_string())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command, String> {
    let mut arguments = arguments.into_iter();
    let name = arguments.next().ok_or("no subcommand")?;
    let mut socket = PathBuf::from(DEFAULT_SOCKET);
    let (mut debug, mut json, mut fields, mut argv) = (false, true, Vec::new(), Vec::new());
    while let Some(argument) = arguments.next() {
        let (flag, inline) = match argument.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        let mut value = || {
            inline
                .clone()
                .or_else(|| arguments.next())
                .ok_or(format!("{flag} needs a value"))
        };
        match (name.as_str(), flag.as_str()) {
            ("serve" | "exec" | "shutdown", "--socket") => socket = PathBuf::from(value()?),
            ("serve", "--debug") => debug = true,
            ("serve", "--log-format") => {
                json = match value()?.as_str() {
                    "json" => true,
                    "text" => false,
                    other => return Err(format!("--log-format {other}: json or text")),
                }
            }
            ("serve", "--log-field") => fields.extend(parse_fields(&value()?)),
            ("exec", "--") => argv = arguments.by_ref().collect(),
            _ => return Err(format!("{name}: unknown argument {flag}")),
        }
    }
    match name.as_str() {
        "serve" => Ok(Command::Serve {
            socket,
            debug,
            json,
            fields,
        }),
        "exec" if argv.is_empty() => Err("exec: no command after --".into()),
        "exec" => Ok(Command::Exec { socket, argv }),
        "shutdown" => Ok(Command::Shutdown { socket }),
        "version" => Ok(Command::Version),
        other => Err(format!("unknown subcommand {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn every_subcommand_is_understood() {
        let socket = PathBuf::from("/tmp/s");
        assert_eq!(
            parsed("serve --socket /tmp/s --debug --log-format=text --log-field a=b"),
            Ok(Command::Serve {
                socket: socket.clone(),
                debug: true,
                json: false,
                fields: vec![("a".into(), "b".into())],
            })
        );
        assert_eq!(
            parsed("exec --socket=/tmp/s -- qemu -m=1 --socket x"),
            Ok(Command::Exec {
                socket,
                argv: ["qemu", "-m=1", "--socket", "x"].map(String::from).to_vec(),
            })
        );
        let socket = PathBuf::from(DEFAULT_SOCKET);
        assert_eq!(parsed("shutdown"), Ok(Command::Shutdown { socket }));
        assert_eq!(parsed("version"), Ok(Command::Version));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (line, reason) in [
            ("", "no subcommand"),
            ("dance", "unknown subcommand dance"),
            ("exec", "exec: no command after --"),
            ("shutdown --socket", "--socket needs a value"),
            ("exec --debug -- true", "exec: unknown argument --debug"),
            ("serve --log-format xml", "--log-format xml: json or text"),
        ] {
            assert_eq!(parsed(line), Err(reason.to_owned()), "{line}");
        }
    }
}
