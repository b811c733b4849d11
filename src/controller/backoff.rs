//! When a failed step is tried again, and which retries are journaled.

use crate::instance::Retry;
use std::time::Duration;

/// The wait after the `attempt`-th failure in a row (1 is the first): doubling, capped, and spread
/// by ±20 % with `random` so that what failed together does not come back together.
#[must_use]
pub(crate) fn delay(retry: Retry, attempt: u32, random: u64) -> Duration {
    let (first, cap) = match retry {
        Retry::Soon => (1_000_u64, 60_000),
        Retry::Seldom => (5_000, 300_000),
    };
    let doublings = attempt.saturating_sub(1).min(16);
    let base = first.saturating_mul(1 << doublings).min(cap);
    let spread = base / 5 * 2;
    let offset = if spread == 0 {
        0
    } else {
        random % (spread + 1)
    };
    Duration::from_millis(base - base / 5 + offset)
}

/// Whether the `attempt`-th failure in a row is journaled: 1, 2, 4, 8 …, so that the journal does
/// not grow while a host is down for a week.
#[must_use]
pub(crate) const fn is_journaled(attempt: u32) -> bool {
    attempt.is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn doubles_up_to_the_cap() {
        let middle = |retry, attempt| {
            let (low, high) = (delay(retry, attempt, 0), delay(retry, attempt, u64::MAX));
            (low.as_millis(), high.as_millis() >= low.as_millis())
        };
        assert_eq!(middle(Retry::Soon, 1), (800, true));
        assert_eq!(middle(Retry::Soon, 4), (6_400, true));
        assert_eq!(middle(Retry::Soon, 40), (48_000, true));
        assert_eq!(middle(Retry::Seldom, 1), (4_000, true));
        assert_eq!(middle(Retry::Seldom, u32::MAX), (240_000, true));
    }

    #[test]
    fn a_week_of_retries_takes_few_records() {
        let week = 7 * 24 * 60; // One retry a minute.
        assert_eq!(
            (1..=week).filter(|attempt| is_journaled(*attempt)).count(),
            14
        );
    }

    proptest! {
        #[test]
        fn stays_within_a_fifth_of_the_cap(attempt: u32, random: u64) {
            prop_assert!(delay(Retry::Soon, attempt, random) <= Duration::from_secs(72));
            prop_assert!(delay(Retry::Soon, attempt, random) >= Duration::from_millis(800));
        }
    }
}
