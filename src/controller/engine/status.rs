//! The status of a set: counters, conditions, and the Events of their changes.

use super::pass::View;
use super::{Came, Engine};
use crate::api::{ExporterSet, ExporterSetStatus};
use crate::controller::desired::{Resolution, demand};
use crate::controller::ports::{Clock, Cluster, Notice, NoticeKind};
use crate::controller::world::World;
use crate::pool::{Census, Stuck, Turn, Verdict, conditions, selector_text};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// After so long a status that the watch does not show is sent again.
const RESEND: Duration = Duration::from_secs(10);

impl<W: World> Engine<W> {
    /// Writes the status of a set, if it changed.
    pub(super) fn report(
        &mut self,
        uid: &str,
        set: &Arc<ExporterSet>,
        resolution: &Resolution,
        view: &View,
    ) {
        let verdict = match resolution {
            Resolution::NotOurs | Resolution::Needs(_) => return,
            Resolution::Ready(_) => None,
            Resolution::Refused(_, verdict) => Some(verdict),
        };
        let now = self.world.clock().now();
        let members = self.members(uid, view, now);
        let census = Census::of(&members);
        let stuck = self.stuck(uid);
        let memory = self.sets.entry(uid.to_owned()).or_default();
        let sent = memory.sent.as_ref().map(|(status, _)| status);
        let before = sent.or(set.status.as_ref());
        let (status, turns) = status(set, before, &census, verdict, &stuck, now);
        let shown = set.status.as_ref() == Some(&status);
        let under_way = memory.sent.as_ref().is_some_and(|(sent, at)| {
            *sent == status && now.duration_since(*at).unwrap_or_default() < RESEND
        });
        if shown || under_way || memory.sending {
            return;
        }
        memory.sent = Some((status.clone(), now));
        memory.sending = true;
        self.send(uid, set, status, turns);
    }

    fn stuck(&self, uid: &str) -> Vec<Stuck> {
        let of_set = self.slots.values().map(super::Slot::instance);
        of_set
            .filter(|instance| instance.about().set_uid == uid)
            .filter_map(|instance| {
                let failed = instance.progress().failed.as_ref()?;
                let exporter = instance.about().name.clone();
                Some(Stuck {
                    exporter,
                    failure: failed.failure.clone(),
                })
            })
            .collect()
    }

    fn send(&mut self, uid: &str, set: &ExporterSet, status: ExporterSetStatus, turns: Vec<Turn>) {
        let (world, sender) = (Arc::clone(&self.world), self.sender.clone());
        let (uid, name) = (uid.to_owned(), set.name_any());
        self.tasks.spawn(async move {
            if let Err(error) = world.cluster().patch_set_status(&name, &status).await {
                tracing::warn!(set = name, %error, "the status could not be written");
            }
            for Turn {
                warning,
                reason,
                message,
            } in turns
            {
                let (name, uid, reason) = (name.clone(), uid.clone(), reason.to_owned());
                let kind = NoticeKind::Set;
                let notice = Notice {
                    kind,
                    name,
                    uid,
                    warning,
                    reason,
                    message,
                };
                world.cluster().notify(&notice).await;
            }
            // The receiver is gone only when the engine is.
            let _ = sender.send(Came::Status(uid));
        });
    }
}

fn status(
    set: &ExporterSet,
    before: Option<&ExporterSetStatus>,
    census: &Census,
    verdict: Option<&Verdict>,
    stuck: &[Stuck],
    now: SystemTime,
) -> (ExporterSetStatus, Vec<Turn>) {
    let old = before
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    // The API server keeps seconds: what is compared with what it shows must not have more.
    let seconds = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let now = Timestamp::from_second(i64::try_from(seconds).unwrap_or(0)).unwrap_or_default();
    let (conditions, turns) = conditions(
        old,
        census,
        &demand(set, 0),
        verdict,
        stuck,
        set.metadata.generation,
        &Time(now),
    );
    let status = ExporterSetStatus {
        replicas: census.replicas,
        ready_replicas: census.ready,
        available_replicas: census.available,
        unavailable_replicas: census.offline,
        leased_replicas: census.leased,
        pods_pending: census.pending,
        pods_running: census.running,
        pods_failed: census.failed,
        pods_unknown: 0,
        exporters_active: census.active,
        exporters_idle: census.idle,
        exporters_disabled: census.disabled,
        exporters_offline: census.offline,
        selector: Some(selector_text(&set.spec.selector)),
        conditions,
    };
    (status, turns)
}
