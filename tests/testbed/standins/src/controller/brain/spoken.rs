//! What exporters say and are told, and what tests ask.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::written::{reason, subject};
use super::{Brain, Item, Peer};
use crate::controller::control::{Connected, Question};
use crate::controller::exporter_rules;
use crate::controller::objects::now;
use crate::controller::peers::PeerEvent;
use crate::controller::store::Key;
use crate::log::log;
use crate::wire::{FromExporter, Identity, TOUCH_ANNOTATION, ToExporter};

/// Prefix of the labels that belong to the exporter's registration.
const LABEL_PREFIX: &str = "jumpstarter.dev/";

impl Brain {
    /// Without an API server no session goes on, and none begins.
    pub(super) fn api_server_event(&mut self, is_there: bool) {
        self.is_api_server_there = is_there;
        if is_there {
            return log("the API server is back");
        }
        log("the API server is away: every session ends");
        for (_, peer) in std::mem::take(&mut self.peers) {
            peer.tell(ToExporter::SessionLost);
        }
    }

    pub(super) async fn peer_event(&mut self, event: PeerEvent) {
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
        if !self.is_api_server_there {
            return refuse("the API server is away");
        }
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
            log(&format!(
                "registration of {}/{}: {}",
                key.0,
                key.1,
                reason(&error)
            ));
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
                    let written = self.merge(key, patch).await?;
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
        // The last words of a process must not count against the one that took its place.
        if self.peers.get(&key).map(|peer| peer.connection) != Some(connection) {
            return;
        }
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
                if let Some(answer) = self.questions.remove(&id) {
                    // The test may have stopped waiting.
                    let _ = answer.send(*report);
                }
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
            log(&format!(
                "status of {}/{}: {}",
                key.0,
                key.1,
                reason(&error)
            ));
        }
    }

    /// Tells a connected exporter of its lease, if it doesn't know.
    pub(super) fn tell_lease(&mut self, key: &Key) {
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

    pub(super) fn answer(&mut self, question: Question) {
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
