//! One look at everything: what is seen, what is decided, what is started.

use super::{Came, Engine, RELIST, Slot};
use crate::api::{
    ANNOTATION_CREDENTIALS_SECRET, ANNOTATION_PENDING_HOST, ANNOTATION_WAIVE_TEARDOWN, Exporter,
    ExporterSet, FINALIZER, Lease, VirtualTargetClass,
};
use crate::controller::Fatal;
use crate::controller::actor;
use crate::controller::desired::{Desired, Resolution, resolve};
use crate::controller::jobs::{self, controller_uid};
use crate::controller::ports::{Clock, Cluster};
use crate::controller::world::{World, millis};
use crate::instance::{
    About, Event, Failure, FailureClass, Instance, Next, Reason, Seen, Site, Wanted, decide,
};
use futures::FutureExt;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;

/// How long an Exporter that we created may be missing from the watch before it counts as gone.
const WATCH_LAG: Duration = Duration::from_secs(30);

/// What the cluster shows.
pub(super) struct View {
    /// The sets that are ours to serve, by UID, with how it stands with them.
    pub(super) sets: BTreeMap<String, (Arc<ExporterSet>, Resolution)>,
    /// The classes.
    pub(super) classes: Vec<Arc<VirtualTargetClass>>,
    /// The Exporters, by name.
    pub(super) exporters: BTreeMap<String, Arc<Exporter>>,
    /// The Leases.
    pub(super) leases: Vec<Arc<Lease>>,
}

impl<W: World> Engine<W> {
    /// Looks at everything once; returns after how long to look again if nothing changes.
    pub(super) async fn pass(&mut self) -> Result<Duration, Fatal> {
        let view = self.view();
        self.adopt(&view).await?;
        self.hasten_changed(&view);
        let mut wake = RELIST;
        let names: Vec<String> = self.slots.keys().cloned().collect();
        for name in names {
            wake = wake.min(self.drive(&name, &view).await?);
        }
        for (uid, (set, resolution)) in &view.sets {
            wake = wake.min(self.scale(uid, set, resolution, &view).await?);
            self.report(uid, set, resolution, &view);
        }
        self.sets
            .retain(|uid, memory| view.sets.contains_key(uid) || memory.sending);
        Ok(wake)
    }

    fn view(&mut self) -> View {
        let world = Arc::clone(&self.world);
        let cluster = world.cluster();
        let classes = cluster.classes();
        let mut sets = BTreeMap::new();
        for set in cluster.sets() {
            let (Some(uid), None) = (set.uid(), &set.metadata.deletion_timestamp) else {
                continue;
            };
            let resolution = resolve(&set, &classes, &self.bundles);
            if let Resolution::Needs(source) = &resolution {
                self.load(source.clone());
            }
            sets.insert(uid, (set, resolution));
        }
        let exporters = cluster
            .exporters()
            .into_iter()
            .map(|exporter| (exporter.name_any(), exporter));
        View {
            sets,
            classes,
            exporters: exporters.collect(),
            leases: cluster.leases(),
        }
    }

    /// What failed by what a set or its class asked for is tried at once when they ask otherwise.
    /// (The sets change with each status that we write: it is the generation that tells.)
    fn hasten_changed(&mut self, view: &View) {
        for (uid, (set, _)) in &view.sets {
            let class = &set.spec.virtual_target_class_name;
            let class = view.classes.iter().find(|c| c.name_any() == *class);
            let class = class.and_then(|class| class.metadata.generation);
            let now = Some((set.metadata.generation, class));
            let memory = self.sets.entry(uid.clone()).or_default();
            let before = std::mem::replace(&mut memory.generations, now);
            if before.is_some() && before != now {
                self.hasten(|instance| instance.about().set_uid == *uid);
            }
        }
    }

    /// Takes over Exporters of our sets that the journal does not know, and those that wait for our
    /// finalizer.
    async fn adopt(&mut self, view: &View) -> Result<(), Fatal> {
        for (name, exporter) in &view.exporters {
            if self.slots.contains_key(name) {
                continue;
            }
            let deleting = exporter.metadata.deletion_timestamp.is_some();
            let ours = exporter
                .finalizers()
                .iter()
                .any(|finalizer| finalizer == FINALIZER);
            let set = controller_uid(exporter).and_then(|uid| view.sets.get(uid));
            let served = matches!(
                set,
                Some((_, Resolution::Ready(_) | Resolution::Refused(..)))
            );
            if ours || (served && !deleting) {
                let event = adopted(exporter);
                let held = actor::append(&*self.world, None, &[event]).await?;
                tracing::warn!(exporter = name, "adopted: the journal did not know it");
                self.slots.insert(
                    name.clone(),
                    Slot {
                        shown: true,
                        ..Slot::new(held)
                    },
                );
            }
        }
        Ok(())
    }

