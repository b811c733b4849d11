//! An outside in memory: a cluster with Jumpstarter in it, lab hosts, a journal, a clock, and a
//! crash that can be set to any of the effects on them.

use crate::api::*;
use crate::controller::ports::*;
use crate::controller::record::Record;
use crate::host::{Batch, Fence, Op, Outcome, Report, Target};
use crate::instance::{Failure, Step};
use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops the world at one effect, as a SIGKILL would: what was to follow never happens.
#[derive(Default)]
pub(super) struct Crash {
    left: AtomicU64,
    pub(super) hit: Notify,
}

impl Crash {
    /// Crashes at the `at`-th place from now, 1 being the next; 0 is never.
    pub(super) fn set(&self, at: u64) {
        self.left.store(at, Ordering::SeqCst);
    }

    /// Whether the crash is still to come.
    pub(super) fn is_due(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }

    async fn place(&self) {
        let before = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                Some(left.saturating_sub(1))
            });
        if before == Ok(1) {
            self.hit.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

#[derive(Default)]
pub(super) struct Objects {
    pub(super) sets: BTreeMap<String, ExporterSet>,
    pub(super) classes: BTreeMap<String, VirtualTargetClass>,
    pub(super) exporters: BTreeMap<String, Exporter>,
    pub(super) leases: BTreeMap<String, Lease>,
    pub(super) secrets: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) config_maps: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) pinned: String,
    pub(super) notices: Vec<Notice>,
    /// Every Exporter that was ever created.
    pub(super) created: Vec<String>,
    version: u64,
    changes: Option<mpsc::UnboundedSender<Change>>,
}

impl Objects {
    fn changed(&mut self, change: Change) {
        if let Some(changes) = &self.changes {
            let _ = changes.send(change);
        }
    }

    /// Deletes all sets; the garbage collector deletes their Exporters.
    pub(super) fn delete_sets(&mut self) {
        self.sets.clear();
        for exporter in self.exporters.values_mut() {
            exporter.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        }
    }

    fn touch(&mut self, name: &str) {
        self.version += 1;
        let version = self.version.to_string();
        if let Some(exporter) = self.exporters.get_mut(name) {
            exporter.metadata.resource_version = Some(version);
            let gone =
                exporter.metadata.deletion_timestamp.is_some() && exporter.finalizers().is_empty();
            if gone {
                self.exporters.remove(name);
            }
        }
        self.changed(Change::Exporter(name.to_owned()));
    }
}

/// The cluster, with Jumpstarter's controller in it: it credentials at once.
pub(super) struct FakeCluster {
    objects: Mutex<Objects>,
    crash: Arc<Crash>,
}

impl FakeCluster {
    pub(super) fn new(crash: &Arc<Crash>) -> Self {
        Self {
            objects: Mutex::default(),
            crash: Arc::clone(crash),
        }
    }

    /// Changes what is there, behind the controller's back.
    pub(super) fn change(&self, change: impl FnOnce(&mut Objects)) {
        let mut objects = lock(&self.objects);
        change(&mut objects);
        objects.changed(Change::Set(String::new()));
    }

    /// Puts ConfigMaps there, as the watch shows it.
    pub(super) fn change_map(&self, maps: BTreeMap<String, BTreeMap<String, String>>) {
        let mut objects = lock(&self.objects);
        for name in maps.keys() {
            objects.changed(Change::ConfigMap(name.clone()));
        }
        objects.config_maps = maps;
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&Objects) -> T) -> T {
        look(&lock(&self.objects))
    }

    fn online(&self, name: &str, online: bool) {
        let mut objects = lock(&self.objects);
        if let Some(exporter) = objects.exporters.get_mut(name) {
            let condition = Condition {
                type_: "Online".into(),
                status: if online { "True" } else { "False" }.into(),
                reason: "Seen".into(),
                message: String::new(),
                last_transition_time: Time(Timestamp::UNIX_EPOCH),
                observed_generation: None,
            };
            exporter.status.get_or_insert_default().conditions = vec![condition];
        }
        objects.touch(name);
    }
}

fn missing(what: &str) -> ClusterError {
    ClusterError::NotFound(what.to_owned())
}

impl Cluster for Arc<FakeCluster> {
    fn namespace(&self) -> &str {
        "lab"
    }

    fn sets(&self) -> Vec<Arc<ExporterSet>> {
        self.look(|objects| objects.sets.values().cloned().map(Arc::new).collect())
    }

