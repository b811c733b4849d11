//! The task that knows everything and decides one thing after the other.

mod spoken;
mod watched;
mod written;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::runtime::watcher::Event;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::control::Question;
use super::credentials::Signer;
use super::objects::{Exporter, Lease};
use super::peers::PeerEvent;
use super::store::{Key, Store};
use crate::report::Report;
use crate::wire::ToExporter;

/// How the controller behaves.
#[derive(Clone)]
pub struct Settings {
    /// What exporters are told to connect to.
    pub endpoint: String,
    /// How often a connected exporter's `lastSeen` moves.
    pub tick: Duration,
    /// After this long without a sign of life an exporter counts as lost.
    pub offline_after: Duration,
    /// Namespaces that begin with this have another controller.
    pub except: Option<String>,
    /// Makes tokens.
    pub signer: Signer,
}

/// Everything that reaches the brain.
pub enum Input {
    /// The watch of Exporters.
    Exporter(Event<Exporter>),
    /// The watch of Leases.
    Lease(Event<Lease>),
    /// The watch of Secrets.
    Secret(Event<Secret>),
    /// A connection.
    Peer(PeerEvent),
    /// A test.
    Question(Question),
    /// The API server went away for good, or came back.
    ApiServer(bool),
}

/// Something to look at, now or later.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    Exporter(Key),
    Lease(Key),
    /// A connected exporter's sign of life is due.
    Seen(Key, u64),
}

/// A connected exporter.
struct Peer {
    connection: u64,
    outbox: mpsc::UnboundedSender<ToExporter>,
    told: Option<String>,
    report: Report,
}

/// Its state. See the module's description.
pub struct Brain {
    client: Client,
    settings: Settings,
    exporters: Store<Exporter>,
    leases: Store<Lease>,
    secrets: Store<Secret>,
    peers: BTreeMap<Key, Peer>,
    connections: HashMap<u64, Key>,
    questions: HashMap<u64, oneshot::Sender<Report>>,
    next_question: u64,
    due: BTreeSet<Item>,
    timers: BTreeSet<(Instant, Item)>,
    listed: BTreeSet<&'static str>,
    is_api_server_there: bool,
}

impl Brain {
    /// A brain that knows nothing yet.
    #[must_use]
    pub fn new(client: Client, settings: Settings) -> Self {
        Self {
            client,
            settings,
            exporters: Store::default(),
            leases: Store::default(),
            secrets: Store::default(),
            peers: BTreeMap::new(),
            connections: HashMap::new(),
            questions: HashMap::new(),
            next_question: 0,
            due: BTreeSet::new(),
            timers: BTreeSet::new(),
            listed: BTreeSet::new(),
            is_api_server_there: true,
        }
    }

    /// Whether each watch has delivered its first list.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.listed.len() == 3
    }

    /// Works until the inputs end; `synced` is told once.
    pub async fn run(mut self, mut inputs: mpsc::Receiver<Input>, synced: oneshot::Sender<()>) {
        let mut synced = Some(synced);
        loop {
            let wake = self.timers.first().map(|(at, _)| *at);
            let sleep =
                sleep_until(wake.unwrap_or_else(|| Instant::now() + Duration::from_secs(60)));
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(input) => self.take(input).await,
                    None => return,
                },
                () = sleep => self.ring(),
            }
            if !self.is_synced() {
                continue;
            }
            if let Some(synced) = synced.take() {
                // Nobody may be waiting.
                let _ = synced.send(());
            }
            while let Some(item) = self.due.pop_first() {
                self.look_at(item).await;
            }
        }
    }

    /// Moves what is due from the timers to the work.
    fn ring(&mut self) {
        while self
            .timers
            .first()
            .is_some_and(|(at, _)| *at <= Instant::now())
        {
            self.due
                .extend(self.timers.pop_first().map(|(_, item)| item));
        }
    }

    fn later(&mut self, delay: Duration, item: Item) {
        // At most one timer per item, the earliest: rules look again by themselves.
        let at = Instant::now() + delay;
        let known = self
            .timers
            .iter()
            .find(|(_, known)| *known == item)
            .map(|(at, _)| *at);
        if let Some(known) = known {
            if known <= at {
                return;
            }
            self.timers.remove(&(known, item.clone()));
        }
        self.timers.insert((at, item));
    }

    async fn take(&mut self, input: Input) {
        match input {
            Input::Exporter(event) => self.exporter_event(event),
            Input::Lease(event) => self.lease_event(event),
            Input::Secret(event) => self.secret_event(event),
            Input::Peer(event) => self.peer_event(event).await,
            Input::Question(question) => self.answer(question),
            Input::ApiServer(is_there) => self.api_server_event(is_there),
        }
    }
}
