//! Which lease gets which exporter, as pure functions.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::duration;
use super::objects::{Exporter, Lease, LeaseStatus, NameRef, selects, set_condition};

/// What becomes of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing changes; look again at the given time.
    Keep(Option<Timestamp>),
    /// It waits.
    Pending(Reason),
    /// It gets this exporter.
    Assign(String),
    /// It can't be satisfied and ends.
    Unsatisfiable(Reason),
    /// It ends: released by its holder, or its time is over.
    End(Reason),
}

/// A condition's reason and message.
pub type Reason = (&'static str, String);

/// Decides on one lease, given the exporters of its namespace and the names of
/// those that leases hold.
#[must_use]
pub fn decide(
    lease: &Lease,
    exporters: &[&Exporter],
    leased: &BTreeSet<String>,
    now: Timestamp,
) -> Decision {
    if lease.status.ended {
        return Decision::Keep(None);
    }
    if lease.spec.release {
        return Decision::End(("Released", "The lease was marked for release".into()));
    }
    let end = end_time(lease);
    if end.is_some_and(|end| end <= now) {
        return Decision::End(("Expired", "The lease has expired".into()));
    }
    if lease.exporter().is_some() {
        return Decision::Keep(end);
    }
    // Without a condition: a lease for later isn't demand yet.
    if let Some(begin) = lease.spec.begin_time.as_ref().filter(|begin| begin.0 > now) {
        return Decision::Keep(Some(begin.0));
    }
    match candidates(lease, exporters) {
        Ok(candidates) => choose(&candidates, leased),
        Err(reason) => Decision::Unsatisfiable(reason),
    }
}

/// When the lease is over: its duration after it began, or its end time if that is earlier.
fn end_time(lease: &Lease) -> Option<Timestamp> {
    let begin = lease.status.begin_time.as_ref().map(|begin| begin.0);
    let duration = lease
        .spec
        .duration
        .as_ref()
        .and_then(|text| duration::parse(text).ok());
    let by_duration = begin
        .zip(duration)
        .and_then(|(begin, duration)| begin.checked_add(duration).ok());
    let by_time = lease.spec.end_time.as_ref().map(|end| end.0);
    by_duration.into_iter().chain(by_time).min()
}

/// The enabled exporters that the lease may have; never none.
fn candidates<'all>(
    lease: &Lease,
    exporters: &[&'all Exporter],
) -> Result<Vec<&'all Exporter>, Reason> {
    let name = lease
        .spec
        .exporter_ref
        .as_ref()
        .map(|reference| reference.name.as_str());
    let name = name.filter(|name| !name.is_empty());
    let mut matching = Vec::new();
    for exporter in exporters {
        let labels = exporter.metadata.labels.clone().unwrap_or_default();
        match selects(&lease.spec.selector, &labels) {
            Some(true) => matching.push(*exporter),
            Some(false) => {}
            None => return Err(("InvalidSelector", "The selector is malformed".into())),
        }
    }
    let Some(name) = name else {
        if matching.is_empty() {
            return Err((
                "NoAccess",
                "While there are 0 exporters matching the selector, none can be leased".into(),
            ));
        }
        matching.retain(|exporter| exporter.is_enabled());
        if matching.is_empty() {
            return Err(("AllDisabled", "All matching exporters are disabled".into()));
        }
        return Ok(matching);
    };
    let is_named = |exporter: &&Exporter| exporter.metadata.name.as_deref() == Some(name);
    if !exporters.iter().any(|exporter| is_named(exporter)) {
        return Err(("ExporterNotFound", format!("Exporter {name} not found")));
    }
    matching.retain(is_named);
    if matching.is_empty() {
        return Err((
            "NoAccess",
            format!("Exporter {name} doesn't match the selector"),
        ));
    }
    if !lease.spec.allow_disabled && !matching.iter().all(|exporter| exporter.is_enabled()) {
        return Err(("ExporterDisabled", format!("Exporter {name} is disabled")));
    }
    Ok(matching)
}

/// The first candidate that is there, free and ready. One that is being deleted counts as any other.
fn choose(candidates: &[&Exporter], leased: &BTreeSet<String>) -> Decision {
    let mut left: Vec<&Exporter> = candidates.to_vec();
    left.retain(|exporter| exporter.has("Online") && exporter.has("Registered"));
    if left.is_empty() {
        let message = "While there are matching exporters, none of them are online".into();
        return Decision::Pending(("Offline", message));
    }
    let name = |exporter: &Exporter| exporter.metadata.name.clone().unwrap_or_default();
    left.retain(|exporter| !leased.contains(&name(exporter)));
    if left.is_empty() {
        let message = "While there are online exporters, all of them are leased".into();
        return Decision::Pending(("NotAvailable", message));
    }
    // No state counts as ready: older exporters report none.
    let ready = [None, Some(""), Some("Unspecified"), Some("Available")];
    left.retain(|exporter| ready.contains(&exporter.status.exporter_status.as_deref()));
    match left.first() {
        Some(exporter) => Decision::Assign(name(exporter)),
        None => {
            let message = "While there are free exporters, none of them are ready".into();
            Decision::Pending(("NotReady", message))
        }
    }
}

/// The lease's status after a decision.
#[must_use]
pub fn decided(lease: &Lease, decision: &Decision, now: Timestamp) -> LeaseStatus {
    let mut status = lease.status.clone();
    let mut set = |kind: &str, value: bool, reason: &str, message: &str| {
        let conditions = &mut status.conditions;
        set_condition(
            conditions,
            kind,
            value,
            (reason, message),
            &lease.metadata,
            now,
        );
    };
    match decision {
        Decision::Keep(_) => {}
        Decision::Pending((reason, message)) => set("Pending", true, reason, message),
        Decision::Assign(exporter) => {
            // Pending stays as it is, beside Ready.
            set(
                "Ready",
                true,
                "Ready",
                "An exporter has been acquired for the client",
            );
            status.exporter_ref = Some(NameRef {
                name: exporter.clone(),
            });
            status.begin_time = Some(Time(now));
        }
        Decision::Unsatisfiable((reason, message)) => {
            set("Unsatisfiable", true, reason, message);
            status.ended = true;
            status.end_time = Some(Time(now));
        }
        Decision::End((reason, message)) => {
            set("Ready", false, reason, message);
            status.ended = true;
            status.end_time = Some(Time(now));
        }
    }
    status
}

#[cfg(test)]
#[path = "lease_rules_tests.rs"]
mod tests;
