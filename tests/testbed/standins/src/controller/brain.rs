//! The task that knows everything and decides one thing after the other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use base64::Engine as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::watcher::Event;
use kube::{Client, Resource, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::control::{Connected, Question};
use super::credentials::{Signer, Subject};
use super::exporter_rules::{self, Facts};
use super::lease_rules::{self, Decision};
use super::objects::{Exporter, ExporterStatus, LEASE_ENDED_LABEL, Lease, now, status_patch};
use super::peers::PeerEvent;
use super::store::{Key, Store, key};
use crate::jmp::run::fresh_uuid;
use crate::log::log;
use crate::report::Report;
use crate::wire::{FromExporter, Identity, TOUCH_ANNOTATION, ToExporter};

/// Pause after a failed write.
const RETRY: Duration = Duration::from_millis(500);
/// Prefix of the labels that belong to the exporter's registration.
const LABEL_PREFIX: &str = "jumpstarter.dev/";

/// How the controller behaves.
#[derive(Clone)]
pub struct Settings {
    /// What exporters are told to connect to.
    pub endpoint: String,
    /// How often a connected exporter's `lastSeen` moves.
    pub tick: Duration,
    /// After this long without a sign of life an exporter counts as lost.
    pub offline_after: Duration,
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
    lists: u8,
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
            lists: 0,
        }
    }

    /// Whether each watch has delivered its first list.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.lists >= 3
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
        }
    }
}

// What the watches tell.
impl Brain {
    fn exporter_event(&mut self, event: Event<Exporter>) {
        match event {
            Event::Init => self.exporters.begin_list(),
            Event::InitApply(exporter) => {
                self.exporters.listed(key(&exporter));
                self.put_exporter(exporter);
            }
            Event::InitDone => {
                self.lists = self.lists.saturating_add(1);
                for gone in self.exporters.end_list() {
                    self.exporters.remove(&gone);
                    self.touch_waiting_leases(&gone.0);
                }
            }
            Event::Apply(exporter) => self.put_exporter(exporter),
            Event::Delete(exporter) => {
                let gone = key(&exporter);
                self.exporters.remove(&gone);
                self.touch_waiting_leases(&gone.0);
            }
        }
    }

    fn put_exporter(&mut self, exporter: Exporter) {
        let key = key(&exporter);
        if self.exporters.put(exporter) {
            self.touch_waiting_leases(&key.0);
            self.due.insert(Item::Exporter(key));
        }
    }

    /// Any change of an exporter may be what a lease of its namespace waits for.
    fn touch_waiting_leases(&mut self, namespace: &str) {
        let waiting = self
            .leases
            .in_namespace(namespace)
            .filter(|lease| !lease.is_ended() && lease.exporter().is_none());
        self.due
            .extend(waiting.map(|lease| Item::Lease(key(lease))));
    }

    fn lease_event(&mut self, event: Event<Lease>) {
        match event {
            Event::Init => self.leases.begin_list(),
            Event::InitApply(lease) => {
                self.leases.listed(key(&lease));
                self.put_lease(lease);
            }
            Event::InitDone => {
                self.lists = self.lists.saturating_add(1);
                for gone in self.leases.end_list() {
                    self.lease_gone(&gone);
                }
            }
            Event::Apply(lease) => self.put_lease(lease),
            Event::Delete(lease) => self.lease_gone(&key(&lease)),
        }
    }

    fn put_lease(&mut self, lease: Lease) {
        let key = key(&lease);
        let exporter = lease
            .exporter()
            .map(|name| (key.0.clone(), name.to_owned()));
        if self.leases.put(lease) {
            self.due.extend(exporter.map(Item::Exporter));
            self.due.insert(Item::Lease(key));
        }
    }

    fn lease_gone(&mut self, gone: &Key) {
        let exporter = self.leases.remove(gone).and_then(|lease| {
            lease
                .exporter()
                .map(|name| (gone.0.clone(), name.to_owned()))
        });
        self.due.extend(exporter.map(Item::Exporter));
        // The exporter that it held is free for others.
        self.touch_waiting_leases(&gone.0);
    }

