//! The start: what the journal says.

use super::{Engine, Slot};
use crate::controller::Fatal;
use crate::controller::actor::Held;
use crate::controller::ports::{Entry, Journal, JournalError};
use crate::controller::record::{Record, SetEvent, instance_stream};
use crate::controller::world::World;
use crate::instance::Instance;
use std::collections::BTreeMap;
use std::sync::Arc;

impl<W: World> Engine<W> {
    /// Folds the journal into instances and clocks.
    pub(super) fn resume(&mut self) -> Result<(), Fatal> {
        let mut held: BTreeMap<String, Held> = BTreeMap::new();
        let mut records = 0_u64;
        let world = Arc::clone(&self.world);
        for entry in world.journal().replay()? {
            let entry = entry?;
            records += 1;
            if let Record::Set(event) = &entry.record {
                let uid = entry.stream.strip_prefix("set/").unwrap_or(&entry.stream);
                let memory = self.sets.entry(uid.to_owned()).or_default();
                memory.clock.surplus_since = match event {
                    SetEvent::SurplusSince { at } => Some(*at),
                    SetEvent::SurplusOver => None,
                };
            } else {
                fold(&mut held, entry)?;
            }
        }
        for held in held.into_values() {
            let name = held.instance.about().name.clone();
            // The first lists are in: an Exporter that they do not show is gone.
            let slot = Slot {
                shown: true,
                ..Slot::new(held)
            };
            self.slots.insert(name, slot);
        }
        let alive = self
            .slots
            .values()
            .filter(|slot| !slot.is_deleted())
            .count();
        tracing::info!(records, instances = alive, "resumed from the journal");
        Ok(())
    }

    /// One instance, as the journal has it.
    pub(super) fn reread(&self, name: &str) -> Result<Held, Fatal> {
        let mut held = BTreeMap::new();
        let stream = instance_stream(name);
        for entry in self.world.journal().replay()? {
            let entry = entry?;
            if entry.stream == stream {
                fold(&mut held, entry)?;
            }
        }
        let missing = || JournalError(format!("nothing of {stream}"));
        Ok(held.remove(&stream).ok_or_else(missing)?)
    }
}

/// Carries out one record of an instance on what its stream has come to.
fn fold(held: &mut BTreeMap<String, Held>, entry: Entry) -> Result<(), Fatal> {
    let Entry {
        stream,
        version,
        at,
        record,
    } = entry;
    let Record::Instance(event) = record else {
        return Ok(());
    };
    let before = held.remove(&stream);
    let from = before
        .as_ref()
        .map(|held| (held.instance.state(), held.since));
    let instance = Instance::fold(before.map(|held| held.instance), &event)?;
    let since = match from {
        Some((state, since)) if state == instance.state() => since,
        _ => at,
    };
    let open = Vec::new();
    held.insert(
        stream,
        Held {
            instance,
            version,
            open,
            since,
        },
    );
    Ok(())
}

impl Slot {
    pub(super) const fn is_deleted(&self) -> bool {
        matches!(self.instance(), Instance::Deleted(_))
    }
}
