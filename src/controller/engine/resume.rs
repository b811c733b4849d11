//! The start: what the journal says.

use super::{Engine, Slot};
use crate::controller::Fatal;
use crate::controller::actor::Held;
use crate::controller::ports::{Entry, Journal};
use crate::controller::record::{Record, SetEvent};
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
            let Entry {
                stream,
                version,
                at,
                record,
            } = entry?;
            records += 1;
            match record {
                Record::Instance(event) => {
                    let before = held.remove(&stream);
                    let from = before
                        .as_ref()
                        .map(|held| (held.instance.state(), held.since));
                    let instance = Instance::fold(before.map(|held| held.instance), &event)?;
                    let since = match from {
                        Some((state, since)) if state == instance.state() => since,
                        _ => at,
                    };
                    held.insert(
                        stream,
                        Held {
                            instance,
                            version,
                            open: Vec::new(),
                            since,
                        },
                    );
                }
                Record::Set(event) => {
                    let uid = stream.strip_prefix("set/").unwrap_or(&stream).to_owned();
                    let memory = self.sets.entry(uid).or_default();
                    memory.clock.surplus_since = match event {
                        SetEvent::SurplusSince { at } => Some(at),
                        SetEvent::SurplusOver => None,
                    };
                }
            }
        }
        for held in held.into_values() {
            let name = held.instance.about().name.clone();
            // The first lists are in: an Exporter that they do not show is gone.
            self.slots.insert(
                name,
                Slot {
                    shown: true,
                    ..Slot::new(held)
                },
            );
        }
        let alive = self
            .slots
            .values()
            .filter(|slot| !slot.is_deleted())
            .count();
        tracing::info!(records, instances = alive, "resumed from the journal");
        Ok(())
    }
}

impl Slot {
    pub(super) const fn is_deleted(&self) -> bool {
        matches!(self.instance(), Instance::Deleted(_))
    }
}
