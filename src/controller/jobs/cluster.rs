//! The steps on the cluster's side: create, grant, annotate, disable, delete.

use super::super::Fatal;
use super::super::actor::{Actor, Done};
use super::super::desired::Desired;
use super::super::ports::{Cluster, ClusterError, ExporterPatch, Notice, NoticeKind};
use super::super::world::World;
use crate::api::{
    ANNOTATION_CREDENTIALS_SECRET, ANNOTATION_HOST, ANNOTATION_LAST_ERROR, ANNOTATION_PENDING_HOST,
    ANNOTATION_REVISION, ANNOTATION_STATE, Exporter, ExporterSet, ExporterSpec, FINALIZER,
};
use crate::instance::{
    AnnotatedAt, Event, Failure, FailureClass, Grant, Instance, State, Step, TornDown, Transition,
};
use crate::pool::exporter_labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use std::collections::BTreeMap;

impl<W: World> Actor<W> {
    /// Creates the Exporter under its journaled name; finds it, if it is there already.
    pub(super) async fn create(&mut self, desired: &Desired) -> Result<(), Fatal> {
        self.begin(&[Step::Create]).await?;
        let exporter = exporter_of(&desired.set, &self.name());
        let created = match self.world.cluster().create_exporter(&exporter).await {
            Err(ClusterError::AlreadyExists(_)) => self.find_created().await,
            other => other.map(|created| (created, true)).map_err(Failure::from),
        };
        let (created, changed) = match created {
            Ok(created) => created,
            Err(failure) => return self.fail(Step::Create, failure).await,
        };
        let uid = created.uid().unwrap_or_default();
        let detail = format!("uid {uid}");
        self.record(vec![Event::Created { uid: uid.clone() }])
            .await?;
        self.succeed(Step::Create, Done { changed, detail }, None)
            .await?;
        if changed {
            let name = self.name();
            let message = format!("Created Exporter {name} (awaiting credentials)");
            self.tell_set(false, "ScaleUp", message).await;
        }
        Ok(())
    }

    async fn find_created(&self) -> Result<(Exporter, bool), Failure> {
        let name = self.name();
        let found = self.world.cluster().get_exporter(&name).await?;
        if controller_uid(&found) == Some(&self.instance().about().set_uid) {
            Ok((found, false))
        } else {
            let message = format!("Exporter {name} exists and belongs to somebody else");
            Err(Failure::new(FailureClass::NameConflict, message))
        }
    }

    /// Writes the chosen host on the Exporter, before anything is done there.
    pub(super) async fn grant(&mut self, grant: Grant) -> Result<(), Fatal> {
        self.begin(&[Step::AwaitCredentials]).await?;
        let mut patch = self.annotations(State::Credentialed);
        patch.finalizer = Some(true);
        let site = &grant.site;
        patch.annotations.extend([
            (ANNOTATION_PENDING_HOST.to_owned(), Some(site.to_string())),
            (
                ANNOTATION_CREDENTIALS_SECRET.to_owned(),
                Some(site.credentials_secret.clone()),
            ),
        ]);
        match self
            .world
            .cluster()
            .patch_exporter(&self.name(), &patch)
            .await
        {
            Ok(_) => {
                let done = Done::changed(format!("host {site}"));
                let then = Some(Transition::Granted(grant));
                self.succeed(Step::AwaitCredentials, done, then).await
            }
            Err(error) => self.fail(Step::AwaitCredentials, error.into()).await,
        }
    }

    /// Writes the host on the Exporter: it runs.
    pub(super) async fn annotate(&mut self) -> Result<(), Fatal> {
        let (Some(site), Some(revision)) = (
            self.instance().site().cloned(),
            self.instance().revision().map(str::to_owned),
        ) else {
            return Ok(());
        };
        self.begin(&[Step::Annotate]).await?;
        let mut patch = self.annotations(State::Annotated);
        patch.annotations.extend([
            (ANNOTATION_HOST.to_owned(), Some(site.host.clone())),
            (
                ANNOTATION_CREDENTIALS_SECRET.to_owned(),
                Some(site.credentials_secret),
            ),
            (ANNOTATION_REVISION.to_owned(), Some(revision)),
        ]);
        match self
            .world
            .cluster()
            .patch_exporter(&self.name(), &patch)
            .await
        {
            Ok(exporter) => {
                let resource_version = exporter.resource_version().unwrap_or_default();
                let done = Done::changed(format!("host {}", site.host));
                let then = Some(Transition::Annotated(AnnotatedAt { resource_version }));
                self.succeed(Step::Annotate, done, then).await?;
                let message = format!("Deployed Exporter {} on remote host", self.name());
                self.tell_set(false, "Deployed", message).await;
                Ok(())
            }
            Err(error) => self.fail(Step::Annotate, error.into()).await,
        }
    }

    /// Disables the Exporter, so that no new lease is given to it while it goes.
    pub(super) async fn disable(&mut self) -> Result<(), Fatal> {
        self.begin(&[Step::Disable]).await?;
        let mut patch = self.annotations(State::Draining);
        patch.enabled = Some(false);
        match self
            .world
            .cluster()
            .patch_exporter(&self.name(), &patch)
            .await
        {
            Ok(_) | Err(ClusterError::NotFound(_)) => {
                self.succeed(Step::Disable, Done::changed(""), None).await
            }
            Err(error) => self.fail(Step::Disable, error.into()).await,
        }
    }

