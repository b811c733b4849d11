//! Subcommands and flags.

use super::CliError;
use crate::api::parse_go_duration;
use crate::cluster::Timing;
use crate::telemetry::{BindAddress, LogFormat};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// The journal's folder, unless another one is asked for.
pub(super) const DEFAULT_JOURNAL_DIR: &str = "/var/lib/exporter-set-controller/journal";

/// Puts QEMU test targets on lab hosts over SSH: Jumpstarter's qemu-ssh provisioner.
#[derive(Debug, Parser)]
#[command(
    name = "exporter-set-controller",
    version,
    after_help = "Flags without a subcommand mean `run`. Flags of `run` may be written as Go programs do: \
                  -flag, --flag, -flag=value, --flag value.\n\n\
                  Exit codes: 0 ok, or ended by SIGTERM or SIGINT; 1 failure, a missing or wrong setting, \
                  leadership lost; 2 usage."
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the controller (the default)
    Run(Box<RunFlags>),
    /// Print the CustomResourceDefinitions as YAML
    Crds,
    /// Print the version
    Version,
}

/// The flags of `run`. The first ones are those that the Jumpstarter operator sets.
#[derive(Args, Clone, Debug)]
pub(super) struct RunFlags {
    /// The provisioner to be: qemu-ssh.jumpstarter.dev (required)
    #[arg(long, value_name = "NAME")]
    pub(super) provisioner: Option<String>,

    /// The namespace to serve (required)
    #[arg(long, env = "NAMESPACE", value_name = "NAME")]
    pub(super) namespace: Option<String>,

    /// Accepted; a leader is always elected, because lab hosts refuse a controller without a term
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true", value_parser = go_bool)]
    pub(super) leader_elect: bool,

    /// Where /healthz and /readyz are served; 0 is off
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub(super) health_probe_bind_address: BindAddress,

    /// Where metrics are served; 0 is off, and all that there is so far
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    pub(super) metrics_bind_address: BindAddress,

    /// Where the journal is kept [default: /var/lib/exporter-set-controller/journal, else a temporary folder]
    #[arg(long, env = "JOURNAL_DIR", value_name = "DIR")]
    pub(super) journal_dir: Option<PathBuf>,

    /// How to reach the API server, outside of a Pod
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// How long the others wait for a leader that does not renew its Lease
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_go_duration)]
    leader_elect_lease_duration: Duration,

    /// How long a leader acts without having renewed its Lease; less than the lease duration
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_go_duration)]
    leader_elect_renew_deadline: Duration,

    /// How often the Lease is renewed, or looked at; less than the renew deadline
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_go_duration)]
    leader_elect_retry_period: Duration,

    /// How much is logged [default: RUST_LOG, else info]
    #[arg(long, value_name = "LEVEL", ignore_case = true)]
    pub(super) log_level: Option<LogLevel>,

    /// How log lines look: auto is text if stderr is a terminal, else json on stdout
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(super) log_format: LogFormatFlag,

    #[command(flatten)]
    pub(super) zap: ZapFlags,
}

/// The logging flags of controller-runtime's programs.
#[derive(Args, Clone, Debug)]
pub(super) struct ZapFlags {
    /// Text, and level debug, unless other flags say otherwise
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true", value_parser = go_bool)]
    pub(super) zap_devel: bool,

    /// json or console
    #[arg(long, value_name = "ENCODER")]
    pub(super) zap_encoder: Option<ZapEncoder>,

    /// debug, info, error, panic, or a number: 1 and more is debug
    #[arg(long, value_name = "LEVEL", value_parser = zap_level)]
    pub(super) zap_log_level: Option<LogLevel>,

    /// Accepted, without effect: there are no stack traces
    #[arg(long, value_name = "LEVEL")]
    zap_stacktrace_level: Option<String>,

    /// Accepted, without effect: times are RFC 3339
    #[arg(long, value_name = "ENCODING")]
    zap_time_encoding: Option<String>,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogLevel {
    /// What only developers need.
    Debug,
    /// What happens.
    Info,
    /// What may need somebody.
    Warn,
    /// What needs somebody.
    Error,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormatFlag {
    /// By what stderr is.
    Auto,
    /// For machines.
    Json,
    /// For people.
    Text,
}

/// How log lines look, in zap's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ZapEncoder {
    /// For machines.
    Json,
    /// For people.
    Console,
}

impl LogLevel {
    fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

impl RunFlags {
    /// The terms of the leader election.
    ///
    /// # Errors
    /// If two replicas could lead at once with them.
    pub(super) fn timing(&self) -> Result<Timing, CliError> {
        let timing = Timing {
            lease_duration: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry_period: self.leader_elect_retry_period,
        };
        let Timing {
            lease_duration,
            renew_deadline,
            retry_period,
        } = timing;
        if retry_period.is_zero() || retry_period >= renew_deadline {
            return Err(CliError::Timing(
                "--leader-elect-retry-period",
                "--leader-elect-renew-deadline",
            ));
        }
        if renew_deadline >= lease_duration {
            return Err(CliError::Timing(
                "--leader-elect-renew-deadline",
                "--leader-elect-lease-duration",
            ));
        }
        Ok(timing)
    }

