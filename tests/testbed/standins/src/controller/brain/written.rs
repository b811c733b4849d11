//! What is written to the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Brain, Item};
use crate::controller::credentials::Subject;
use crate::controller::exporter_rules::{self, Facts};
use crate::controller::lease_rules::{self, Decision};
use crate::controller::objects::{
    Exporter, ExporterStatus, LEASE_ENDED_LABEL, Lease, Namespaced, now, status_patch,
};
use crate::controller::store::Key;
use crate::jmp::run::fresh_uuid;
use crate::log::log;

/// Pause after a failed write.
const RETRY: Duration = Duration::from_millis(500);
/// Limit on one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Longest name of a Secret.
const MAX_NAME: usize = 253;

impl Brain {
    pub(super) async fn look_at(&mut self, item: Item) {
        let result = match &item {
            Item::Exporter(key) => self.look_at_exporter(key).await,
            Item::Lease(key) => self.look_at_lease(key).await,
            Item::Seen(key, connection) => self.sign_of_life(key, *connection).await,
        };
        match result {
            // Deleted in the meantime: the watch will tell.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => {
                log(&format!("{item:?}: {}", reason(&error)));
                self.later(RETRY, item);
            }
            Ok(()) => {}
        }
    }

    fn api<K: Namespaced>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Merges into an object, apart from its status.
    pub(super) async fn merge<K: Namespaced>(&self, key: &Key, patch: Value) -> kube::Result<K> {
        let (api, params) = (self.api::<K>(&key.0), PatchParams::default());
        limited(api.patch(&key.1, &params, &Patch::Merge(patch))).await
    }

    /// Merges into an object's status.
    async fn merge_status<K: Namespaced>(&self, key: &Key, patch: Value) -> kube::Result<K> {
        let (api, params) = (self.api::<K>(&key.0), PatchParams::default());
        limited(api.patch_status(&key.1, &params, &Patch::Merge(patch))).await
    }

    async fn look_at_exporter(&mut self, key: &Key) -> kube::Result<()> {
        let Some(exporter) = self.exporters.get(key).cloned() else {
            return Ok(());
        };
        let has_credential = self.ensure_credential(key, &exporter).await?;
        let secret = secret_name(&key.1);
        let lease = self.lease_of(key).map(|lease| lease.name_any());
        let facts = Facts {
            credential: has_credential.then_some(secret.as_str()),
            endpoint: &self.settings.endpoint,
            lease: lease.as_deref(),
            offline_after: self.settings.offline_after,
        };
        let now = now();
        let status = exporter_rules::reconciled(&exporter, &facts, now);
        if let Some(delay) = exporter_rules::lost_in(&status, facts.offline_after, now) {
            self.later(delay, Item::Exporter(key.clone()));
        }
        self.write_exporter_status(key, &exporter.status, &status)
            .await?;
        self.tell_lease(key);
        Ok(())
    }

    /// The lease that holds the exporter.
    pub(super) fn lease_of(&self, (namespace, name): &Key) -> Option<&Lease> {
        self.leases
            .in_namespace(namespace)
            .find(|lease| !lease.is_ended() && lease.exporter() == Some(name))
    }

    pub(super) async fn write_exporter_status(
        &mut self,
        key: &Key,
        old: &ExporterStatus,
        new: &ExporterStatus,
    ) -> kube::Result<()> {
        let Some(patch) = status_patch(old, new, &[]) else {
            return Ok(());
        };
        let written = self.merge_status(key, patch).await?;
        self.put_exporter(written);
        Ok(())
    }

    /// Sees to a Secret with a valid token; whether there is one now.
    async fn ensure_credential(&mut self, key: &Key, exporter: &Exporter) -> kube::Result<bool> {
        let secret_key = (key.0.clone(), secret_name(&key.1));
        let secret = self.secrets.get(&secret_key);
        let token = secret
            .and_then(|secret| secret.data.as_ref()?.get("token"))
            .and_then(|token| std::str::from_utf8(&token.0).ok());
        let subject = subject(exporter);
        if token.and_then(|token| self.settings.signer.verify(token, now()))
            == Some(subject.clone())
        {
            return Ok(true);
        }
        // A name that is too long never gets a credential, in the real one either.
        if exporter.metadata.deletion_timestamp.is_some() || secret_key.1.len() > MAX_NAME {
            return Ok(false);
        }
        let id = fresh_uuid();
        let token = self
            .settings
            .signer
            .issue(&subject, id, now())
            .map_err(kube::Error::SerdeError)?;
        let owner = vec![exporter.owner()];
        let written = if secret.is_some() {
            let token = base64::engine::general_purpose::STANDARD.encode(token);
            let patch = json!({
                "metadata": { "ownerReferences": owner },
                "data": { "token": token },
            });
            self.merge(&secret_key, patch).await?
        } else {
            let secret = Secret {
                metadata: ObjectMeta {
                    namespace: Some(secret_key.0),
                    name: Some(secret_key.1),
                    owner_references: Some(owner),
                    ..ObjectMeta::default()
                },
                type_: Some("Opaque".into()),
                data: Some([("token".to_owned(), ByteString(token.into_bytes()))].into()),
                ..Secret::default()
            };
            let api: Api<Secret> = self.api(&key.0);
            limited(api.create(&PostParams::default(), &secret)).await?
        };
        self.put_secret(written);
        Ok(true)
    }

    async fn look_at_lease(&mut self, key: &Key) -> kube::Result<()> {
        let Some(lease) = self.leases.get(key).cloned() else {
            return Ok(());
        };
        let now = now();
        let exporters: Vec<&Exporter> = self.exporters.in_namespace(&key.0).collect();
        let leased: BTreeSet<String> = self
            .leases
            .in_namespace(&key.0)
            .filter(|lease| !lease.is_ended())
            .filter_map(|lease| lease.exporter().map(str::to_owned))
            .collect();
        let decision = lease_rules::decide(&lease, &exporters, &leased, now);
        let owner = match &decision {
            Decision::Assign(name) => exporters
                .iter()
                .find(|exporter| exporter.name_any() == *name)
                .map(|exporter| exporter.owner()),
            _ => None,
        };
        if let Decision::Keep(Some(again)) = decision {
            let delay =
                Duration::try_from(again.duration_since(Timestamp::now())).unwrap_or_default();
            self.later(delay, Item::Lease(key.clone()));
        }
        let status = lease_rules::decided(&lease, &decision, now);
        let Some(patch) = status_patch(&lease.status, &status, &["ended"]) else {
            return self.label_ended(key, &lease).await;
        };
        log(&format!("lease {}/{}: {decision:?}", key.0, key.1));
        if let Some(owner) = owner {
            self.patch_lease(key, json!({ "metadata": { "ownerReferences": [owner] } }))
                .await?;
        }
        let written: Lease = self.merge_status(key, patch).await?;
        self.put_lease(written.clone());
        self.label_ended(key, &written).await
    }

    /// A lease that is over has a label that says so.
    async fn label_ended(&mut self, key: &Key, lease: &Lease) -> kube::Result<()> {
        if !lease.status.ended || lease.labels().contains_key(LEASE_ENDED_LABEL) {
            return Ok(());
        }
        self.patch_lease(
            key,
            json!({ "metadata": { "labels": { LEASE_ENDED_LABEL: "true" } } }),
        )
        .await
    }

    async fn patch_lease(&mut self, key: &Key, patch: Value) -> kube::Result<()> {
        let written = self.merge(key, patch).await?;
        self.put_lease(written);
        Ok(())
    }

    async fn sign_of_life(&mut self, key: &Key, connection: u64) -> kube::Result<()> {
        // A timer of a connection that is gone is let run out.
        let current = self.peers.get(key).map(|peer| peer.connection);
        if current != Some(connection) {
            return Ok(());
        }
        self.later(self.settings.tick, Item::Seen(key.clone(), connection));
        let Some(exporter) = self.exporters.get(key).cloned() else {
            return Ok(());
        };
        let status = exporter_rules::seen(&exporter, now());
        self.write_exporter_status(key, &exporter.status, &status)
            .await
    }
}

/// Makes a request, for five seconds at most: the client's own patience is longer,
/// and everything else waits.
async fn limited<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match timeout(REQUEST_LIMIT, request).await {
        Ok(result) => result,
        Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
    }
}

/// An error in one line: the API server's own words if they are its.
pub(super) fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

fn secret_name(exporter: &str) -> String {
    format!("{exporter}-exporter")
}

pub(super) fn subject(exporter: &Exporter) -> Subject {
    Subject {
        namespace: exporter.namespace().unwrap_or_default(),
        name: exporter.name_any(),
        uid: exporter.uid().unwrap_or_default(),
    }
}