    /// Deletes the Exporter and takes our finalizer off it: nothing is left on the host.
    pub(super) async fn delete(&mut self) -> Result<(), Fatal> {
        self.begin(&[Step::Delete]).await?;
        if let Err(failure) = self.delete_exporter().await {
            return self.fail(Step::Delete, failure).await;
        }
        let then = Some(Transition::TornDown(TornDown));
        self.succeed(Step::Delete, Done::changed(""), then).await?;
        if let Instance::Deleted(deleted) = self.instance() {
            let message = format!(
                "Deleted Exporter {}: {}",
                self.name(),
                deleted.state.reason.text()
            );
            self.tell_set(false, "ScaleDown", message).await;
        }
        Ok(())
    }

    async fn delete_exporter(&self) -> Result<(), Failure> {
        let name = self.name();
        let cluster = self.world.cluster();
        let Some(uid) = self.uid_to_delete(&name).await? else {
            return Ok(());
        };
        match cluster.delete_exporter(&name, &uid).await {
            Ok(()) | Err(ClusterError::NotFound(_) | ClusterError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let patch = ExporterPatch {
            uid,
            finalizer: Some(false),
            ..ExporterPatch::default()
        };
        match cluster.patch_exporter(&name, &patch).await {
            Ok(_) | Err(ClusterError::NotFound(_)) => Ok(()),
            Err(error @ ClusterError::Conflict(_)) => match cluster.get_exporter(&name).await {
                Ok(found) if found.uid() == Some(patch.uid) => Err(error.into()),
                // Another object bears the name by now; ours is gone.
                Ok(_) | Err(ClusterError::NotFound(_)) => Ok(()),
                Err(error) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// The UID of our Exporter; the create may have gone through without our learning it.
    async fn uid_to_delete(&self, name: &str) -> Result<Option<String>, Failure> {
        let about = self.instance().about();
        if about.uid.is_some() {
            return Ok(about.uid.clone());
        }
        match self.world.cluster().get_exporter(name).await {
            Ok(found) if controller_uid(&found) == Some(&about.set_uid) => Ok(found.uid()),
            Ok(_) | Err(ClusterError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A patch that notes the state and clears the last error.
    fn annotations(&self, state: State) -> ExporterPatch {
        ExporterPatch {
            uid: self.instance().about().uid.clone().unwrap_or_default(),
            annotations: BTreeMap::from([
                (ANNOTATION_STATE.to_owned(), Some(state.name().to_owned())),
                (ANNOTATION_LAST_ERROR.to_owned(), None),
            ]),
            ..ExporterPatch::default()
        }
    }

    async fn tell_set(&self, warning: bool, reason: &str, message: String) {
        let about = self.instance().about();
        let notice = Notice {
            kind: NoticeKind::Set,
            name: about.set.clone(),
            uid: about.set_uid.clone(),
            warning,
            reason: reason.to_owned(),
            message,
        };
        self.world.cluster().notify(&notice).await;
    }

    /// Tells people of a failure: an Event and an annotation on the Exporter.
    pub(super) async fn tell_failure(&self, failure: &Failure) {
        let about = self.instance().about();
        let Some(uid) = about.uid.clone() else { return };
        let notice = Notice {
            kind: NoticeKind::Exporter,
            name: about.name.clone(),
            uid: uid.clone(),
            warning: true,
            reason: failure.class.reason().to_owned(),
            message: failure.to_string(),
        };
        self.world.cluster().notify(&notice).await;
        let patch = ExporterPatch {
            uid,
            annotations: BTreeMap::from([
                (
                    ANNOTATION_STATE.to_owned(),
                    Some(self.instance().state().name().to_owned()),
                ),
                (ANNOTATION_LAST_ERROR.to_owned(), Some(failure.to_string())),
            ]),
            ..ExporterPatch::default()
        };
        if let Err(error) = self
            .world
            .cluster()
            .patch_exporter(&about.name, &patch)
            .await
        {
            tracing::debug!(exporter = about.name, %error, "the last error could not be noted");
        }
    }
}

/// The UID of the object that controls an Exporter.
#[must_use]
pub(in crate::controller) fn controller_uid(exporter: &Exporter) -> Option<&String> {
    exporter
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| &owner.uid)
}

fn exporter_of(set: &ExporterSet, name: &str) -> Exporter {
    let template = &set.spec.template.metadata;
    let labels = exporter_labels(
        &template.labels,
        &set.name_any(),
        &set.spec.virtual_target_class_name,
    );
    Exporter {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: set.namespace(),
            labels: Some(labels),
            annotations: Some(template.annotations.clone()),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            owner_references: Some(vec![OwnerReference {
                api_version: ExporterSet::api_version(&()).into_owned(),
                kind: ExporterSet::kind(&()).into_owned(),
                name: set.name_any(),
                uid: set.uid().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: ExporterSpec {
            username: None,
            enabled: Some(true),
        },
        status: None,
    }
}
