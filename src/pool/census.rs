//! The members of a set and their numbers.

/// How far an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// On its way up.
    Pending,
    /// Up, as far as the host said last.
    Running,
    /// Stuck: its last step failed.
    Failed,
    /// On its way out.
    Draining,
}

/// One exporter of the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The Exporter's name.
    pub name: String,
    /// How far its instance is.
    pub phase: Phase,
    /// Whether the condition Online is True.
    pub online: bool,
    /// Whether it may be leased.
    pub enabled: bool,
    /// Whether a lease holds it.
    pub leased: bool,
    /// When it was created, in seconds since the Unix epoch: the newest goes first.
    pub created: i64,
}

impl Member {
    /// Online, enabled and unleased: it can serve at once.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        self.online && self.enabled && !self.leased && !matches!(self.phase, Phase::Draining)
    }

    /// It can serve, now or when it is up.
    #[must_use]
    pub const fn is_promised(&self) -> bool {
        self.enabled && !self.leased && !matches!(self.phase, Phase::Draining)
    }
}

/// The numbers of a set, as its status has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// All of them.
    pub replicas: i32,
    /// Those online.
    pub ready: i32,
    /// Those online, enabled and unleased.
    pub available: i32,
    /// Those leased.
    pub leased: i32,
    /// Those available, or on their way to be.
    pub promised: i32,
    /// Online and leased.
    pub active: i32,
    /// Online and unleased.
    pub idle: i32,
    /// Disabled.
    pub disabled: i32,
    /// Enabled and offline.
    pub offline: i32,
    /// Instances on their way up or out.
    pub pending: i32,
    /// Instances that are up.
    pub running: i32,
    /// Instances that are stuck.
    pub failed: i32,
}

impl Census {
    /// Counts.
    #[must_use]
    pub fn of(members: &[Member]) -> Self {
        let mut census = Self::default();
        for member in members {
            census.count(member);
        }
        census
    }

    fn count(&mut self, member: &Member) {
        self.replicas += 1;
        self.ready += i32::from(member.online);
        self.available += i32::from(member.is_available());
        self.leased += i32::from(member.leased);
        self.promised += i32::from(member.is_promised());
        *match (member.enabled, member.online, member.leased) {
            (false, _, _) => &mut self.disabled,
            (true, false, _) => &mut self.offline,
            (true, true, true) => &mut self.active,
            (true, true, false) => &mut self.idle,
        } += 1;
        *match member.phase {
            Phase::Pending | Phase::Draining => &mut self.pending,
            Phase::Running => &mut self.running,
            Phase::Failed => &mut self.failed,
        } += 1;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn member(name: &str) -> Member {
        Member {
            name: name.to_owned(),
            phase: Phase::Running,
            online: true,
            enabled: true,
            leased: false,
            created: 0,
        }
    }

    #[test]
    fn counts() {
        let members = [
            member("idle"),
            Member {
                leased: true,
                ..member("active")
            },
            Member {
                leased: true,
                online: false,
                ..member("leased-offline")
            },
            Member {
                enabled: false,
                online: false,
                phase: Phase::Draining,
                ..member("disabled")
            },
            Member {
                online: false,
                phase: Phase::Pending,
                ..member("on-its-way")
            },
            Member {
                online: false,
                phase: Phase::Failed,
                ..member("stuck")
            },
        ];
        let want = Census {
            replicas: 6,
            ready: 2,
            available: 1,
            leased: 2,
            promised: 3,
            active: 1,
            idle: 1,
            disabled: 1,
            offline: 3,
            pending: 2,
            running: 3,
            failed: 1,
        };
        assert_eq!(Census::of(&members), want);
    }
}
