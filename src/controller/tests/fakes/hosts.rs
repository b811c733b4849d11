//! Lab hosts in memory.

use super::{Crash, FakeCluster, lock};
use crate::controller::ports::*;
use crate::host::{Batch, Op, Outcome, Report, Target};
use crate::instance::{Failure, Step};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// What one instance has on its host, and how often each part was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controller::tests) struct OnHost {
    pub(in crate::controller::tests) config: bool,
    pub(in crate::controller::tests) quadlets: bool,
    pub(in crate::controller::tests) volume: bool,
    pub(in crate::controller::tests) running: bool,
    /// Steps that changed something.
    pub(in crate::controller::tests) made: Vec<Step>,
}

/// Lab hosts: what is on them, by host and exporter; and what fails there.
pub(in crate::controller::tests) struct FakeHosts {
    pub(in crate::controller::tests) on: Mutex<BTreeMap<String, BTreeMap<String, OnHost>>>,
    pub(in crate::controller::tests) failing: Mutex<BTreeMap<Step, Failure>>,
    runs: AtomicU64,
    cluster: Arc<FakeCluster>,
    crash: Arc<Crash>,
}

impl FakeHosts {
    pub(in crate::controller::tests) fn new(
        cluster: &Arc<FakeCluster>,
        crash: &Arc<Crash>,
    ) -> Self {
        Self {
            on: Mutex::default(),
            failing: Mutex::default(),
            runs: AtomicU64::new(0),
            cluster: Arc::clone(cluster),
            crash: Arc::clone(crash),
        }
    }

    /// What is on a host; instances of which nothing is left don't count.
    pub(in crate::controller::tests) fn instances(&self, host: &str) -> BTreeMap<String, OnHost> {
        let mut instances = lock(&self.on).get(host).cloned().unwrap_or_default();
        instances.retain(|_, on| on.config || on.quadlets || on.volume || on.running);
        instances
    }

    /// How many batches were asked for.
    pub(in crate::controller::tests) fn runs(&self) -> u64 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Power loss and power again: systemd starts what is still installed.
    pub(in crate::controller::tests) fn reboot(&self, host: &str, exporter: &str) {
        let mut on = lock(&self.on);
        let on = on
            .get_mut(host)
            .and_then(|on| on.get_mut(exporter))
            .unwrap();
        assert!(!on.running, "it was stopped before");
        on.running = on.quadlets;
    }

    /// Carries out one step; whether it changed anything.
    fn carry_out(&self, host: &str, exporter: &str, op: &Op) -> bool {
        let mut on = lock(&self.on);
        let on = on
            .entry(host.to_owned())
            .or_default()
            .entry(exporter.to_owned())
            .or_default();
        let (part, value) = match op {
            Op::Preflight { .. } | Op::Reload => return false,
            Op::WriteConfig(_) => (&mut on.config, true),
            Op::WriteQuadlets(_) => (&mut on.quadlets, true),
            Op::CreateVolume { .. } => (&mut on.volume, true),
            Op::Start { .. } => (&mut on.running, true),
            Op::Stop => (&mut on.running, false),
            Op::RemoveFiles => {
                on.config = false;
                (&mut on.quadlets, false)
            }
            Op::RemoveVolume => (&mut on.volume, false),
        };
        let changed = *part != value;
        *part = value;
        if changed {
            on.made.push(op.step());
        }
        changed
    }
}

impl Hosts for Arc<FakeHosts> {
    async fn connect(&self, target: &Target) -> Result<Greeting, Failure> {
        Ok(Greeting {
            known_hosts_line: format!("{} ssh-ed25519 AAAA", target.name),
        })
    }

    async fn run(
        &self,
        target: &Target,
        batch: &Batch,
        reports: mpsc::UnboundedSender<Report>,
    ) -> Result<(), Failure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let exporter = batch.names.exporter().to_owned();
        for op in &batch.ops {
            self.crash.place().await;
            let step = op.step();
            let failure = lock(&self.failing).get(&step).cloned();
            let outcome = match failure {
                Some(failure) => Outcome::Failed(failure),
                None if self.carry_out(&target.name, &exporter, op) => Outcome::Changed,
                None => Outcome::Unchanged,
            };
            match op {
                Op::Start { .. } if matches!(outcome, Outcome::Changed | Outcome::Unchanged) => {
                    self.cluster.online(&exporter, true);
                }
                Op::Stop => self.cluster.online(&exporter, false),
                _ => {}
            }
            let failed = matches!(outcome, Outcome::Failed(_));
            let _ = reports.send(Report {
                step,
                outcome,
                detail: String::new(),
            });
            if failed {
                return Ok(());
            }
            self.crash.place().await;
        }
        Ok(())
    }
}
