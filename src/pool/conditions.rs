//! The four conditions of a set, in upstream's words, and the Events of their changes.

use super::{Census, Demand};
use crate::instance::Failure;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Why the set as a whole can't be served; forces `Available=False` with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// CamelCase reason.
    pub reason: String,
    /// What is wrong, where, and what to do.
    pub message: String,
}

/// An instance that is stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The Exporter's name.
    pub exporter: String,
    /// Why.
    pub failure: Failure,
}

/// A change of a condition that people are told of by an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// CamelCase reason of the Event.
    pub reason: &'static str,
    /// The condition's message.
    pub message: String,
}

struct Finding {
    status: bool,
    reason: String,
    message: String,
}

fn finding(status: bool, reason: &str, message: impl Into<String>) -> Finding {
    Finding {
        status,
        reason: reason.to_owned(),
        message: message.into(),
    }
}

/// A condition's type, and the Events when it turns True and False, each with whether it warns.
type Row = (&'static str, (bool, &'static str), (bool, &'static str));

const AVAILABLE: Row = (
    "Available",
    (false, "ExporterSetAvailable"),
    (true, "ExporterSetUnavailable"),
);
const PROGRESSING: Row = (
    "Progressing",
    (false, "ExporterSetProgressing"),
    (false, "ExporterSetSettled"),
);
const DEGRADED: Row = (
    "Degraded",
    (true, "ExporterSetDegraded"),
    (false, "ExporterSetRecovered"),
);
const LIMITED: Row = (
    "ScalingLimited",
    (true, "ScalingLimited"),
    (false, "ScalingUnlimited"),
);

/// The conditions after `old`, and what changed. `lastTransitionTime` moves only with the status.
#[must_use]
pub fn conditions(
    old: &[Condition],
    census: &Census,
    demand: &Demand,
    verdict: Option<&Verdict>,
    stuck: &[Stuck],
    generation: Option<i64>,
    now: &Time,
) -> (Vec<Condition>, Vec<Turn>) {
    let found = [
        (AVAILABLE, available(census, demand, verdict)),
        (PROGRESSING, progressing(census)),
        (DEGRADED, degraded(census, verdict, stuck)),
        (LIMITED, limited(census, demand)),
    ];
    let mut conditions = Vec::with_capacity(found.len());
    let mut turns = Vec::new();
    for ((type_, on_true, on_false), finding) in found {
        let before = old.iter().find(|condition| condition.type_ == type_);
        let status = if finding.status { "True" } else { "False" };
        let same = before.filter(|condition| condition.status == status);
        let (warning, reason) = if finding.status { on_true } else { on_false };
        if same.is_none() && (before.is_some() || warning) {
            turns.push(Turn {
                warning,
                reason,
                message: finding.message.clone(),
            });
        }
        conditions.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: finding.reason,
            message: finding.message,
            observed_generation: generation,
            last_transition_time: same.map_or_else(
                || now.clone(),
                |condition| condition.last_transition_time.clone(),
            ),
        });
    }
    (conditions, turns)
}

fn available(census: &Census, demand: &Demand, verdict: Option<&Verdict>) -> Finding {
    let (ready, replicas, min) = (census.ready, census.replicas, demand.min);
    if let Some(verdict) = verdict {
        finding(false, &verdict.reason, verdict.message.clone())
    } else if min == 0 && replicas == 0 {
        finding(true, "NoReplicasRequired", "No minimum replicas configured")
    } else if ready >= min {
        finding(
            true,
            "MinimumReplicasAvailable",
            format!("{ready}/{min} replicas ready"),
        )
    } else {
        finding(
            false,
            "MinimumReplicasUnavailable",
            format!("{ready}/{replicas} replicas ready, need {min}"),
        )
    }
}

fn progressing(census: &Census) -> Finding {
    if census.pending > 0 {
        finding(
            true,
            "PodsStarting",
            format!("{} pod(s) pending", census.pending),
        )
    } else if census.offline > 0 {
        finding(
            true,
            "ReplicasNotReady",
            format!("{} replica(s) not yet ready", census.offline),
        )
    } else {
        finding(false, "AllReplicasReady", "All replicas are ready")
    }
}

fn degraded(census: &Census, verdict: Option<&Verdict>, stuck: &[Stuck]) -> Finding {
    if let Some(verdict) = verdict {
        finding(true, &verdict.reason, verdict.message.clone())
    } else if let Some(first) = stuck.first() {
        let others = match stuck.len() {
            1 => String::new(),
            count => format!(" (and {} more exporter(s) stuck)", count - 1),
        };
        let message = format!("{}: {}{others}", first.exporter, first.failure);
        finding(true, first.failure.class.reason(), message)
    } else if census.offline > 0 && census.pending == 0 {
        let message = format!(
            "{} exporter(s) not ready with no pending pods",
            census.offline
        );
        finding(true, "ExportersOffline", message)
    } else {
        finding(false, "AllReplicasHealthy", "No degraded replicas")
    }
}

