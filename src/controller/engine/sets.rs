//! The number of exporters of a set: who counts, and what the decision leads to.

use super::pass::{View, is_online};
use super::{Engine, RELIST, Slot};
use crate::api::{ExporterSet, LABEL_LEASE_ENDED, Lease};
use crate::controller::desired::{Resolution, demand};
use crate::controller::ports::{Clock, Cluster, Context, Journal, Leadership, Notice, NoticeKind};
use crate::controller::record::{Record, SetEvent, set_stream};
use crate::controller::world::{World, millis};
use crate::controller::{Fatal, actor};
use crate::instance::{About, Event, Reason, State, Transition};
use crate::pool::{self, Member, Phase, Scale};
use kube::ResourceExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long an exporter whose units run may take to show up before it counts as offline.
const REGISTERS_WITHIN: Duration = Duration::from_secs(60);
/// Characters of generated names: no vowels, nothing that is easily mistaken.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl<W: World> Engine<W> {
    /// Creates or gives up exporters of one set.
    pub(super) async fn scale(
        &mut self,
        uid: &str,
        set: &Arc<ExporterSet>,
        resolution: &Resolution,
        view: &View,
    ) -> Result<Duration, Fatal> {
        let memory = self.sets.entry(uid.to_owned()).or_default();
        let clock = memory.clock;
        let Resolution::Ready(_) = resolution else {
            return Ok(RELIST);
        };
        let now = self.world.clock().now();
        let members = self.members(uid, view, now);
        let demand = demand(set, waiting_leases(set, &view.leases, now));
        match pool::scale(&demand, &members, clock, millis(now)) {
            Scale::Steady => Ok(RELIST),
            Scale::Cooling(rest) => Ok(rest),
            Scale::StartClock => {
                self.set_clock(uid, SetEvent::SurplusSince { at: millis(now) })
                    .await?;
                Ok(demand.cooldown)
            }
            Scale::StopClock => {
                self.set_clock(uid, SetEvent::SurplusOver).await?;
                Ok(RELIST)
            }
            Scale::Up(count) => {
                for _ in 0..count {
                    self.plan(uid, set).await?;
                }
                Ok(Duration::ZERO)
            }
            Scale::Down(name) => self.give_up(uid, set, &name, now).await,
        }
    }

    /// The members of a set, with how far their instances are.
    pub(super) fn members(&self, uid: &str, view: &View, now: SystemTime) -> Vec<Member> {
        let of_set = |slot: &&Slot| slot.instance().about().set_uid == uid && !slot.is_deleted();
        self.slots
            .values()
            .filter(of_set)
            .map(|slot| member(slot, view, now))
            .collect()
    }

    async fn set_clock(&mut self, uid: &str, event: SetEvent) -> Result<(), Fatal> {
        let fence = self.world.leadership().fence().ok_or(Fatal::NotLeader)?;
        let memory = self.sets.entry(uid.to_owned()).or_default();
        let context = Context {
            at: self.world.clock().now(),
            epoch: fence.epoch,
            traceparent: None,
        };
        memory.clock.surplus_since = match event {
            SetEvent::SurplusSince { at } => Some(at),
            SetEvent::SurplusOver => None,
        };
        let records = vec![Record::Set(event)];
        let stream = set_stream(uid);
        self.world
            .journal()
            .append(&stream, None, context, records)
            .await?;
        Ok(())
    }

    /// Fixes the name of a new exporter; it is created under it at the next look.
    async fn plan(&mut self, uid: &str, set: &ExporterSet) -> Result<(), Fatal> {
        let name = loop {
            let name = generated_name(&set.name_any(), self.world.clock().random());
            if !self.slots.contains_key(&name) {
                break name;
            }
        };
        let about = About {
            namespace: set.namespace().unwrap_or_default(),
            name: name.clone(),
            uid: None,
            set: set.name_any(),
            set_uid: uid.to_owned(),
        };
        let held = actor::append(&*self.world, None, &[Event::Planned(about)]).await?;
        self.slots.insert(name, Slot::new(held));
        Ok(())
    }

    async fn give_up(
        &mut self,
        uid: &str,
        set: &ExporterSet,
        name: &str,
        now: SystemTime,
    ) -> Result<Duration, Fatal> {
        let Some(slot) = self.slots.get_mut(name).filter(|slot| !slot.busy) else {
            // It is in the midst of a step; its outcome wakes us.
            return Ok(RELIST);
        };
        let drained = Event::Moved(Transition::Drained(Reason::ScaledDown));
        slot.held = actor::append(&*self.world, Some(&slot.held), &[drained]).await?;
        self.set_clock(uid, SetEvent::SurplusSince { at: millis(now) })
            .await?;
        let notice = Notice {
            kind: NoticeKind::Set,
            name: set.name_any(),
            uid: uid.to_owned(),
            warning: false,
            reason: "ScaleDown".to_owned(),
            message: format!("Disabled Exporter {name} for removal"),
        };
        let world = Arc::clone(&self.world);
        self.tasks
            .spawn(async move { world.cluster().notify(&notice).await });
        Ok(Duration::ZERO)
    }
}