    fn classes(&self) -> Vec<Arc<VirtualTargetClass>> {
        self.look(|objects| objects.classes.values().cloned().map(Arc::new).collect())
    }

    fn exporters(&self) -> Vec<Arc<Exporter>> {
        self.look(|objects| objects.exporters.values().cloned().map(Arc::new).collect())
    }

    fn leases(&self) -> Vec<Arc<Lease>> {
        self.look(|objects| objects.leases.values().cloned().map(Arc::new).collect())
    }

    fn changes(&self) -> mpsc::UnboundedReceiver<Change> {
        let (sender, receiver) = mpsc::unbounded_channel();
        lock(&self.objects).changes = Some(sender);
        receiver
    }

    async fn get_exporter(&self, name: &str) -> Result<Exporter, ClusterError> {
        self.look(|objects| objects.exporters.get(name).cloned())
            .ok_or_else(|| missing(name))
    }

    async fn get_secret(&self, name: &str) -> Result<SecretData, ClusterError> {
        let data = self.look(|objects| objects.secrets.get(name).cloned());
        let data = data.ok_or_else(|| missing(name))?;
        Ok(data
            .into_iter()
            .map(|(key, value)| (key, value.into_bytes().into()))
            .collect())
    }

    async fn get_config_map(&self, name: &str) -> Result<BTreeMap<String, String>, ClusterError> {
        self.look(|objects| objects.config_maps.get(name).cloned())
            .ok_or_else(|| missing(name))
    }

    async fn create_exporter(&self, exporter: &Exporter) -> Result<Exporter, ClusterError> {
        self.crash.place().await;
        let name = exporter.name_any();
        {
            let mut objects = lock(&self.objects);
            if objects.exporters.contains_key(&name) {
                return Err(ClusterError::AlreadyExists(name));
            }
            let mut exporter = exporter.clone();
            exporter.metadata.uid = Some(format!("uid-{name}"));
            let secret = format!("{name}-exporter");
            exporter.status = Some(ExporterStatus {
                credential: Some(LocalObjectReference {
                    name: secret.clone(),
                }),
                endpoint: Some("jumpstarter:8082".into()),
                ..ExporterStatus::default()
            });
            objects
                .secrets
                .insert(secret, BTreeMap::from([("token".into(), "t".into())]));
            objects.created.push(name.clone());
            objects.exporters.insert(name.clone(), exporter);
            objects.touch(&name);
        }
        self.crash.place().await;
        self.get_exporter(&name).await
    }

    async fn patch_exporter(
        &self,
        name: &str,
        patch: &ExporterPatch,
    ) -> Result<Exporter, ClusterError> {
        self.crash.place().await;
        let patched = {
            let mut objects = lock(&self.objects);
            let exporter = objects
                .exporters
                .get_mut(name)
                .ok_or_else(|| missing(name))?;
            if exporter.uid().as_ref() != Some(&patch.uid) {
                return Err(ClusterError::Conflict(name.to_owned()));
            }
            for (key, value) in &patch.annotations {
                let annotations = exporter.annotations_mut();
                match value {
                    Some(value) => annotations.insert(key.clone(), value.clone()),
                    None => annotations.remove(key),
                };
            }
            if patch.enabled.is_some() {
                exporter.spec.enabled = patch.enabled;
            }
            if let Some(wanted) = patch.finalizer {
                let finalizers = exporter.finalizers_mut();
                finalizers.retain(|finalizer| finalizer != FINALIZER);
                finalizers.extend(wanted.then(|| FINALIZER.to_owned()));
            }
            let patched = exporter.clone();
            objects.touch(name);
            patched
        };
        self.crash.place().await;
        Ok(patched)
    }

    async fn delete_exporter(&self, name: &str, uid: &str) -> Result<(), ClusterError> {
        self.crash.place().await;
        {
            let mut objects = lock(&self.objects);
            let exporter = objects
                .exporters
                .get_mut(name)
                .ok_or_else(|| missing(name))?;
            if exporter.uid().as_deref() != Some(uid) {
                return Err(ClusterError::Conflict(name.to_owned()));
            }
            exporter.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            objects.touch(name);
        }
        self.crash.place().await;
        Ok(())
    }

    async fn patch_set_status(
        &self,
        name: &str,
        status: &ExporterSetStatus,
    ) -> Result<(), ClusterError> {
        let mut objects = lock(&self.objects);
        let set = objects.sets.get_mut(name).ok_or_else(|| missing(name))?;
        set.status = Some(status.clone());
        objects.changed(Change::Set(name.to_owned()));
        Ok(())
    }

