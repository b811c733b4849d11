//! The machine's clock and chance.

use crate::controller::ports::Clock;
use std::time::{Duration, SystemTime};

/// [`Clock`] of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// From the operating system; should it ever have none, from the time and the process's id.
    fn random(&self) -> u64 {
        getrandom::u64().unwrap_or_else(|_| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let nanos = since.unwrap_or_default().as_nanos();
            let seed = (nanos << 32) | u128::from(std::process::id());
            u64::try_from(seed % u128::from(u64::MAX)).unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_does_not_repeat_itself() {
        assert_ne!(SystemClock.random(), SystemClock.random());
    }
}
