//! What a candidate does about the leader Lease: client-go's rules, as a function of what was read.

use k8s_openapi::api::coordination::v1::LeaseSpec;
use std::time::Duration;

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// There is no Lease: create it, and lead with epoch 0.
    Create,
    /// Nobody holds it, or its holder is silent: take it over, with the next epoch.
    Take {
        /// The epoch of the new term.
        epoch: u64,
    },
    /// It is ours: write that we are still there.
    Renew {
        /// The epoch of the running term.
        epoch: u64,
    },
    /// Somebody else holds it.
    Wait,
}

/// Decides for the candidate `me`.
///
/// `unchanged_for` is how long *we* have seen the record as it is, by our monotonic clock: wall
/// clocks of two machines are never compared. `usual` stands in for a duration that the record
/// lacks.
pub(super) fn decide(
    record: Option<&LeaseSpec>,
    me: &str,
    unchanged_for: Duration,
    usual: Duration,
) -> Decision {
    let Some(record) = record else {
        return Decision::Create;
    };
    let epoch = epoch(record);
    let holder = record.holder_identity.as_deref().unwrap_or_default();
    if holder == me {
        return Decision::Renew { epoch };
    }
    if holder.is_empty() || unchanged_for >= duration(record, usual) {
        return Decision::Take {
            epoch: epoch.saturating_add(1),
        };
    }
    Decision::Wait
}

fn epoch(record: &LeaseSpec) -> u64 {
    let transitions = record.lease_transitions.unwrap_or_default();
    u64::try_from(transitions).unwrap_or_default()
}

/// How long the holder may be silent.
fn duration(record: &LeaseSpec, usual: Duration) -> Duration {
    let seconds = record.lease_duration_seconds.unwrap_or_default();
    match u64::try_from(seconds) {
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const USUAL: Duration = Duration::from_secs(15);

    fn record(holder: Option<&str>, seconds: Option<i32>, transitions: Option<i32>) -> LeaseSpec {
        LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: seconds,
            lease_transitions: transitions,
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn who_may_do_what() {
        let other = record(Some("other"), Some(15), Some(4));
        let bare = record(Some("other"), None, None);
        let long = record(Some("other"), Some(60), Some(4));
        let table = [
            ("no Lease", None, 0, Decision::Create),
            ("held", Some(&other), 0, Decision::Wait),
            ("held, nearly expired", Some(&other), 14_999, Decision::Wait),
            ("expired", Some(&other), 15_000, Decision::Take { epoch: 5 }),
            (
                "the record's own duration counts",
                Some(&long),
                15_000,
                Decision::Wait,
            ),
            ("no duration: ours", Some(&bare), 14_999, Decision::Wait),
            (
                "no transitions: 0",
                Some(&bare),
                15_000,
                Decision::Take { epoch: 1 },
            ),
            (
                "released",
                Some(&record(Some(""), Some(1), Some(4))),
                0,
                Decision::Take { epoch: 5 },
            ),
            (
                "never held",
                Some(&record(None, None, None)),
                0,
                Decision::Take { epoch: 1 },
            ),
            (
                "ours",
                Some(&record(Some("me"), Some(15), Some(4))),
                0,
                Decision::Renew { epoch: 4 },
            ),
            (
                "ours, though late",
                Some(&record(Some("me"), Some(15), Some(4))),
                60_000,
                Decision::Renew { epoch: 4 },
            ),
            (
                "nonsense is no shorter term",
                Some(&record(Some("other"), Some(-1), Some(-7))),
                14_999,
                Decision::Wait,
            ),
        ];
        for (case, record, millis, expected) in table {
            let decision = decide(record, "me", Duration::from_millis(millis), USUAL);
            assert_eq!(decision, expected, "{case}");
        }
    }

    proptest! {
        /// A Lease that somebody else renews in time is never taken.
        #[test]
        fn nothing_is_stolen(seconds in 1i32..60, transitions in any::<i32>(), millis in 0u64..60_000) {
            let record = record(Some("other"), Some(seconds), Some(transitions));
            let unchanged = Duration::from_millis(millis);
            let alive = millis < u64::try_from(seconds).unwrap_or_default() * 1000;
            let decision = decide(Some(&record), "me", unchanged, USUAL);
            prop_assert_eq!(alive, decision == Decision::Wait);
        }
    }
}
