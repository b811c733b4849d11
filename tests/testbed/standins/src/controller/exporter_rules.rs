//! What an Exporter's status says, as pure functions.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::objects::{Exporter, ExporterStatus, NameRef, set_condition};
use crate::config::Device;
use crate::wire;

/// The message that goes with a lost connection begins like this.
const LOST: &str = "Connection lost - ";

/// What a status is worked out from, beside the Exporter.
#[derive(Debug, Clone)]
pub struct Facts<'facts> {
    /// Name of the credential Secret, once it holds a valid token.
    pub credential: Option<&'facts str>,
    /// Where exporters connect to.
    pub endpoint: &'facts str,
    /// The lease that holds the exporter.
    pub lease: Option<&'facts str>,
    /// After this long without a sign of life an exporter counts as lost.
    pub offline_after: Duration,
}

/// The status by a look at everything, as at each event and once in a while.
#[must_use]
pub fn reconciled(exporter: &Exporter, facts: &Facts<'_>, now: Timestamp) -> ExporterStatus {
    let mut status = exporter.status.clone();
    let name_ref = |name: &str| NameRef {
        name: name.to_owned(),
    };
    // Once issued, a credential stays named while its Secret is renewed.
    status.credential = facts.credential.map(name_ref).or(status.credential);
    status.endpoint = Some(facts.endpoint.to_owned());
    status.lease_ref = facts.lease.map(name_ref);
    judge_registered(exporter, &mut status, now);
    judge_online(exporter, &mut status, facts.offline_after, now);
    status
}

/// How long until [`reconciled`] would find the exporter lost.
#[must_use]
pub fn lost_in(
    status: &ExporterStatus,
    offline_after: Duration,
    now: Timestamp,
) -> Option<Duration> {
    let silence = silence(status, now)?;
    // A second later than the limit: times are stored in whole seconds.
    Some(offline_after.checked_sub(silence)? + Duration::from_secs(1))
}

fn silence(status: &ExporterStatus, now: Timestamp) -> Option<Duration> {
    let last_seen = status.last_seen.as_ref()?;
    Some(Duration::try_from(now.duration_since(last_seen.0)).unwrap_or_default())
}

fn judge_registered(exporter: &Exporter, status: &mut ExporterStatus, now: Timestamp) {
    let registered = status.devices.is_some();
    let reason = if registered { "Register" } else { "Unregister" };
    let conditions = &mut status.conditions;
    set_condition(
        conditions,
        "Registered",
        registered,
        (reason, ""),
        &exporter.metadata,
        now,
    );
}

fn judge_online(
    exporter: &Exporter,
    status: &mut ExporterStatus,
    offline_after: Duration,
    now: Timestamp,
) {
    let (online, reason, message) = match silence(status, now) {
        None => (false, "Seen", "Never seen"),
        Some(silence) if silence > offline_after => {
            status.exporter_status = Some("Offline".into());
            status.status_message = Some(format!("{LOST}last seen more than 1 minute ago"));
            (false, "Seen", "Last seen more than 1 minute ago")
        }
        Some(_) if is_offline(status) => (false, "Offline", "Exporter shutdown"),
        Some(_) => (true, "Seen", "Last seen less than 1 minute ago"),
    };
    let conditions = &mut status.conditions;
    set_condition(
        conditions,
        "Online",
        online,
        (reason, message),
        &exporter.metadata,
        now,
    );
}

fn is_offline(status: &ExporterStatus) -> bool {
    status.exporter_status.as_deref() == Some("Offline")
}

/// After a registration.
#[must_use]
pub fn registered(exporter: &Exporter, devices: Vec<Device>, now: Timestamp) -> ExporterStatus {
    let mut status = seen(exporter, now);
    status.devices = Some(devices);
    judge_registered(exporter, &mut status, now);
    status
}

/// After a sign of life.
#[must_use]
pub fn seen(exporter: &Exporter, now: Timestamp) -> ExporterStatus {
    ExporterStatus {
        last_seen: Some(Time(now)),
        ..exporter.status.clone()
    }
}

/// After a session went on over a new connection. Its state isn't known until it
/// next changes: a verdict of loss is withdrawn, and nothing stands in its place.
#[must_use]
pub fn resumed(exporter: &Exporter, now: Timestamp) -> ExporterStatus {
    let mut status = seen(exporter, now);
    if status
        .status_message
        .as_ref()
        .is_some_and(|message| message.starts_with(LOST))
    {
        status.exporter_status = None;
        status.status_message = None;
    }
    status
}

