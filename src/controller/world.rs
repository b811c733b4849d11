//! The outside, bundled: one type parameter instead of five.

use super::ports::{Clock, Cluster, Hosts, Journal, Leadership};
use std::time::{SystemTime, UNIX_EPOCH};

/// The outside.
pub trait World: Send + Sync + 'static {
    /// The cluster.
    type Cluster: Cluster;
    /// The lab hosts.
    type Hosts: Hosts;
    /// The journal.
    type Journal: Journal;
    /// Time and chance.
    type Clock: Clock;
    /// The leadership.
    type Leadership: Leadership;

    /// The cluster.
    fn cluster(&self) -> &Self::Cluster;
    /// The lab hosts.
    fn hosts(&self) -> &Self::Hosts;
    /// The journal.
    fn journal(&self) -> &Self::Journal;
    /// Time and chance.
    fn clock(&self) -> &Self::Clock;
    /// The leadership.
    fn leadership(&self) -> &Self::Leadership;
}

/// An outside made of its parts.
pub struct Parts<C, H, J, K, L> {
    /// The cluster.
    pub cluster: C,
    /// The lab hosts.
    pub hosts: H,
    /// The journal.
    pub journal: J,
    /// Time and chance.
    pub clock: K,
    /// The leadership.
    pub leadership: L,
}

impl<C: Cluster, H: Hosts, J: Journal, K: Clock, L: Leadership> World for Parts<C, H, J, K, L> {
    type Cluster = C;
    type Hosts = H;
    type Journal = J;
    type Clock = K;
    type Leadership = L;

    fn cluster(&self) -> &C {
        &self.cluster
    }

    fn hosts(&self) -> &H {
        &self.hosts
    }

    fn journal(&self) -> &J {
        &self.journal
    }

    fn clock(&self) -> &K {
        &self.clock
    }

    fn leadership(&self) -> &L {
        &self.leadership
    }
}

/// `time` as milliseconds since the Unix epoch; 0 for what lies before it.
#[must_use]
pub fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