    fn secret_event(&mut self, event: Event<Secret>) {
        match event {
            Event::Init => self.secrets.begin_list(),
            Event::InitApply(secret) => {
                self.secrets.listed(key(&secret));
                self.put_secret(secret);
            }
            Event::InitDone => {
                self.lists = self.lists.saturating_add(1);
                for gone in self.secrets.end_list() {
                    self.secret_gone(&gone);
                }
            }
            Event::Apply(secret) => self.put_secret(secret),
            Event::Delete(secret) => self.secret_gone(&key(&secret)),
        }
    }

    fn put_secret(&mut self, secret: Secret) {
        let exporter = exporter_of_secret(&key(&secret));
        if exporter.is_some() && self.secrets.put(secret) {
            self.due.extend(exporter.map(Item::Exporter));
        }
    }

    fn secret_gone(&mut self, gone: &Key) {
        self.secrets.remove(gone);
        self.due
            .extend(exporter_of_secret(gone).map(Item::Exporter));
    }
}

fn exporter_of_secret((namespace, name): &Key) -> Option<Key> {
    Some((
        namespace.clone(),
        name.strip_suffix("-exporter")?.to_owned(),
    ))
}

// What is written to the cluster.
impl Brain {
    async fn look_at(&mut self, item: Item) {
        let result = match &item {
            Item::Exporter(key) => self.look_at_exporter(key).await,
            Item::Lease(key) => self.look_at_lease(key).await,
            Item::Seen(key, connection) => self.sign_of_life(key, *connection).await,
        };
        match result {
            // Deleted in the meantime: the watch will tell.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => {
                log(&format!("{item:?}: {error}"));
                self.later(RETRY, item);
            }
            Ok(()) => {}
        }
    }

    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
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
    fn lease_of(&self, (namespace, name): &Key) -> Option<&Lease> {
        self.leases
            .in_namespace(namespace)
            .find(|lease| !lease.is_ended() && lease.exporter() == Some(name))
    }

    async fn write_exporter_status(
        &mut self,
        key: &Key,
        old: &ExporterStatus,
        new: &ExporterStatus,
    ) -> kube::Result<()> {
        let Some(patch) = status_patch(old, new) else {
            return Ok(());
        };
        let api: Api<Exporter> = self.api(&key.0);
        let written = api
            .patch_status(&key.1, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
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
        if exporter.metadata.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let id = fresh_uuid();
        let token = self
            .settings
            .signer
            .issue(&subject, id, now())
            .map_err(kube::Error::SerdeError)?;
        let api: Api<Secret> = self.api(&key.0);
        let owner = vec![exporter.owner()];
        let written = if secret.is_some() {
            let token = base64::engine::general_purpose::STANDARD.encode(token);
            let patch = json!({
                "metadata": { "ownerReferences": owner },
                "data": { "token": token },
            });
            api.patch(&secret_key.1, &PatchParams::default(), &Patch::Merge(patch))
                .await?
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
            api.create(&PostParams::default(), &secret).await?
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
        let Some(patch) = status_patch(&lease.status, &status) else {
            return self.label_ended(key, &lease).await;
        };
        log(&format!("lease {}/{}: {decision:?}", key.0, key.1));
        if let Some(owner) = owner {
            self.patch_lease(key, json!({ "metadata": { "ownerReferences": [owner] } }))
                .await?;
        }
        let api: Api<Lease> = self.api(&key.0);
        let written = api
            .patch_status(&key.1, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
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
        let api: Api<Lease> = self.api(&key.0);
        let written = api
            .patch(&key.1, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        self.put_lease(written);
        Ok(())
    }

    async fn sign_of_life(&mut self, key: &Key, connection: u64) -> kube::Result<()> {
        // A timer of a connection that is gone is let run out.
        if !self
            .peers
            .get(key)
            .is_some_and(|peer| peer.connection == connection)
        {
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

fn secret_name(exporter: &str) -> String {
    format!("{exporter}-exporter")
}

fn subject(exporter: &Exporter) -> Subject {
    Subject {
        namespace: exporter.namespace().unwrap_or_default(),
        name: exporter.name_any(),
        uid: exporter.uid().unwrap_or_default(),
    }
}

// What exporters say, and what they are told.
impl Brain {
    async fn peer_event(&mut self, event: PeerEvent) {
        match event {
            PeerEvent::Hello {
                connection,
                first,
                outbox,
            } => {
                self.hello(connection, first, outbox).await;
            }
            PeerEvent::Said {
                connection,
                message,
            } => self.said(connection, message).await,
            PeerEvent::Closed { connection } => {
                let Some(key) = self.connections.remove(&connection) else {
                    return;
                };
                if self
                    .peers
                    .get(&key)
                    .is_some_and(|peer| peer.connection == connection)
                {
                    log(&format!("exporter {}/{} hung up", key.0, key.1));
                    self.peers.remove(&key);
                }
            }
        }
    }

    async fn hello(
        &mut self,
        connection: u64,
        first: FromExporter,
        outbox: mpsc::UnboundedSender<ToExporter>,
    ) {
        let refuse = |message: &str| {
            log(&format!("connection {connection} refused: {message}"));
            // Dropped afterwards, which ends the connection.
            let _ = outbox.send(ToExporter::Refused {
                message: message.into(),
            });
        };
        let (identity, report, told, resumed) = match &first {
            FromExporter::Register {
                identity, report, ..
            } => (identity, report, None, false),
            FromExporter::Resume {
                identity,
                report,
                lease,
            } => (identity, report, lease.clone(), true),
            _ => return refuse("the first message must be Register or Resume"),
        };
        let key = match self.authenticate(identity) {
            Ok(key) => key,
            Err(message) => return refuse(message),
        };
        log(&format!(
            "exporter {}/{} {}",
            key.0,
            key.1,
            if resumed { "is back" } else { "registers" }
        ));
        let peer = Peer {
            connection,
            outbox,
            told,
            report: (**report).clone(),
        };
        let tick_ms = self.settings.tick.min(Duration::from_secs(1)).as_millis();
        peer.tell(ToExporter::Accepted {
            tick_ms: tick_ms.try_into().unwrap_or(1000),
        });
        self.connections.insert(connection, key.clone());
        // One connection per exporter: the newest. The other one ends when its outbox is dropped.
        self.peers.insert(key.clone(), peer);
        let registration = match first {
            FromExporter::Register {
                labels, devices, ..
            } => Some((labels, devices)),
            _ => None,
        };
        if let Err(error) = self.welcome(&key, registration).await {
            log(&format!("registration of {}/{}: {error}", key.0, key.1));
            // Without a peer its connection ends, and the exporter comes again.
            self.peers.remove(&key);
            return;
        }
        self.later(self.settings.tick, Item::Seen(key.clone(), connection));
        self.due.insert(Item::Exporter(key));
    }

    /// The exporter that an identity stands for, if its token says so too.
    fn authenticate(&self, identity: &Identity) -> Result<Key, &'static str> {
        let Identity {
            token,
            kind,
            namespace,
            name,
        } = identity;
        if kind != "Exporter" {
            return Err("the kind must be Exporter");
        }
        let Some(proven) = self.settings.signer.verify(token, now()) else {
            return Err("the token is invalid");
        };
        let key = (namespace.clone(), name.clone());
        let Some(exporter) = self.exporters.get(&key) else {
            return Err("there is no such Exporter");
        };
        if proven == subject(exporter) {
            Ok(key)
        } else {
            Err("the token is another Exporter's")
        }
    }

    /// Writes a registration to the Exporter, or just a sign of life.
    async fn welcome(
        &mut self,
        key: &Key,
        registration: Option<(BTreeMap<String, String>, Vec<crate::config::Device>)>,
    ) -> kube::Result<()> {
        let Some(exporter) = self.exporters.get(key).cloned() else {
            return Ok(());
        };
        let status = match registration {
            Some((labels, devices)) => {
                if let Some(patch) = label_patch(exporter.labels(), &labels) {
                    let api: Api<Exporter> = self.api(&key.0);
                    let params = PatchParams::default();
                    let written = api.patch(&key.1, &params, &Patch::Merge(patch)).await?;
                    self.put_exporter(written);
                }
                exporter_rules::registered(&exporter, devices, now())
            }
            None => exporter_rules::resumed(&exporter, now()),
        };
        self.write_exporter_status(key, &exporter.status, &status)
            .await
    }

    async fn said(&mut self, connection: u64, message: FromExporter) {
        let Some(key) = self.connections.get(&connection).cloned() else {
            return;
        };
        let Some(exporter) = self.exporters.get(&key).cloned() else {
            return;
        };
        let status = match message {
            FromExporter::Status { status, message } => {
                exporter_rules::reported(&exporter, status, &message, now())
            }
            FromExporter::Unregister => {
                log(&format!("exporter {}/{} unregisters", key.0, key.1));
                // What the connection carries from here on is not its life.
                self.connections.remove(&connection);
                self.peers.remove(&key);
                exporter_rules::unregistered(&exporter, now())
            }
            FromExporter::Report { id, report } => {
                if let Some(peer) = self.peers.get_mut(&key) {
                    peer.report = (*report).clone();
                }
                // The test may have stopped waiting.
                let _ = self
                    .questions
                    .remove(&id)
                    .map(|answer| answer.send(*report));
                return;
            }
            FromExporter::Tick | FromExporter::Register { .. } | FromExporter::Resume { .. } => {
                return;
            }
        };
        if let Err(error) = self
            .write_exporter_status(&key, &exporter.status, &status)
            .await
        {
            log(&format!("status of {}/{}: {error}", key.0, key.1));
        }
    }

    /// Tells a connected exporter of its lease, if it doesn't know.
    fn tell_lease(&mut self, key: &Key) {
        let lease = self.lease_of(key).map(|lease| {
            let touch = lease
                .annotations()
                .get(TOUCH_ANNOTATION)
                .is_some_and(|text| text == "true");
            (lease.name_any(), touch)
        });
        let Some(peer) = self.peers.get_mut(key) else {
            return;
        };
        let name = lease.as_ref().map(|(name, _)| name.clone());
        if peer.told == name {
            return;
        }
        if let Some(old) = std::mem::replace(&mut peer.told, name) {
            peer.tell(ToExporter::LeaseEnded { lease: old });
        }
        if let Some((lease, touch)) = lease {
            peer.tell(ToExporter::LeaseStarted { lease, touch });
        }
    }

    fn answer(&mut self, question: Question) {
        // Answers are dropped when the test stopped waiting, and questions about
        // exporters that aren't connected, which shows as 404.
        match question {
            Question::List(answer) => {
                let connected = self
                    .peers
                    .iter()
                    .map(|((namespace, name), peer)| Connected {
                        namespace: namespace.clone(),
                        name: name.clone(),
                        lease: peer.told.clone(),
                        report: peer.report.clone(),
                    });
                let _ = answer.send(connected.collect());
            }
            Question::Last(key, answer) => {
                if let Some(peer) = self.peers.get(&key) {
                    let _ = answer.send(peer.report.clone());
                }
            }
            Question::Fresh(key, answer) => {
                if let Some(peer) = self.peers.get(&key) {
                    self.next_question += 1;
                    self.questions.retain(|_, waiting| !waiting.is_closed());
                    self.questions.insert(self.next_question, answer);
                    peer.tell(ToExporter::Report {
                        id: self.next_question,
                    });
                }
            }
        }
    }
}

impl Peer {
    fn tell(&self, message: ToExporter) {
        // A connection that is gone reports itself.
        let _ = self.outbox.send(message);
    }
}

/// Labels with Jumpstarter's prefix are the exporter's: what it doesn't report goes.
fn label_patch(
    labels: &BTreeMap<String, String>,
    reported: &BTreeMap<String, String>,
) -> Option<Value> {
    let mut changes = serde_json::Map::new();
    let gone = labels.keys().filter(|key| key.starts_with(LABEL_PREFIX));
    changes.extend(
        gone.filter(|key| !reported.contains_key(*key))
            .map(|key| (key.clone(), Value::Null)),
    );
    let new = reported
        .iter()
        .filter(|(key, value)| labels.get(*key) != Some(*value));
    changes.extend(new.map(|(key, value)| (key.clone(), Value::from(value.as_str()))));
    if changes.is_empty() {
        None
    } else {
        Some(json!({ "metadata": { "labels": changes } }))
    }
}
