//! What the process tells about itself: logs, traces, probes.

mod filter;
mod json;
mod probes;
mod traces;

pub use probes::{BindAddress, Probes, ProbesError};
pub use traces::{current_traceparent, set_parent};

use std::io::{self, IsTerminal};
use thiserror::Error;
use traces::Traces;
use tracing::warn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `Text` if stderr is a terminal, else `Json`.
    #[default]
    Auto,
    /// One JSON object a line, on stdout.
    Json,
    /// For people, on stderr; coloured on a terminal, unless `NO_COLOR` is set.
    Text,
}

/// What is logged, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How lines look.
    pub format: LogFormat,
    /// `debug`, `info`, `warn` or `error` for our own code; `None`: `RUST_LOG`, else `info`.
    pub level: Option<String>,
    /// What we are called in lines and traces.
    pub component: String,
    /// The namespace that we serve, for the base fields of each line.
    pub namespace: String,
}

/// Why telemetry can't begin.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// A level or `RUST_LOG` can't be parsed.
    #[error(
        "log filter '{filter}': {problem}; use debug, info, warn or error, or RUST_LOG=target=level,…"
    )]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The process has a logger already.
    #[error("logging can't begin: {0}")]
    Begun(String),
}

/// Running telemetry; [`flush`](Self::flush) it before the process ends.
#[must_use]
pub struct Telemetry {
    traces: Option<Traces>,
}

impl Telemetry {
    /// Begins logging, and traces. Call it once, inside a multi-threaded tokio runtime.
    ///
    /// Traces are sent by OTLP (gRPC) if `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` is set; the other standard variables (`…_HEADERS`,
    /// `…_TIMEOUT`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`) hold.
    /// Without an endpoint spans still have ids, for the journal; `OTEL_SDK_DISABLED=true` takes
    /// those away too.
    ///
    /// # Errors
    /// A log filter that can't be parsed. An OTLP endpoint that can't be used is only logged.
    pub fn start(settings: &Settings) -> Result<Self, TelemetryError> {
        let filter = filter::from(settings.level.as_deref(), std::env::var("RUST_LOG").ok())?;
        let traces = traces::from(&settings.component, |name| std::env::var(name).ok());
        let (traces, trouble) = match traces {
            Ok(traces) => (traces, None),
            Err(trouble) => (None, Some(trouble)),
        };
        let terminal = io::stderr().is_terminal();
        let text = match settings.format {
            LogFormat::Auto => terminal,
            LogFormat::Json => false,
            LogFormat::Text => true,
        };
        let lines = if text {
            let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
            let lines = fmt::layer().with_writer(io::stderr).with_ansi(colour);
            lines.with_target(false).compact().boxed()
        } else {
            json::JsonLines::new(io::stdout, &settings.component, &settings.namespace).boxed()
        };
        tracing_subscriber::registry()
            .with(traces.as_ref().map(Traces::layer))
            .with(lines.with_filter(filter))
            .try_init()
            .map_err(|error| TelemetryError::Begun(error.to_string()))?;
        if let Some(trouble) = trouble {
            warn!("no traces are sent: {trouble}");
        }
        Ok(Self { traces })
    }

    /// Sends what is still waiting. Returns after a few seconds even if nobody takes it.
    pub async fn flush(self) {
        if let Some(traces) = self.traces {
            traces.flush().await;
        }
    }
}
