//! What an exporter does when a lease begins or ends, or a signal asks it to stop.

use std::time::Duration;

use crate::wire::ExporterStatus;

/// From a registration to Available.
const STARTING: Duration = Duration::from_millis(150);
/// From a lease's begin to LeaseReady: a resumed exporter is Available, with its
/// lease, for this long.
const PREPARING: Duration = Duration::from_millis(200);
/// From a lease's end to Available, also when the process is about to end.
const RELEASING: Duration = Duration::from_millis(125);
/// From that Available to Offline. In this window a waiting lease can be given
/// an exporter that will be gone: it is there in the real program.
const DYING: Duration = Duration::from_millis(90);
/// From unregistering to the process's end.
const LINGERING: Duration = Duration::from_millis(1700);

/// One thing to do. A list is done in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Let time pass.
    Pause(Duration),
    /// Report a state.
    Status(ExporterStatus, &'static str),
    /// Write to the machine's disk, as a lease's user would.
    Touch,
    /// End the launcher, if the environment names one.
    ShutdownLauncher,
    /// Take leave of the controller.
    Unregister,
    /// End the process with exit code 0.
    Exit,
}

/// The exporter's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    exit_on_lease_end: bool,
    lease: Option<String>,
    has_served: bool,
    stop_after_lease: bool,
}

impl Session {
    /// A process that has served nobody.
    #[must_use]
    pub fn new(exit_on_lease_end: bool) -> Self {
        Self {
            exit_on_lease_end,
            lease: None,
            has_served: false,
            stop_after_lease: false,
        }
    }

    /// The lease that is being served.
    #[must_use]
    pub fn lease(&self) -> Option<&str> {
        self.lease.as_deref()
    }

    /// A registration was accepted. A lease is announced by the controller again.
    pub fn registered(&mut self) -> Vec<Step> {
        self.lease = None;
        vec![
            Step::Pause(STARTING),
            Step::Status(ExporterStatus::Available, "Available"),
        ]
    }

    /// The controller says that the exporter is leased.
    pub fn lease_started(&mut self, lease: String, touch: bool) -> Vec<Step> {
        if self.lease.as_ref() == Some(&lease) {
            return Vec::new();
        }
        self.lease = Some(lease);
        self.has_served = true;
        let ready = Step::Status(ExporterStatus::LeaseReady, "Ready for commands");
        let mut steps = vec![Step::Pause(PREPARING), ready];
        steps.extend(touch.then_some(Step::Touch));
        steps
    }

    /// The controller says that a lease is over.
    pub fn lease_ended(&mut self, lease: &str) -> Vec<Step> {
        if self.lease.as_deref() != Some(lease) {
            return Vec::new();
        }
        self.lease = None;
        let available = Step::Status(ExporterStatus::Available, "Available");
        let mut steps = Vec::new();
        if !self.exit_on_lease_end && !self.stop_after_lease {
            steps.extend([Step::Pause(RELEASING), available]);
            return steps;
        }
        if self.exit_on_lease_end {
            steps.push(Step::ShutdownLauncher);
        }
        steps.extend([Step::Pause(RELEASING), available, Step::Pause(DYING)]);
        steps.extend(goodbye());
        steps.extend([Step::Pause(LINGERING), Step::Exit]);
        steps
    }

    /// SIGTERM, SIGINT or SIGQUIT: stop now. A lease goes on and can be resumed.
    #[must_use]
    pub fn terminated(&self) -> Vec<Step> {
        let mut steps = goodbye().to_vec();
        steps.push(Step::Exit);
        steps
    }

    /// SIGHUP: stop after the lease; at once if there never was one. An idle
    /// exporter that has served before stays for one more lease.
    pub fn hung_up(&mut self) -> Vec<Step> {
        if !self.has_served {
            return self.terminated();
        }
        self.stop_after_lease = true;
        Vec::new()
    }
}

fn goodbye() -> [Step; 2] {
    [
        Step::Status(ExporterStatus::Offline, "Exporter shutdown"),
        Step::Unregister,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statuses(steps: &[Step]) -> Vec<ExporterStatus> {
        let status = |step: &Step| match step {
            Step::Status(status, _) => Some(*status),
            _ => None,
        };
        steps.iter().filter_map(status).collect()
    }

    fn exits(steps: &[Step]) -> bool {
        steps.last() == Some(&Step::Exit)
    }

    #[test]
    fn exit_on_lease_end_passes_through_available() {
        use ExporterStatus::{Available, LeaseReady, Offline};
        let mut session = Session::new(true);
        assert_eq!(statuses(&session.registered()), [Available]);
        assert_eq!(
            statuses(&session.lease_started("l1".into(), false)),
            [LeaseReady]
        );
        let steps = session.lease_ended("l1");
        assert_eq!(statuses(&steps), [Available, Offline]);
        assert!(
            exits(&steps) && steps.contains(&Step::Unregister),
            "{steps:?}"
        );
        assert_eq!(steps.first(), Some(&Step::ShutdownLauncher));
    }

    #[test]
    fn reuse_stays() {
        let mut session = Session::new(false);
        session.lease_started("l1".into(), false);
        let steps = session.lease_ended("l1");
        assert_eq!(statuses(&steps), [ExporterStatus::Available]);
        assert!(
            !exits(&steps) && !steps.contains(&Step::Unregister),
            "{steps:?}"
        );
    }

    #[test]
    fn a_lease_is_served_once_and_only_its_own_end_counts() {
        let mut session = Session::new(true);
        assert!(
            session
                .lease_started("l1".into(), true)
                .contains(&Step::Touch)
        );
        assert_eq!(session.lease_started("l1".into(), true), []);
        assert_eq!(session.lease_ended("l2"), []);
        assert_eq!(session.lease(), Some("l1"));
    }

    #[test]
    fn sighup_waits_for_the_lease() {
        let mut fresh = Session::new(false);
        assert!(exits(&fresh.hung_up()));

        let mut leased = Session::new(false);
        leased.lease_started("l1".into(), false);
        assert_eq!(leased.hung_up(), []);
        assert!(exits(&leased.lease_ended("l1")));

        let mut idle_again = Session::new(false);
        idle_again.lease_started("l1".into(), false);
        idle_again.lease_ended("l1");
        assert_eq!(idle_again.hung_up(), []);
        idle_again.lease_started("l2".into(), false);
        assert!(exits(&idle_again.lease_ended("l2")));
    }

    #[test]
    fn sigterm_unregisters_and_leaves_the_lease() {
        let mut session = Session::new(true);
        session.lease_started("l1".into(), false);
        let steps = session.terminated();
        assert_eq!(statuses(&steps), [ExporterStatus::Offline]);
        assert!(
            exits(&steps) && steps.contains(&Step::Unregister),
            "{steps:?}"
        );
    }
}
