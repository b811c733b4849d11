//! How an exporter bears a controller that is away.

use std::time::Duration;

/// An outage up to this long goes unnoticed by the session.
const SESSION_LIMIT: Duration = Duration::from_millis(2500);
/// When a process that ends with its session is gone.
const ENDING_LIMIT: Duration = Duration::from_secs(6);
/// When a process that starts new sessions has had five failures.
const RETRYING_LIMIT: Duration = Duration::from_millis(11_500);
/// Pause between attempts of a session that doesn't wait for the controller.
const RETRY: Duration = Duration::from_millis(500);
/// First pause of a session that does; it grows by [`BACKOFF_FACTOR`].
const BACKOFF: Duration = Duration::from_secs(1);
const BACKOFF_FACTOR: f64 = 1.6;

/// What to do at some moment of an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Try to connect and go on with the session; then pause.
    Resume(Duration),
    /// Try to connect and start a new session; then pause.
    Register(Duration),
    /// The session is lost; wait for the end.
    Wait(Duration),
    /// End the process with exit code 0.
    GiveUp,
}

/// The rules that the configuration and the process's past lead to.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The connection's options make calls wait for the controller.
    pub waits_for_controller: bool,
    /// Upper bound of the pause between attempts.
    pub max_backoff: Duration,
    /// The process ends with its session.
    pub exit_on_lease_end: bool,
}

impl Patience {
    /// What to do `elapsed` after the connection broke (or the process began),
    /// at the given attempt (from 0); `in_session` if there was a session.
    #[must_use]
    pub fn next(&self, elapsed: Duration, attempt: u32, in_session: bool) -> Move {
        let go_on = |pause| {
            if in_session {
                Move::Resume(pause)
            } else {
                Move::Register(pause)
            }
        };
        if self.waits_for_controller {
            let factor = BACKOFF_FACTOR.powi(attempt.min(16).cast_signed());
            return go_on(BACKOFF.mul_f64(factor).min(self.max_backoff));
        }
        let limit = if self.exit_on_lease_end {
            ENDING_LIMIT
        } else {
            RETRYING_LIMIT
        };
        if elapsed >= limit {
            Move::GiveUp
        } else if elapsed <= SESSION_LIMIT {
            go_on(RETRY)
        } else if self.exit_on_lease_end && in_session {
            Move::Wait(limit.saturating_sub(elapsed))
        } else {
            Move::Register(RETRY)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Patience = Patience {
        waits_for_controller: false,
        max_backoff: Duration::from_secs(120),
        exit_on_lease_end: true,
    };

    fn at(patience: Patience, millis: u64) -> Move {
        patience.next(Duration::from_millis(millis), 0, true)
    }

    #[test]
    fn a_short_outage_is_bridged_and_a_long_one_ends_the_process() {
        assert_eq!(at(PLAIN, 0), Move::Resume(RETRY));
        assert_eq!(at(PLAIN, 2500), Move::Resume(RETRY));
        assert_eq!(at(PLAIN, 3000), Move::Wait(Duration::from_secs(3)));
        assert_eq!(at(PLAIN, 6000), Move::GiveUp);
    }

    #[test]
    fn without_exit_on_lease_end_new_sessions_are_tried_first() {
        let reuse = Patience {
            exit_on_lease_end: false,
            ..PLAIN
        };
        assert_eq!(at(reuse, 2000), Move::Resume(RETRY));
        assert_eq!(at(reuse, 6000), Move::Register(RETRY));
        assert_eq!(at(reuse, 11_500), Move::GiveUp);
    }

    #[test]
    fn options_that_wait_never_give_up() {
        let max_backoff = Duration::from_secs(5);
        let waiting = Patience {
            waits_for_controller: true,
            max_backoff,
            ..PLAIN
        };
        let hour = Duration::from_secs(3600);
        assert_eq!(waiting.next(Duration::ZERO, 0, true), Move::Resume(BACKOFF));
        assert_eq!(
            waiting.next(hour, u32::MAX, true),
            Move::Resume(max_backoff)
        );
        assert_eq!(
            waiting.next(hour, 3, false),
            Move::Register(BACKOFF.mul_f64(4.096))
        );
    }
}