fn member(slot: &Slot, view: &View, now: SystemTime) -> Member {
    let instance = slot.instance();
    let name = instance.about().name.clone();
    let exporter = view.exporters.get(&name);
    let online = exporter.is_some_and(|exporter| is_online(exporter));
    let age = now.duration_since(slot.held.since).unwrap_or_default();
    let phase = match instance.state() {
        State::Draining | State::Deleted => Phase::Draining,
        _ if instance.progress().failed.is_some() => Phase::Failed,
        State::Annotated if online || age > REGISTERS_WITHIN => Phase::Running,
        _ => Phase::Pending,
    };
    Member {
        phase,
        online,
        enabled: exporter.is_none_or(|exporter| exporter.spec.enabled.unwrap_or(true)),
        leased: exporter
            .and_then(|exporter| exporter.status.as_ref())
            .is_some_and(|status| status.lease_ref.is_some()),
        created: exporter
            .and_then(|exporter| exporter.creation_timestamp())
            .map_or(i64::MAX, |time| time.0.as_second()),
        name,
    }
}

/// Leases that wait for an exporter like those of `set`. One that names its exporter waits for
/// that one only.
fn waiting_leases(set: &ExporterSet, leases: &[Arc<Lease>], now: SystemTime) -> i32 {
    let labels = &set.spec.template.metadata.labels;
    let waits = |lease: &&Arc<Lease>| {
        let status = lease.status.as_ref();
        let ended = status.is_some_and(|status| status.ended)
            || lease
                .labels()
                .get(LABEL_LEASE_ENDED)
                .is_some_and(|value| value == "true");
        let pending = status.is_some_and(|status| {
            status.exporter_ref.is_none()
                && status
                    .conditions
                    .iter()
                    .any(|c| c.type_ == "Pending" && c.status == "True")
        });
        let later = lease.spec.begin_time.as_ref().is_some_and(|time| {
            u64::try_from(time.0.as_millisecond()).is_ok_and(|begin| begin > millis(now))
        });
        !ended
            && pending
            && !later
            && lease.spec.exporter_ref.is_none()
            && pool::selects(&lease.spec.selector, labels)
    };
    i32::try_from(leases.iter().filter(waits).count()).unwrap_or(i32::MAX)
}

/// A name for an exporter of `set`: cut to 63 characters in all, as the API server does it for
/// generated names, and ending in five that nobody can foresee.
fn generated_name(set: &str, random: u64) -> String {
    let stem: String = set.chars().take(57).collect();
    let stem = stem.trim_end_matches(['-', '.']);
    let mut rest = random;
    let mut suffix = String::with_capacity(5);
    for _ in 0..5 {
        let index = usize::try_from(rest % 27).unwrap_or(0);
        suffix.push(ALPHABET.get(index).copied().map_or('b', char::from));
        rest /= 27;
    }
    format!("{stem}-{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_differ() {
        assert_eq!(generated_name("pool", 0), "pool-bbbbb");
        assert_eq!(generated_name("pool", 26), "pool-9bbbb");
        let long = generated_name(&"x".repeat(80), 27);
        assert_eq!(long, format!("{}-bcbbb", "x".repeat(57)));
        assert_eq!(
            generated_name(&format!("{}-tail", "y".repeat(56)), 0),
            format!("{}-bbbbb", "y".repeat(56))
        );
    }
}
