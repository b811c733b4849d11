//! The youngest lines, in memory until they are in sled.
//!
//! sled takes longer for an insertion than the disk for a sync, so appends don't wait for it: they
//! are readable from here at once, and a thread moves them to sled in large batches. A crash loses
//! what is here; the next open gets it from the segments.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::line::Line;

/// How long lines may stay here.
const LINGER: Duration = Duration::from_millis(200);
/// How many may be here before they are moved without further ado.
const FULL: usize = 16 << 10;
/// How many may be here before the writer is made to wait.
const CROWDED: usize = 16 * FULL;

/// The consecutive versions of one stream, beginning with the first one's number.
pub(super) type Runs = HashMap<Arc<str>, (u64, Vec<u64>)>;

#[derive(Debug, Default)]
struct State {
    young: Runs,
    /// How many lines are in `young`.
    count: usize,
    /// On their way to sled.
    moving: Arc<Runs>,
    closing: bool,
}

/// Lines that may not be in sled yet.
#[derive(Debug, Default)]
pub(super) struct Recent {
    state: Mutex<State>,
    changed: Condvar,
    moved: Condvar,
}

impl Recent {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, lines: impl Iterator<Item = Line>) {
        let mut state = self.state();
        let before = state.count;
        for line in lines {
            let (_, sequences) = state
                .young
                .entry(line.stream)
                .or_insert_with(|| (line.version, Vec::new()));
            sequences.push(line.sequence);
            state.count += 1;
        }
        if before == 0 || (before < FULL && state.count >= FULL) {
            self.changed.notify_one();
        }
    }

    /// Waits until there is room for more, if somebody is making room.
    pub(super) fn wait_for_room(&self) {
        let state = self.state();
        let crowded = |state: &mut State| state.count >= CROWDED && !state.closing;
        drop(
            self.moved
                .wait_while(state, crowded)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Lines of a stream from version `from` on that are here.
    pub(super) fn lookup(&self, stream: &str, from: u64, limit: usize) -> Vec<(u64, u64)> {
        let state = self.state();
        let mut found = Vec::new();
        for runs in [&*state.moving, &state.young] {
            let Some((first, sequences)) = runs.get(stream) else {
                continue;
            };
            let skip = usize::try_from(from.saturating_sub(*first)).unwrap_or(usize::MAX);
            let room = limit - found.len();
            found.extend(
                (*first..)
                    .zip(sequences.iter().copied())
                    .skip(skip)
                    .take(room),
            );
        }
        found
    }

    /// Waits until there is something to move and it is time. `false` when closing.
    pub(super) fn wait_for_work(&self) -> bool {
        let state = self.state();
        let idle = |state: &mut State| state.count == 0 && !state.closing;
        let state = self
            .changed
            .wait_while(state, idle)
            .unwrap_or_else(PoisonError::into_inner);
        let early = |state: &mut State| state.count < FULL && !state.closing;
        let waited = self.changed.wait_timeout_while(state, LINGER, early);
        !waited.unwrap_or_else(PoisonError::into_inner).0.closing
    }

    /// Takes what is here for moving; it can still be looked up until [`Self::done`].
    pub(super) fn take(&self) -> Arc<Runs> {
        let mut state = self.state();
        state.moving = Arc::new(std::mem::take(&mut state.young));
        state.count = 0;
        self.moved.notify_all();
        Arc::clone(&state.moving)
    }

    /// What was taken is in sled now.
    pub(super) fn done(&self) {
        self.state().moving = Arc::default();
    }

    pub(super) fn close(&self) {
        self.state().closing = true;
        self.changed.notify_all();
        self.moved.notify_all();
    }
}