    /// Decides for one instance and starts what is to be done.
    async fn drive(&mut self, name: &str, view: &View) -> Result<Duration, Fatal> {
        let world = Arc::clone(&self.world);
        let Some(slot) = self.slots.get_mut(name) else {
            return Ok(RELIST);
        };
        if slot.busy {
            return Ok(RELIST);
        }
        let now = world.clock().now();
        let about = slot.instance().about().clone();
        let exporter = view
            .exporters
            .get(name)
            .filter(|exporter| is_of(exporter, &about));
        slot.shown |= exporter.is_some();
        let lag = now.duration_since(slot.held.since).unwrap_or_default();
        if exporter.is_none() && about.uid.is_some() && !slot.shown && lag < WATCH_LAG {
            return Ok(WATCH_LAG);
        }
        let seen = exporter.map(|exporter| seen(exporter, &view.leases));
        let resolution = view
            .sets
            .get(&about.set_uid)
            .map(|(_, resolution)| resolution);
        loop {
            let wanted = wanted(slot.instance(), seen.as_ref(), resolution);
            match decide(slot.instance(), seen.as_ref(), &wanted) {
                Next::Record(event) => {
                    slot.held = actor::append(&*world, Some(&slot.held), &[event]).await?;
                }
                Next::Wait(waiting) => {
                    tracing::trace!(exporter = name, ?waiting, "waits");
                    return Ok(RELIST);
                }
                Next::Forget => {
                    if exporter.is_none() {
                        self.slots.remove(name);
                    }
                    return Ok(RELIST);
                }
                next => {
                    let failed = slot.instance().progress().failed.as_ref();
                    let retry_at =
                        failed.filter(|failed| jobs::steps(&next).contains(&failed.step));
                    let retry_at = retry_at.map_or(0, |failed| failed.retry_at);
                    let wait = retry_at.saturating_sub(millis(now));
                    if wait > 0 {
                        return Ok(Duration::from_millis(wait));
                    }
                    let desired = match resolution {
                        Some(Resolution::Ready(desired)) => Some(Arc::clone(desired)),
                        _ => None,
                    };
                    self.start(name, next, desired);
                    return Ok(RELIST);
                }
            }
        }
    }

    /// Starts a job for one instance.
    fn start(&mut self, name: &str, next: Next, desired: Option<Arc<Desired>>) {
        let (Some(slot), Some(step)) = (self.slots.get_mut(name), jobs::steps(&next).first())
        else {
            return;
        };
        slot.busy = true;
        let (world, held) = (Arc::clone(&self.world), slot.held.clone());
        let (sender, name) = (self.sender.clone(), name.to_owned());
        let span = tracing::info_span!("job", exporter = name, step = step.name());
        let job = jobs::carry_out(world, held, next, desired).instrument(span);
        self.tasks.spawn(async move {
            // A panic is a bug; it must not take the other instances with it.
            let came = match AssertUnwindSafe(job).catch_unwind().await {
                Ok(held) => Came::Job(name, Box::new(held)),
                Err(_) => Came::Panic(name, *step),
            };
            // The receiver is gone only when the engine is.
            let _ = sender.send(came);
        });
    }
}

/// Whether `exporter` is the one that the instance is about, and not another of the same name.
fn is_of(exporter: &Exporter, about: &About) -> bool {
    match &about.uid {
        Some(uid) => exporter.metadata.uid.as_ref() == Some(uid),
        None => controller_uid(exporter) == Some(&about.set_uid),
    }
}

