//! What the writer is asked for, and how requests become a group.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::Appended;
use crate::Expected;
use crate::chain::RecordNote;
use crate::error::AppendError;
use crate::trace::TraceParent;

/// How many appends share one sync at most.
const GROUP: usize = 1024;
/// A group is closed early when it has this many bytes of payload.
const GROUP_BYTES: usize = 4 << 20;
/// The writer never waits longer than this for a group to fill.
const PATIENCE: Duration = Duration::from_micros(250);

/// What an append comes to.
pub(crate) type Outcome = Result<Appended, AppendError>;

/// One append, checked and encoded by the caller's task.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) stream: Arc<str>,
    pub(crate) expected: Expected,
    pub(crate) epoch: u64,
    pub(crate) at_micros: u64,
    pub(crate) trace: Option<TraceParent>,
    pub(crate) payloads: Vec<Vec<u8>>,
    pub(crate) reply: oneshot::Sender<Outcome>,
}

impl Request {
    fn bytes(&self) -> usize {
        self.payloads.iter().map(Vec::len).sum()
    }
}

/// What the writer is asked for.
#[derive(Debug)]
pub(crate) enum Message {
    Append(Request),
    /// Seal the segment, if there is anything in it.
    Seal(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
}

/// What comes after a group.
pub(super) enum Then {
    Continue,
    Seal(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
}

/// Takes what is queued, up to a group's size or something else than an append.
pub(super) fn take_group(
    first: Message,
    queue: &mut mpsc::Receiver<Message>,
) -> (Vec<Request>, Then) {
    let mut requests = Vec::new();
    let mut bytes = 0;
    let mut next = Some(first);
    while let Some(message) = next {
        match message {
            Message::Append(request) => {
                bytes += request.bytes();
                requests.push(request);
            }
            Message::Seal(reply) => return (requests, Then::Seal(reply)),
            Message::Close(reply) => return (requests, Then::Close(reply)),
        }
        let full = requests.len() >= GROUP || bytes >= GROUP_BYTES;
        next = if full { None } else { queue.try_recv().ok() };
    }
    (requests, Then::Continue)
}

/// Lets the callers that were answered a moment ago join the next group.
///
/// Without it, appenders in a loop split into two halves that take turns, each waiting out the
/// other's sync. It waits only as long as there are fewer requests than there were callers, and at
/// most half as long as a group takes; a lone caller never waits.
#[derive(Debug, Default)]
pub(super) struct Pace {
    callers: usize,
    patience: Duration,
}

impl Pace {
    pub(super) fn gather(&self, queue: &mpsc::Receiver<Message>) {
        let started = Instant::now();
        while queue.len() + 1 < self.callers && started.elapsed() < self.patience {
            thread::yield_now();
        }
    }

    pub(super) fn observe(&mut self, callers: usize, took: Duration) {
        self.callers = callers.min(GROUP);
        self.patience = (took / 2).min(PATIENCE);
    }
}

/// A record that has been encoded into the group's buffer.
pub(super) struct Written {
    pub(super) stream: Arc<str>,
    pub(super) note: RecordNote,
    pub(super) offset: u64,
}

/// The group that is being put together.
#[derive(Default)]
pub(super) struct Group {
    pub(super) bytes: Vec<u8>,
    pub(super) written: Vec<Written>,
    pub(super) versions: HashMap<Arc<str>, u64>,
    pub(super) replies: Vec<(oneshot::Sender<Outcome>, Outcome)>,
}

impl Group {
    /// Empties it and keeps the room, unless a huge group had needed far more than usual.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(GROUP_BYTES);
        self.written.clear();
        self.versions.clear();
    }
}
