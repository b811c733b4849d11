//! A cluster in memory, with Jumpstarter's controller in it.

use super::{Crash, lock};
use crate::api::*;
use crate::controller::ports::*;
use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

#[derive(Default)]
pub(in crate::controller::tests) struct Objects {
    pub(in crate::controller::tests) sets: BTreeMap<String, ExporterSet>,
    pub(in crate::controller::tests) classes: BTreeMap<String, VirtualTargetClass>,
    pub(in crate::controller::tests) exporters: BTreeMap<String, Exporter>,
    pub(in crate::controller::tests) leases: BTreeMap<String, Lease>,
    pub(in crate::controller::tests) secrets: BTreeMap<String, BTreeMap<String, String>>,
    pub(in crate::controller::tests) config_maps: BTreeMap<String, BTreeMap<String, String>>,
    pub(in crate::controller::tests) pinned: String,
    pub(in crate::controller::tests) notices: Vec<Notice>,
    /// Every Exporter that was ever created.
    pub(in crate::controller::tests) created: Vec<String>,
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
    pub(in crate::controller::tests) fn delete_sets(&mut self) {
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
pub(in crate::controller::tests) struct FakeCluster {
    objects: Mutex<Objects>,
    crash: Arc<Crash>,
}

impl FakeCluster {
    pub(in crate::controller::tests) fn new(crash: &Arc<Crash>) -> Self {
        Self {
            objects: Mutex::default(),
            crash: Arc::clone(crash),
        }
    }

    /// Changes what is there, behind the controller's back.
    pub(in crate::controller::tests) fn change(&self, change: impl FnOnce(&mut Objects)) {
        let mut objects = lock(&self.objects);
        change(&mut objects);
        objects.changed(Change::Set(String::new()));
    }

    /// Puts ConfigMaps there, as the watch shows it.
    pub(in crate::controller::tests) fn change_map(
        &self,
        maps: BTreeMap<String, BTreeMap<String, String>>,
    ) {
        let mut objects = lock(&self.objects);
        for name in maps.keys() {
            objects.changed(Change::ConfigMap(name.clone()));
        }
        objects.config_maps = maps;
    }

    pub(in crate::controller::tests) fn look<T>(&self, look: impl FnOnce(&Objects) -> T) -> T {
        look(&lock(&self.objects))
    }

    pub(super) fn online(&self, name: &str, online: bool) {
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