/// After the exporter reported a state.
#[must_use]
pub fn reported(
    exporter: &Exporter,
    state: wire::ExporterStatus,
    message: &str,
    now: Timestamp,
) -> ExporterStatus {
    let mut status = seen(exporter, now);
    status.exporter_status = Some(state.as_str().into());
    status.status_message = Some(message.into());
    let online = state != wire::ExporterStatus::Offline;
    let reason = if online { "StatusReported" } else { "Offline" };
    let conditions = &mut status.conditions;
    set_condition(
        conditions,
        "Online",
        online,
        (reason, message),
        &exporter.metadata,
        now,
    );
    status
}

/// After the exporter took its leave.
#[must_use]
pub fn unregistered(exporter: &Exporter, now: Timestamp) -> ExporterStatus {
    let mut status = reported(
        exporter,
        wire::ExporterStatus::Offline,
        "Exporter shutdown",
        now,
    );
    status.devices = None;
    judge_registered(exporter, &mut status, now);
    status
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::wire::ExporterStatus::Available;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn facts() -> Facts<'static> {
        Facts {
            credential: None,
            endpoint: "a:1",
            lease: None,
            offline_after: MINUTE,
        }
    }

    fn with(status: ExporterStatus) -> Exporter {
        Exporter {
            status,
            ..Exporter::default()
        }
    }

    /// Status, reason and message of `Online`, and the exporter's state.
    fn online(status: &ExporterStatus) -> (&str, &str, &str, Option<&str>) {
        let online = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Online");
        let online = online.unwrap();
        (
            &online.status,
            &online.reason,
            &online.message,
            status.exporter_status.as_deref(),
        )
    }

    #[test]
    fn a_life_from_never_seen_to_lost() {
        let status = reconciled(&Exporter::default(), &facts(), at(0));
        assert_eq!(online(&status), ("False", "Seen", "Never seen", None));

        let status = registered(&with(status), Vec::new(), at(10));
        assert!(with(status.clone()).has("Registered"));
        let status = reported(&with(status), Available, "Available", at(10));
        assert_eq!(
            online(&status),
            ("True", "StatusReported", "Available", Some("Available"))
        );

        let status = reconciled(&with(status), &facts(), at(70));
        assert_eq!(
            online(&status).0,
            "True",
            "a minute is not more than a minute"
        );
        let status = reconciled(&with(status), &facts(), at(71));
        let lost = "Last seen more than 1 minute ago";
        assert_eq!(online(&status), ("False", "Seen", lost, Some("Offline")));
        assert!(
            status
                .status_message
                .as_ref()
                .unwrap()
                .starts_with("Connection lost - ")
        );
        assert!(with(status.clone()).has("Registered"), "a loss is no leave");

        let status = reconciled(&with(resumed(&with(status), at(90))), &facts(), at(90));
        assert_eq!(online(&status).0, "True");
        assert_eq!(
            status.exporter_status, None,
            "unknown until the next report"
        );
    }

    #[test]
    fn a_leave_is_offline_at_once_and_lost_a_minute_later() {
        let status = registered(&Exporter::default(), Vec::new(), at(0));
        let status = unregistered(&with(status), at(5));
        let shut_down = ("False", "Offline", "Exporter shutdown", Some("Offline"));
        assert_eq!(online(&status), shut_down);
        assert!(!with(status.clone()).has("Registered") && status.devices.is_none());
        let status = reconciled(&with(status), &facts(), at(6));
        assert_eq!(online(&status), shut_down);
        assert_eq!(
            online(&reconciled(&with(status), &facts(), at(66))).1,
            "Seen"
        );
    }

    #[test]
    fn credential_endpoint_and_lease_are_set_and_only_the_lease_is_cleared() {
        let full = Facts {
            credential: Some("x1-exporter"),
            lease: Some("l1"),
            ..facts()
        };
        let status = reconciled(&Exporter::default(), &full, at(0));
        assert_eq!(
            status.credential,
            Some(NameRef {
                name: "x1-exporter".into()
            })
        );
        assert_eq!(status.lease_ref, Some(NameRef { name: "l1".into() }));
        assert_eq!(status.endpoint.as_deref(), Some("a:1"));
        let later = reconciled(&with(status.clone()), &facts(), at(0));
        assert_eq!(
            (later.credential, later.lease_ref),
            (status.credential, None)
        );
    }

    #[test]
    fn the_next_look_comes_after_the_limit() {
        let status = seen(&Exporter::default(), at(0));
        assert_eq!(
            lost_in(&status, MINUTE, at(20)),
            Some(Duration::from_secs(41))
        );
        assert_eq!(lost_in(&status, MINUTE, at(61)), None);
        assert_eq!(lost_in(&ExporterStatus::default(), MINUTE, at(0)), None);
    }
}
