//! The traits through which the controller talks to the outside: cluster, hosts, journal, clock,
//! and the leadership under which it may act.

use super::record::Record;
use crate::api::{Exporter, ExporterSet, ExporterSetStatus, Lease, VirtualTargetClass};
use crate::host::{Batch, Fence, Report, Target};
use crate::instance::{Failure, FailureClass};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use thiserror::Error;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

/// Something that we watch has changed; look again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// An ExporterSet of that name.
    Set(String),
    /// A VirtualTargetClass of that name.
    Class(String),
    /// An Exporter of that name.
    Exporter(String),
    /// A Lease of that name.
    Lease(String),
    /// A Secret of that name.
    Secret(String),
    /// A ConfigMap of that name.
    ConfigMap(String),
}

/// The API server's answer where it is not the object that was asked for.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// The object does not exist (404).
    #[error("{0} does not exist")]
    NotFound(String),
    /// An object of that name exists already (409 AlreadyExists).
    #[error("{0} exists already")]
    AlreadyExists(String),
    /// The object has changed meanwhile (409 Conflict).
    #[error("{0} has changed meanwhile")]
    Conflict(String),
    /// Our Role does not allow it (403).
    #[error("not allowed: {0}")]
    Forbidden(String),
    /// Anything else; the request may or may not have been carried out.
    #[error("{object}: {message}")]
    Other {
        /// What was asked for.
        object: String,
        /// What came back.
        message: String,
    },
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        Self::new(FailureClass::ClusterError, error.to_string())
    }
}

/// The values of a Secret; wiped from memory when dropped.
pub type SecretData = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// A change to an Exporter's metadata and spec, sent as one merge patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExporterPatch {
    /// Only if the Exporter still has this UID.
    pub uid: String,
    /// Labels to set (`Some`) or remove (`None`).
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set (`Some`) or remove (`None`).
    pub annotations: BTreeMap<String, Option<String>>,
    /// New value of `spec.enabled`.
    pub enabled: Option<bool>,
    /// Whether our finalizer shall be there.
    pub finalizer: Option<bool>,
}

/// A core/v1 Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Kind of the object that it is about: `ExporterSet` or `Exporter`.
    pub kind: NoticeKind,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// CamelCase reason.
    pub reason: String,
    /// What happened; up to 1 KiB.
    pub message: String,
}

/// What an Event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// An ExporterSet.
    Set,
    /// An Exporter.
    Exporter,
}

/// The cluster: a cache of what we watch in our namespace, reads that must be fresh, and writes.
pub trait Cluster: Send + Sync + 'static {
    /// The namespace that we serve.
    fn namespace(&self) -> &str;
    /// All ExporterSets, as last seen.
    fn sets(&self) -> Vec<Arc<ExporterSet>>;
    /// All VirtualTargetClasses, as last seen.
    fn classes(&self) -> Vec<Arc<VirtualTargetClass>>;
    /// All Exporters, as last seen.
    fn exporters(&self) -> Vec<Arc<Exporter>>;
    /// All Leases, as last seen.
    fn leases(&self) -> Vec<Arc<Lease>>;
    /// What changes from now on. One receiver at a time.
    fn changes(&self) -> mpsc::UnboundedReceiver<Change>;

    /// Reads an Exporter past the cache.
    fn get_exporter(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Exporter, ClusterError>> + Send;
    /// Reads a Secret.
    fn get_secret(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<SecretData, ClusterError>> + Send;
    /// Reads a ConfigMap's `data`.
    fn get_config_map(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<BTreeMap<String, String>, ClusterError>> + Send;

    /// Creates an Exporter.
    fn create_exporter(
        &self,
        exporter: &Exporter,
    ) -> impl Future<Output = Result<Exporter, ClusterError>> + Send;
    /// Patches an Exporter's metadata and `spec.enabled`.
    fn patch_exporter(
        &self,
        name: &str,
        patch: &ExporterPatch,
    ) -> impl Future<Output = Result<Exporter, ClusterError>> + Send;
    /// Deletes an Exporter, if it still has that UID. Its finalizers hold it until they are gone.
    fn delete_exporter(
        &self,
        name: &str,
        uid: &str,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Writes a set's status (all counters, all conditions).
    fn patch_set_status(
        &self,
        name: &str,
        status: &ExporterSetStatus,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Emits a core/v1 Event. Losing one is no failure.
    fn notify(&self, notice: &Notice) -> impl Future<Output = ()> + Send;

    /// The pinned host keys, as `known_hosts` lines; empty if none was pinned.
    fn pinned_host_keys(&self) -> impl Future<Output = Result<String, ClusterError>> + Send;
    /// Adds a `known_hosts` line to the pinned host keys, unless one for the same host is there.
    /// Returns the lines that hold from now on.
    fn pin_host_key(&self, line: &str)
    -> impl Future<Output = Result<String, ClusterError>> + Send;
}

/// What a connection learned about its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The host's key as a `known_hosts` line (`[name]:port` unless 22).
    pub known_hosts_line: String,
}

/// The lab hosts.
pub trait Hosts: Send + Sync + 'static {
    /// Connects, or finds the standing connection.
    fn connect(&self, target: &Target) -> impl Future<Output = Result<Greeting, Failure>> + Send;
    /// Runs a batch. Each step's report is sent as soon as the host gives it; reports come in the
    /// order of the steps, and the last one may be a failure.
    ///
    /// # Errors
    /// What concerns no step: no connection, fenced, outcome unknown.
    fn run(
        &self,
        target: &Target,
        batch: &Batch,
        reports: mpsc::UnboundedSender<Report>,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Where a record stands in the journal, apart from its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// When it was written, by our [`Clock`].
    pub at: SystemTime,
    /// The leader's epoch.
    pub epoch: u64,
    /// W3C trace context of the operation that it belongs to.
    pub traceparent: Option<String>,
}

/// A record as it stands in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The stream.
    pub stream: String,
    /// Its place in the stream; the first one has 1.
    pub version: u64,
    /// When it was written.
    pub at: SystemTime,
    /// What it says.
    pub record: Record,
}

/// The journal can't be written or read. Nothing may be done that is not in it: the process ends.
#[derive(Debug, Error)]
#[error("journal: {0}")]
pub struct JournalError(pub String);

/// The journal of what we do.
pub trait Journal: Send + Sync + 'static {
    /// Appends to a stream that is at version `expected` (`None`: whatever it is at; an earlier
    /// instance may have had the same name); returns its new version once the records are on the
    /// disk.
    fn append(
        &self,
        stream: &str,
        expected: Option<u64>,
        context: Context,
        records: Vec<Record>,
    ) -> impl Future<Output = Result<u64, JournalError>> + Send;
    /// Everything, in the order in which it was written.
    fn replay(
        &self,
    ) -> Result<Box<dyn Iterator<Item = Result<Entry, JournalError>> + '_>, JournalError>;
}

/// Time and chance.
pub trait Clock: Send + Sync + 'static {
    /// The time of day.
    fn now(&self) -> SystemTime;
    /// Waits.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send;
    /// A number that nobody can foresee.
    fn random(&self) -> u64;
}

/// The leadership under which an action stands.
pub trait Leadership: Send + Sync + 'static {
    /// The fence of our term, or `None` if we are not, or may no longer be, the leader.
    fn fence(&self) -> Option<Fence>;
}
