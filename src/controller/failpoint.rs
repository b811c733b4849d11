//! Points at which a test may kill the process. Without the feature `failpoints` they are nothing.

use crate::instance::Step;

/// A place in the course of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The step is journaled as started; nothing is done yet.
    Started,
    /// It is done; the journal does not know it yet.
    Acted,
    /// The journal knows it.
    Recorded,
}

/// Kills the process if the environment variable `FAILPOINT` names this place, as
/// `started:create`, `acted:write-config` or `recorded:annotate`.
#[cfg(feature = "failpoints")]
pub(crate) fn hit(place: Place, step: Step) {
    let name = match place {
        Place::Started => "started",
        Place::Acted => "acted",
        Place::Recorded => "recorded",
    };
    let here = format!("{name}:{}", step.name());
    if std::env::var("FAILPOINT").is_ok_and(|wanted| wanted == here) {
        tracing::warn!(failpoint = here, "killing the process");
        let pid = std::process::id().to_string();
        let _ = std::process::Command::new("kill")
            .args(["-KILL", &pid])
            .status();
        loop {
            std::thread::park();
        }
    }
}

/// Nothing.
#[cfg(not(feature = "failpoints"))]
pub(crate) const fn hit(_place: Place, _step: Step) {}