fn limited(census: &Census, demand: &Demand) -> Finding {
    let (max, available, need) = (demand.max, census.available, demand.min_available);
    if max > 0 && census.replicas >= max && available < need {
        let message =
            format!("Cannot scale beyond {max} replicas; {available} available, need {need}");
        finding(true, "AtMaxReplicas", message)
    } else {
        finding(false, "WithinLimits", "Scaling is not constrained")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::instance::FailureClass;
    use k8s_openapi::jiff::Timestamp;
    use std::time::Duration;

    const DEMAND: Demand = Demand {
        min: 0,
        max: 4,
        min_available: 1,
        waiting_leases: 0,
        cooldown: Duration::from_secs(300),
    };

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn found(census: Census, demand: Demand, verdict: Option<&Verdict>, stuck: &[Stuck]) -> String {
        let (conditions, _) = conditions(&[], &census, &demand, verdict, stuck, Some(3), &at(0));
        conditions
            .iter()
            .map(|c| format!("{}={} {} {}\n", c.type_, c.status, c.reason, c.message))
            .collect()
    }

    #[test]
    fn upstreams_words() {
        let one = Census {
            replicas: 1,
            ..Census::default()
        };
        let cases = [
            ("empty", Census::default(), DEMAND),
            (
                "on its way",
                Census {
                    pending: 1,
                    offline: 1,
                    promised: 1,
                    ..one
                },
                DEMAND,
            ),
            (
                "ready",
                Census {
                    ready: 1,
                    available: 1,
                    idle: 1,
                    running: 1,
                    ..one
                },
                DEMAND,
            ),
            (
                "too few",
                Census {
                    offline: 1,
                    running: 1,
                    ..one
                },
                Demand { min: 2, ..DEMAND },
            ),
            (
                "full",
                Census {
                    ready: 1,
                    leased: 1,
                    active: 1,
                    ..one
                },
                Demand { max: 1, ..DEMAND },
            ),
        ];
        let text: String = cases
            .into_iter()
            .map(|(name, census, demand)| format!("{name}\n{}", found(census, demand, None, &[])))
            .collect();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_stuck_exporter_is_named_with_its_remedy() {
        let failure = Failure::new(FailureClass::ConnectionRefused, "root@lab:22: refused");
        let stuck = [
            Stuck {
                exporter: "pool-a".into(),
                failure: failure.clone(),
            },
            Stuck {
                exporter: "pool-b".into(),
                failure,
            },
        ];
        let text = found(
            Census {
                failed: 2,
                ..Census::default()
            },
            DEMAND,
            None,
            &stuck,
        );
        let want = "Degraded=True ConnectionRefused pool-a: QS102 ConnectionRefused: root@lab:22: refused; check parameters.host.port and that sshd runs on the host (and 1 more exporter(s) stuck)";
        assert!(text.contains(want), "{text}");
    }

    #[test]
    fn a_verdict_forces_unavailable() {
        let verdict = Verdict {
            reason: "VirtualTargetClassNotFound".into(),
            message: "VirtualTargetClass \"x\" not found".into(),
        };
        let text = found(Census::default(), DEMAND, Some(&verdict), &[]);
        let want = "Available=False VirtualTargetClassNotFound VirtualTargetClass \"x\" not found";
        assert!(text.starts_with(want), "{text}");
    }

    #[test]
    fn only_a_change_of_status_moves_the_time_and_is_told() {
        let pending = Census {
            replicas: 1,
            pending: 1,
            offline: 1,
            ..Census::default()
        };
        let (first, turns) = conditions(&[], &pending, &DEMAND, None, &[], Some(1), &at(10));
        assert_eq!(turns, []);
        let ready = Census {
            replicas: 1,
            ready: 1,
            available: 1,
            idle: 1,
            running: 1,
            ..Census::default()
        };
        let (second, turns) = conditions(&first, &ready, &DEMAND, None, &[], Some(2), &at(20));
        let told: Vec<_> = turns
            .iter()
            .map(|turn| (turn.warning, turn.reason))
            .collect();
        assert_eq!(told, [(false, "ExporterSetSettled")]);
        let times: Vec<_> = second
            .iter()
            .map(|c| c.last_transition_time.0.as_second())
            .collect();
        assert_eq!(times, [10, 20, 10, 10]);
        assert!(second.iter().all(|c| c.observed_generation == Some(2)));
    }
}