    async fn notify(&self, notice: &Notice) {
        lock(&self.objects).notices.push(notice.clone());
    }

    async fn pinned_host_keys(&self) -> Result<String, ClusterError> {
        Ok(self.look(|objects| objects.pinned.clone()))
    }

    async fn pin_host_key(&self, line: &str) -> Result<String, ClusterError> {
        let mut objects = lock(&self.objects);
        objects.pinned.push_str(line);
        objects.pinned.push('\n');
        Ok(objects.pinned.clone())
    }
}

/// What one instance has on its host, and how often each part was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OnHost {
    pub(super) config: bool,
    pub(super) quadlets: bool,
    pub(super) volume: bool,
    pub(super) running: bool,
    /// Steps that changed something.
    pub(super) made: Vec<Step>,
}

/// Lab hosts: what is on them, by host and exporter; and what fails there.
pub(super) struct FakeHosts {
    pub(super) on: Mutex<BTreeMap<String, BTreeMap<String, OnHost>>>,
    pub(super) failing: Mutex<BTreeMap<Step, Failure>>,
    runs: AtomicU64,
    cluster: Arc<FakeCluster>,
    crash: Arc<Crash>,
}

impl FakeHosts {
    pub(super) fn new(cluster: &Arc<FakeCluster>, crash: &Arc<Crash>) -> Self {
        Self {
            on: Mutex::default(),
            failing: Mutex::default(),
            runs: AtomicU64::new(0),
            cluster: Arc::clone(cluster),
            crash: Arc::clone(crash),
        }
    }

    /// What is on a host; instances of which nothing is left don't count.
    pub(super) fn instances(&self, host: &str) -> BTreeMap<String, OnHost> {
        let mut instances = lock(&self.on).get(host).cloned().unwrap_or_default();
        instances.retain(|_, on| on.config || on.quadlets || on.volume || on.running);
        instances
    }

    /// How many batches were asked for.
    pub(super) fn runs(&self) -> u64 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Power loss and power again: systemd starts what is still installed.
    pub(super) fn reboot(&self, host: &str, exporter: &str) {
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

/// A journal in memory. What was appended is there after a crash; an append that the crash hit is
/// there or not.
pub(super) struct FakeJournal {
    pub(super) entries: Mutex<Vec<Entry>>,
    crash: Arc<Crash>,
}

impl FakeJournal {
    pub(super) fn new(crash: &Arc<Crash>) -> Self {
        Self {
            entries: Mutex::default(),
            crash: Arc::clone(crash),
        }
    }
}

impl Journal for Arc<FakeJournal> {
    async fn append(
        &self,
        stream: &str,
        expected: Option<u64>,
        context: Context,
        records: Vec<Record>,
    ) -> Result<u64, JournalError> {
        self.crash.place().await;
        let version = {
            let mut entries = lock(&self.entries);
            let of_stream = entries
                .iter()
                .filter(|entry| entry.stream == stream)
                .count();
            let mut version = u64::try_from(of_stream).unwrap_or(u64::MAX);
            if expected.is_some_and(|expected| expected != version) {
                return Err(JournalError(format!("{stream} is at {version}")));
            }
            for record in records {
                version += 1;
                let (stream, at) = (stream.to_owned(), context.at);
                entries.push(Entry {
                    stream,
                    version,
                    at,
                    record,
                });
            }
            version
        };
        self.crash.place().await;
        Ok(version)
    }

    fn replay(
        &self,
    ) -> Result<Box<dyn Iterator<Item = Result<Entry, JournalError>> + '_>, JournalError> {
        Ok(Box::new(lock(&self.entries).clone().into_iter().map(Ok)))
    }
}

/// Tokio's paused clock.
#[derive(Clone)]
pub(super) struct FakeClock {
    start: Instant,
    draws: Arc<AtomicU64>,
}

impl FakeClock {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            draws: Arc::default(),
        }
    }
}

impl Clock for FakeClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000) + self.start.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    fn random(&self) -> u64 {
        self.draws.fetch_add(1, Ordering::SeqCst)
    }
}

/// Always the leader.
pub(super) struct FakeLeadership;

impl Leadership for FakeLeadership {
    fn fence(&self) -> Option<Fence> {
        Some(Fence {
            lease_uid: "lease".into(),
            epoch: 1,
        })
    }
}