    /// The level that was asked for; our own flag wins over zap's.
    pub(super) fn level(&self) -> Option<String> {
        let devel = self.zap.zap_devel.then_some(LogLevel::Debug);
        let level = self.log_level.or(self.zap.zap_log_level).or(devel);
        level.map(|level| level.name().to_owned())
    }

    /// The format that was asked for; our own flag wins over zap's.
    pub(super) fn format(&self) -> LogFormat {
        match (self.log_format, self.zap.zap_encoder) {
            (LogFormatFlag::Json, _) | (LogFormatFlag::Auto, Some(ZapEncoder::Json)) => {
                LogFormat::Json
            }
            (LogFormatFlag::Text, _) | (LogFormatFlag::Auto, Some(ZapEncoder::Console)) => {
                LogFormat::Text
            }
            (LogFormatFlag::Auto, None) if self.zap.zap_devel => LogFormat::Text,
            (LogFormatFlag::Auto, None) => LogFormat::Auto,
        }
    }
}

/// What Go's `strconv.ParseBool` takes.
fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

/// What zap takes as a level.
fn zap_level(text: &str) -> Result<LogLevel, String> {
    match text.to_ascii_lowercase().as_str() {
        "debug" => Ok(LogLevel::Debug),
        "info" => Ok(LogLevel::Info),
        "warn" => Ok(LogLevel::Warn),
        "error" | "panic" => Ok(LogLevel::Error),
        number => match number.parse::<u8>() {
            Ok(0) | Err(_) => Err("use debug, info, error, panic, or a number above 0".to_owned()),
            Ok(_) => Ok(LogLevel::Debug),
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::super::flags::normalize;
    use super::*;
    use clap::CommandFactory;

    fn parsed(line: &str) -> Result<RunFlags, clap::Error> {
        let words = std::iter::once("exporter-set-controller").chain(line.split_whitespace());
        let arguments = Arguments::try_parse_from(normalize(words.map(Into::into)))?;
        match arguments.command {
            Command::Run(flags) => Ok(*flags),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_of_the_operator_is_understood() {
        let flags = parsed(
            "--provisioner=qemu-ssh.jumpstarter.dev --leader-elect --health-probe-bind-address=:8081 \
             --metrics-bind-address=0",
        )
        .unwrap();
        assert_eq!(
            flags.provisioner.as_deref(),
            Some("qemu-ssh.jumpstarter.dev")
        );
        assert!(flags.leader_elect);
        assert_eq!(
            flags.health_probe_bind_address,
            BindAddress::AnyAddress(8081)
        );
        assert_eq!(flags.metrics_bind_address, BindAddress::Off);
    }

    #[test]
    fn flags_may_be_written_as_in_go() {
        for line in [
            "-provisioner p -leader-elect=false -health-probe-bind-address=0",
            "--provisioner p --leader-elect=F --health-probe-bind-address 0",
            "run -provisioner=p --health-probe-bind-address=0",
        ] {
            let flags = parsed(line).unwrap();
            assert_eq!(flags.provisioner.as_deref(), Some("p"), "{line}");
            assert!(!flags.leader_elect, "{line}");
            assert_eq!(flags.health_probe_bind_address, BindAddress::Off, "{line}");
        }
        assert!(parsed("").unwrap().provisioner.is_none());
    }

    #[test]
    fn what_cannot_be_understood_is_a_usage_error() {
        for line in [
            "--no-such-flag",
            "--leader-elect=perhaps",
            "--health-probe-bind-address=8081",
            "--zap-log-level=0",
            "--log-level=loud",
        ] {
            assert_eq!(parsed(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn zap_flags_say_what_ours_do_not() {
        let told = |line: &str| {
            let flags = parsed(line).unwrap();
            (flags.level(), flags.format())
        };
        let level = |name: &str| Some(name.to_owned());
        let table = [
            ("", None, LogFormat::Auto),
            ("--zap-devel", level("debug"), LogFormat::Text),
            (
                "--zap-devel=true --zap-encoder=json",
                level("debug"),
                LogFormat::Json,
            ),
            (
                "--zap-log-level=3 --zap-encoder console",
                level("debug"),
                LogFormat::Text,
            ),
            ("--zap-log-level=error", level("error"), LogFormat::Auto),
            (
                "--zap-devel --log-level=warn --log-format=json",
                level("warn"),
                LogFormat::Json,
            ),
            (
                "--zap-stacktrace-level=error --zap-time-encoding=epoch",
                None,
                LogFormat::Auto,
            ),
        ];
        for (line, level, format) in table {
            assert_eq!(told(line), (level, format), "{line}");
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }
}
