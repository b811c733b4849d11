//! core/v1 Events. kube's own recorder writes `events.k8s.io`, which our Role does not allow.

use super::COMPONENT;
use super::request::classify;
use crate::api::{Exporter, ExporterSet};
use crate::controller::ports::{ClusterError, Notice, NoticeKind};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use tracing::debug;

/// How long an Event may hold up its sender.
const LIMIT: Duration = Duration::from_secs(5);
/// The API server refuses longer messages.
const MESSAGE_BYTES: usize = 1024;
/// What of an object's name fits into an Event's name (253) beside a dot and 16 digits.
const NAME_BYTES: usize = 253 - 17;
/// Events whose repetitions are counted; beyond it the oldest are forgotten, and begin anew.
const REMEMBERED: usize = 1024;
/// The API server forgets Events after an hour, so that an older one can't be counted up.
const LIFETIME: Duration = Duration::from_secs(50 * 60);

/// What makes two notices the same Event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    uid: String,
    warning: bool,
    reason: String,
    message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    event: String,
    count: i32,
    last: Timestamp,
}

/// Writes Events, and counts repetitions instead of writing them again.
pub(super) struct EventWriter {
    api: Api<Event>,
    namespace: String,
    written: Mutex<HashMap<Key, Written>>,
}

impl EventWriter {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            written: Mutex::new(HashMap::new()),
        }
    }

    /// Writes an Event; if that fails it is lost, and the log says so.
    pub(super) async fn write(&self, notice: &Notice) {
        match timeout(LIMIT, self.try_write(notice)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!("event {} is lost: {error}", notice.reason),
            Err(_) => debug!(
                "event {} is lost: no answer from the API server",
                notice.reason
            ),
        }
    }

    async fn try_write(&self, notice: &Notice) -> Result<(), ClusterError> {
        let now = Timestamp::now();
        let message = shortened(&notice.message);
        let key = Key {
            uid: notice.uid.clone(),
            warning: notice.warning,
            reason: notice.reason.clone(),
            message: message.clone(),
        };
        if let Some(before) = self.repeated(&key, now) {
            match self.count_up(&before).await {
                // Somebody, or the API server's own cleaning, has removed it: begin anew.
                Err(ClusterError::NotFound(_)) => {}
                result => return result,
            }
        }
        let event = describe(notice, &self.namespace, message, now);
        let name = event.metadata.name.clone().unwrap_or_default();
        let object = format!("Event {}/{name}", self.namespace);
        let created = self.api.create(&PostParams::default(), &event).await;
        created.map_err(|error| classify(&object, &name, &error))?;
        let written = Written {
            event: name,
            count: 1,
            last: now,
        };
        remember(&mut self.lock(), key, written);
        Ok(())
    }

    /// Counts a repetition; `None` if the Event is new.
    fn repeated(&self, key: &Key, now: Timestamp) -> Option<Written> {
        let mut written = self.lock();
        let before = written.get_mut(key)?;
        if now.duration_since(before.last).unsigned_abs() > LIFETIME {
            return None;
        }
        before.count = before.count.saturating_add(1);
        before.last = now;
        Some(before.clone())
    }

    async fn count_up(&self, event: &Written) -> Result<(), ClusterError> {
        let patch =
            Patch::Merge(json!({ "count": event.count, "lastTimestamp": Time(event.last) }));
        let object = format!("Event {}/{}", self.namespace, event.event);
        let params = PatchParams::default();
        let patched = self.api.patch(&event.event, &params, &patch).await;
        patched.map_err(|error| classify(&object, &event.event, &error))?;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Written>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remember(written: &mut HashMap<Key, Written>, key: Key, event: Written) {
    if written.len() >= REMEMBERED {
        // Half at once, so that a flood does not sort at every Event.
        let mut times: Vec<_> = written.values().map(|w| w.last).collect();
        times.sort_unstable();
        if let Some(median) = times.get(times.len() / 2).copied() {
            written.retain(|_, w| w.last > median);
        }
    }
    written.insert(key, event);
}

fn describe(notice: &Notice, namespace: &str, message: String, now: Timestamp) -> Event {
    let (api_version, kind) = match notice.kind {
        NoticeKind::Set => (ExporterSet::api_version(&()), ExporterSet::kind(&())),
        NoticeKind::Exporter => (Exporter::api_version(&()), Exporter::kind(&())),
    };
    let stem = cut(&notice.name, NAME_BYTES);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{stem}.{:016x}", suffix(now))),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(api_version.into_owned()),
            kind: Some(kind.into_owned()),
            name: Some(notice.name.clone()),
            namespace: Some(namespace.to_owned()),
            uid: Some(notice.uid.clone()),
            ..ObjectReference::default()
        },
        type_: Some(if notice.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(notice.reason.clone()),
        message: Some(message),
        source: Some(EventSource {
            component: Some(COMPONENT.to_owned()),
            host: None,
        }),
        reporting_component: Some(COMPONENT.to_owned()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

/// Chance where there is some, else the time: a name that is taken loses one Event.
fn suffix(now: Timestamp) -> u64 {
    getrandom::u64().unwrap_or_else(|_| u64::try_from(now.as_nanosecond()).unwrap_or_default())
}

/// A message that the API server accepts.
fn shortened(message: &str) -> String {
    if message.len() <= MESSAGE_BYTES {
        return message.to_owned();
    }
    format!("{}…", cut(message, MESSAGE_BYTES - '…'.len_utf8()))
}

/// The longest beginning that has at most `bytes` bytes.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(number: usize) -> Key {
        Key {
            uid: number.to_string(),
            warning: false,
            reason: "R".to_owned(),
            message: String::new(),
        }
    }

    #[test]
    fn only_the_younger_half_is_remembered_beyond_the_limit() {
        let mut written = HashMap::new();
        for number in 0..=REMEMBERED {
            let second = i64::try_from(number).unwrap_or_default();
            let event = Written {
                event: number.to_string(),
                count: 1,
                last: Timestamp::from_second(second).unwrap_or_default(),
            };
            remember(&mut written, key(number), event);
        }
        assert_eq!(written.len(), REMEMBERED / 2);
        assert!(written.contains_key(&key(REMEMBERED)) && !written.contains_key(&key(0)));
    }

    #[test]
    fn an_event_looks_like_this() {
        let notice = Notice {
            kind: NoticeKind::Set,
            name: "pool".to_owned(),
            uid: "u-1".to_owned(),
            warning: true,
            reason: "ExporterSetDegraded".to_owned(),
            message: "host lab1".to_owned(),
        };
        let mut event = describe(
            &notice,
            "lab",
            notice.message.clone(),
            Timestamp::UNIX_EPOCH,
        );
        let name = event
            .metadata
            .name
            .replace("pool.HEX".to_owned())
            .unwrap_or_default();
        let hex = name.strip_prefix("pool.").unwrap_or_default();
        assert!(
            hex.len() == 16 && hex.chars().all(|c| c.is_ascii_hexdigit()),
            "{name}"
        );
        insta::assert_json_snapshot!(event);
    }

    proptest! {
        #[test]
        fn messages_fit_and_begin_as_they_were(message in "(\\PC|…){0,1200}") {
            let short = shortened(&message);
            prop_assert!(short.len() <= MESSAGE_BYTES);
            prop_assert!(short == message || message.starts_with(short.trim_end_matches('…')));
        }
    }
}