fn seen(exporter: &Exporter, leases: &[Arc<Lease>]) -> Seen {
    let status = exporter.status.as_ref();
    let name = exporter.name_any();
    let holds = |lease: &Arc<Lease>| {
        let holder = lease
            .status
            .as_ref()
            .and_then(|status| status.exporter_ref.as_ref());
        holder.is_some_and(|holder| holder.name == name)
    };
    Seen {
        uid: exporter.uid().unwrap_or_default(),
        deleting: exporter.metadata.deletion_timestamp.is_some(),
        owned: controller_uid(exporter).is_some(),
        enabled: exporter.spec.enabled.unwrap_or(true),
        credential: status
            .and_then(|s| s.credential.as_ref())
            .map(|c| c.name.clone()),
        endpoint: status
            .and_then(|s| s.endpoint.clone())
            .filter(|e| !e.is_empty()),
        lease: status
            .and_then(|s| s.lease_ref.as_ref())
            .map(|lease| lease.name.clone()),
        served: leases.iter().any(holds),
        online: is_online(exporter),
        waived: exporter
            .annotations()
            .get(ANNOTATION_WAIVE_TEARDOWN)
            .filter(|reason| !reason.trim().is_empty())
            .cloned(),
    }
}

pub(super) fn is_online(exporter: &Exporter) -> bool {
    let conditions = exporter.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|c| c.type_ == "Online" && c.status == "True")
}

fn wanted(instance: &Instance, seen: Option<&Seen>, resolution: Option<&Resolution>) -> Wanted {
    match resolution {
        // The garbage collector says it on the Exporter when a set is deleted. Its mere absence may
        // also mean that we can't read it, and is no reason to take anything away.
        None if seen.is_some_and(|seen| seen.owned && !seen.deleting) => {
            Wanted::Blocked(Failure::new(
                FailureClass::ClusterError,
                format!("ExporterSet {} is not to be seen", instance.about().set),
            ))
        }
        None => Wanted::Gone(Reason::SetDeleted),
        Some(Resolution::NotOurs) => Wanted::Gone(Reason::ProvisionerChanged),
        Some(Resolution::Refused(failure, _)) => Wanted::Blocked(failure.clone()),
        Some(Resolution::Needs(source)) => Wanted::Blocked(Failure::new(
            FailureClass::CaBundleMissing,
            format!("ConfigMap {} is being read", source.config_map),
        )),
        Some(Resolution::Ready(desired)) => {
            let endpoint = seen.and_then(|seen| seen.endpoint.as_deref());
            let endpoint = endpoint.or(instance.endpoint()).unwrap_or_default();
            desired.wanted(instance.about(), endpoint)
        }
    }
}

fn adopted(exporter: &Exporter) -> Event {
    let owner = exporter
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true));
    let about = About {
        namespace: exporter.namespace().unwrap_or_default(),
        name: exporter.name_any(),
        uid: exporter.uid(),
        set: owner.map(|owner| owner.name.clone()).unwrap_or_default(),
        set_uid: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
    };
    Event::Adopted {
        about,
        site: noted_site(exporter),
    }
}

/// The host that is noted on an Exporter as `user@host:port`.
fn noted_site(exporter: &Exporter) -> Option<Site> {
    let annotations = exporter.annotations();
    let noted = annotations.get(ANNOTATION_PENDING_HOST)?;
    let (user, address) = noted.split_once('@')?;
    let (host, port) = address.rsplit_once(':')?;
    Some(Site {
        host: host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned(),
        user: user.to_owned(),
        port: port.parse().ok()?,
        credentials_secret: annotations.get(ANNOTATION_CREDENTIALS_SECRET)?.clone(),
        host_key: None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::instance::fixtures::site;

    #[test]
    fn a_noted_host_is_read_back() {
        for host in ["lab-host-01.example.com", "fd00::1", "10.0.0.1"] {
            let site = Site {
                host: host.into(),
                user: "lab".into(),
                port: 2222,
                ..site()
            };
            let mut exporter = Exporter::new("x", crate::api::ExporterSpec::default());
            exporter.annotations_mut().extend([
                (ANNOTATION_PENDING_HOST.to_owned(), site.to_string()),
                (
                    ANNOTATION_CREDENTIALS_SECRET.to_owned(),
                    site.credentials_secret.clone(),
                ),
            ]);
            assert_eq!(noted_site(&exporter), Some(site));
        }
    }

    #[test]
    fn another_exporter_of_the_same_name_is_not_ours() {
        let about = crate::instance::fixtures::about();
        let mut exporter = Exporter::new(&about.name, crate::api::ExporterSpec::default());
        exporter.metadata.uid = Some("uid-of-another".into());
        assert!(!is_of(&exporter, &about));
        exporter.metadata.uid = about.uid.clone();
        assert!(is_of(&exporter, &about));
    }
}
