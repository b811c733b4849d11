//! Which log lines are written.

use super::TelemetryError;
use tracing_subscriber::EnvFilter;

/// Our own code; the level that is asked for is meant for it.
const OURS: [&str; 2] = ["exporter_set_controller", "journal"];

/// What never speaks louder than this, whatever is asked for: kube's client logs whole bodies that
/// it can't parse, which may be a Secret's, and below `info` the others log headers and frames.
/// `kube_runtime` repeats what our watches say themselves.
const CAPPED: [&str; 9] = [
    "kube_client::client=error",
    "kube_runtime=error",
    "h2=info",
    "hyper=info",
    "hyper_util=info",
    "russh=info",
    "rustls=info",
    "tonic=info",
    "tower=info",
];

/// The filter for `level`, else for `rust_log`, else for `info`.
pub(super) fn from(
    level: Option<&str>,
    rust_log: Option<String>,
) -> Result<EnvFilter, TelemetryError> {
    let wanted = match (level, rust_log.filter(|text| !text.trim().is_empty())) {
        (Some(level), _) => for_level(level),
        (None, Some(text)) => text,
        (None, None) => for_level("info"),
    };
    let problem = |error: &dyn std::fmt::Display| TelemetryError::Filter {
        filter: wanted.clone(),
        problem: error.to_string(),
    };
    let mut filter = EnvFilter::try_new(&wanted).map_err(|error| problem(&error))?;
    for directive in CAPPED {
        let directive = directive.parse().map_err(|error| problem(&error))?;
        filter = filter.add_directive(directive);
    }
    Ok(filter)
}

/// `level` for our code; for everybody else at most `info`.
fn for_level(level: &str) -> String {
    match level {
        "debug" | "trace" => {
            let ours = OURS.map(|target| format!("{target}={level}"));
            format!("info,{}", ours.join(","))
        }
        other => other.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shown(level: Option<&str>, rust_log: Option<&str>) -> Vec<String> {
        let filter = from(level, rust_log.map(str::to_owned))
            .unwrap()
            .to_string();
        let mut all: Vec<_> = filter.split(',').map(str::to_owned).collect();
        all.retain(|directive| !CAPPED.contains(&directive.as_str()));
        all.sort();
        all
    }

    #[test]
    fn a_level_wins_over_rust_log_and_debug_is_for_our_own_code() {
        assert_eq!(shown(None, None), ["info"]);
        assert_eq!(shown(None, Some("")), ["info"]);
        assert_eq!(shown(Some("warn"), Some("debug")), ["warn"]);
        assert_eq!(
            shown(Some("debug"), None),
            ["exporter_set_controller=debug", "info", "journal=debug"]
        );
        assert_eq!(shown(None, Some("russh=warn,error")), ["error"]);
    }

    #[test]
    fn who_could_log_a_secret_is_capped_whatever_is_asked_for() {
        for rust_log in ["trace", "kube_client::client=trace,hyper=trace"] {
            let filter = from(None, Some(rust_log.to_owned())).unwrap().to_string();
            for directive in CAPPED {
                assert!(
                    filter.split(',').any(|d| d == directive),
                    "{directive} in {filter}"
                );
            }
            assert!(!filter.contains("kube_client::client=trace"), "{filter}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_was_given() {
        let error = from(Some("a=b=c"), None).unwrap_err().to_string();
        assert!(error.contains("'a=b=c'"), "{error}");
    }
}
