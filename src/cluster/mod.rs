//! The cluster: what we watch in our namespace, what we write there, and who of us leads.
//!
//! Everything here stays within the Role that the Jumpstarter operator gives an ExporterSet provisioner:
//! ExporterSets are read-only but for their status, Events are core/v1, and nothing outside the
//! namespace is touched. Every request has a deadline of its own, because kube repeats requests
//! that are answered 429, 503 or 504 for minutes.

mod cache;
mod events;
mod exporters;
mod leader;
mod request;
mod secrets;
mod watch;

pub use leader::{Election, LeadershipLost, Timing};

use crate::api::{Exporter, ExporterSet, ExporterSetStatus, Lease, VirtualTargetClass};
use crate::controller::ports::{Change, Cluster, ClusterError, ExporterPatch, Notice, SecretData};
use cache::{Cache, Shared};
use events::EventWriter;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams};
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::{Api, Client};
use request::bounded;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use watch::{Bus, Kind};

/// Who we are in Events, field managers and logs.
pub const COMPONENT: &str = "exporter-set-controller";

/// [`Cluster`] on a Kubernetes API server.
///
/// Guarantees: a cache is updated before its [`Change`] is sent; after an outage each difference
/// between the old and the new state is sent, deletions included; an object that can't be read
/// neither stops the watch of the others nor looks deleted (its last readable state is kept).
pub struct KubeCluster {
    client: Client,
    namespace: String,
    sets: Shared<ExporterSet>,
    classes: Shared<VirtualTargetClass>,
    exporters: Shared<Exporter>,
    leases: Shared<Lease>,
    bus: Arc<Bus>,
    events: EventWriter,
    tasks: Vec<JoinHandle<()>>,
}

impl KubeCluster {
    /// Starts watching `namespace`; call [`ready`](Self::ready) before the first look at the caches.
    /// The watches end when the value is dropped. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(client: Client, namespace: &str) -> Self {
        let bus = Arc::new(Bus::new());
        let mut start = Starter {
            client: client.clone(),
            namespace,
            bus: Arc::clone(&bus),
            tasks: Vec::new(),
        };
        Self {
            sets: start.objects(Kind::new("ExporterSets", Change::Set)),
            classes: start.objects(Kind::new("VirtualTargetClasses", Change::Class)),
            exporters: start.objects(Kind::new("Exporters", Change::Exporter)),
            leases: start.objects(Kind::new("Leases", Change::Lease)),
            tasks: {
                start.metadata::<Secret>(Kind::new("Secrets", Change::Secret));
                start.metadata::<ConfigMap>(Kind::new("ConfigMaps", Change::ConfigMap));
                start.tasks
            },
            events: EventWriter::new(client.clone(), namespace),
            namespace: namespace.to_owned(),
            client,
            bus,
        }
    }

    /// Waits until every kind was listed once. Keeps waiting while the API server is away, a CRD is
    /// missing or the Role forbids it; the log says what it waits for.
    pub async fn ready(&self) {
        self.bus.all_listed().await;
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

impl Drop for KubeCluster {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Starts the watches of a [`KubeCluster`].
struct Starter<'a> {
    client: Client,
    namespace: &'a str,
    bus: Arc<Bus>,
    tasks: Vec<JoinHandle<()>>,
}

impl Starter<'_> {
    /// Watches whole objects.
    fn objects<K: watch::Watchable>(&mut self, kind: Kind) -> Shared<K> {
        let cache = Cache::shared();
        let api: Api<DeserializeGuard<K>> = Api::namespaced(self.client.clone(), self.namespace);
        self.tasks.push(watch::spawn(
            api,
            kind,
            Arc::clone(&cache),
            watch::whole_object,
            Arc::clone(&self.bus),
        ));
        cache
    }

    /// Watches that objects change, without ever seeing their contents.
    fn metadata<K: watch::Watchable>(&mut self, kind: Kind) {
        let api: Api<PartialObjectMeta<K>> = Api::namespaced(self.client.clone(), self.namespace);
        self.tasks.push(watch::spawn(
            api,
            kind,
            Cache::shared(),
            watch::metadata_only,
            Arc::clone(&self.bus),
        ));
    }
}

impl Cluster for KubeCluster {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn sets(&self) -> Vec<Arc<ExporterSet>> {
        cache::values(&self.sets)
    }

    fn classes(&self) -> Vec<Arc<VirtualTargetClass>> {
        cache::values(&self.classes)
    }

    fn exporters(&self) -> Vec<Arc<Exporter>> {
        cache::values(&self.exporters)
    }

    fn leases(&self) -> Vec<Arc<Lease>> {
        cache::values(&self.leases)
    }

    fn changes(&self) -> mpsc::UnboundedReceiver<Change> {
        self.bus.subscribe()
    }

    async fn get_exporter(&self, name: &str) -> Result<Exporter, ClusterError> {
        exporters::get(&self.api(), &self.namespace, name).await
    }

    async fn get_secret(&self, name: &str) -> Result<SecretData, ClusterError> {
        secrets::read(&self.api(), &self.namespace, name).await
    }

    async fn get_config_map(&self, name: &str) -> Result<BTreeMap<String, String>, ClusterError> {
        let api: Api<ConfigMap> = self.api();
        let object = format!("ConfigMap {}/{name}", self.namespace);
        let map = bounded(&object, name, api.get(name)).await?;
        Ok(map.data.unwrap_or_default())
    }

    async fn create_exporter(&self, exporter: &Exporter) -> Result<Exporter, ClusterError> {
        exporters::create(&self.api(), &self.namespace, exporter).await
    }

    async fn patch_exporter(
        &self,
        name: &str,
        patch: &ExporterPatch,
    ) -> Result<Exporter, ClusterError> {
        exporters::patch(&self.api(), &self.namespace, name, patch).await
    }

    async fn delete_exporter(&self, name: &str, uid: &str) -> Result<(), ClusterError> {
        exporters::delete(&self.api(), &self.namespace, name, uid).await
    }

    async fn patch_set_status(
        &self,
        name: &str,
        status: &ExporterSetStatus,
    ) -> Result<(), ClusterError> {
        let api: Api<ExporterSet> = self.api();
        let object = format!("ExporterSet {}/{name}", self.namespace);
        // A status patch that carries metadata is silently taken as no change: send the status alone.
        let patch = Patch::Merge(json!({ "status": status }));
        let params = PatchParams::default();
        bounded(&object, name, api.patch_status(name, &params, &patch)).await?;
        Ok(())
    }

    async fn notify(&self, notice: &Notice) {
        self.events.write(notice).await;
    }

    async fn pinned_host_keys(&self) -> Result<String, ClusterError> {
        secrets::pinned_host_keys(&self.api(), &self.namespace).await
    }

    async fn pin_host_key(&self, line: &str) -> Result<String, ClusterError> {
        secrets::pin_host_key(&self.api(), &self.namespace, line).await
    }
}
