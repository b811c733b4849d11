//! The watches: from the API server's stream to a cache and a [`Change`].

use super::cache::{Shared, Sighting};
use super::request::with_causes;
use crate::controller::ports::Change;
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

/// A watch is begun anew this often: only then a connection that died silently is noticed.
const WATCH_SECONDS: u32 = 60;
/// The same trouble is logged again after this long.
const SAY_AGAIN: Duration = Duration::from_secs(300);
/// How often we say that we still wait for the first lists.
const STILL_WAITING: Duration = Duration::from_secs(15);

/// A type that can be watched in a namespace.
pub(super) trait Watchable:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Watchable for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// A kind that we watch.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    plural: &'static str,
    change: fn(String) -> Change,
}

impl Kind {
    pub(super) fn new(plural: &'static str, change: fn(String) -> Change) -> Self {
        Self { plural, change }
    }
}

/// Where all watches report.
pub(super) struct Bus {
    listener: Mutex<Option<mpsc::UnboundedSender<Change>>>,
    unlisted: watch::Sender<BTreeSet<&'static str>>,
}

impl Bus {
    pub(super) fn new() -> Self {
        Self {
            listener: Mutex::new(None),
            unlisted: watch::Sender::new(BTreeSet::new()),
        }
    }

    /// From now on changes go to this receiver, and to no earlier one.
    pub(super) fn subscribe(&self) -> mpsc::UnboundedReceiver<Change> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    fn send(&self, changes: impl IntoIterator<Item = Change>) {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listener) = listener.as_ref() {
            for change in changes {
                // Nobody listens any more: the state is in the caches.
                let _ = listener.send(change);
            }
        }
    }

    /// Waits until every watch has its first list.
    pub(super) async fn all_listed(&self) {
        let mut unlisted = self.unlisted.subscribe();
        while timeout(STILL_WAITING, unlisted.wait_for(BTreeSet::is_empty))
            .await
            .is_err()
        {
            let missing: Vec<_> = self.unlisted.borrow().iter().copied().collect();
            warn!(
                "still waiting for the API server's first list of {}",
                missing.join(", ")
            );
        }
    }
}

/// The whole object, without the record of who wrote which field.
pub(super) fn whole_object<K: Watchable>(mut guard: DeserializeGuard<K>) -> Sighting<K> {
    guard.managed_fields_mut().clear();
    Sighting {
        name: guard.name_any(),
        uid: guard.uid().unwrap_or_default(),
        version: guard.resource_version().unwrap_or_default(),
        reading: guard.0.map_err(|invalid| invalid.error),
    }
}

/// Nothing but that the object is there.
#[allow(clippy::needless_pass_by_value)] // the signature of `whole_object`
pub(super) fn metadata_only<K: Watchable>(object: PartialObjectMeta<K>) -> Sighting<()> {
    Sighting {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        version: object.resource_version().unwrap_or_default(),
        reading: Ok(()),
    }
}

/// Watches one kind until the task is aborted. Never gives up: an absent API server, a missing CRD
/// and a Role that forbids it are logged, and tried again with kube's backoff (0.8 s to 30 s).
pub(super) fn spawn<K, T>(
    api: Api<K>,
    kind: Kind,
    cache: Shared<T>,
    read: fn(K) -> Sighting<T>,
    bus: Arc<Bus>,
) -> JoinHandle<()>
where
    K: Watchable,
    T: Send + Sync + 'static,
{
    bus.unlisted.send_modify(|kinds| {
        kinds.insert(kind.plural);
    });
    tokio::spawn(async move {
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        let mut stream = pin!(watcher(api, config).default_backoff());
        let mut trouble = Trouble::new(kind);
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    trouble.over(&event);
                    apply(event, kind, &cache, read, &bus);
                }
                Err(error) => trouble.seen(&error),
            }
        }
    })
}

fn apply<K, T>(
    event: Event<K>,
    kind: Kind,
    cache: &Shared<T>,
    read: fn(K) -> Sighting<T>,
    bus: &Bus,
) where
    K: Watchable,
{
    let mut cache = cache.write().unwrap_or_else(PoisonError::into_inner);
    let names = match event {
        Event::Init => {
            cache.list_begins();
            return;
        }
        Event::InitApply(object) => {
            cache.listed(checked(read(object), kind));
            return;
        }
        Event::InitDone => cache.list_ends(),
        Event::Apply(object) => {
            let sighting = checked(read(object), kind);
            let name = sighting.name.clone();
            cache.seen(sighting).then_some(name).into_iter().collect()
        }
        Event::Delete(object) => {
            let name = object.name_any();
            cache.gone(&name).then_some(name).into_iter().collect()
        }
    };
    drop(cache);
    bus.send(names.into_iter().map(kind.change));
    bus.unlisted
        .send_if_modified(|kinds| kinds.remove(kind.plural));
}

fn checked<T>(sighting: Sighting<T>, kind: Kind) -> Sighting<T> {
    if let Err(error) = &sighting.reading {
        warn!(
            "{} {} can't be read and is left as it was: {error}; correct the object",
            kind.plural, sighting.name
        );
    }
    sighting
}

/// Logs what is wrong with a watch: once, again after a while, and when it is over.
struct Trouble {
    kind: Kind,
    last: Option<(String, Instant)>,
}

impl Trouble {
    fn new(kind: Kind) -> Self {
        Self { kind, last: None }
    }

    fn seen(&mut self, error: &watcher::Error) {
        // A resourceVersion that is too old is how a watch ends after a quiet time: it lists anew.
        if matches!(error, watcher::Error::WatchError(status) if status.code == 410) {
            return;
        }
        let text = describe(self.kind, error);
        let said = self.last.as_ref();
        if said.is_none_or(|(last, at)| *last != text || at.elapsed() >= SAY_AGAIN) {
            warn!("{text}");
            self.last = Some((text, Instant::now()));
        }
    }

    /// `Init` says only that a list is about to be tried.
    fn over<K>(&mut self, event: &Event<K>) {
        if !matches!(event, Event::Init) && self.last.take().is_some() {
            info!("watching {} again", self.kind.plural);
        }
    }
}

fn describe(kind: Kind, error: &watcher::Error) -> String {
    let plural = kind.plural;
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status,
        other => return format!("can't watch {plural}: {}; trying again", with_causes(other)),
    };
    let remedy = match status.code {
        401 => "check the ServiceAccount's token",
        403 => "allow get, list and watch in the controller's Role",
        404 => "install the CRD",
        _ => "look at the API server",
    };
    format!(
        "can't watch {plural}: {} {}; trying again; {remedy}",
        status.code, status.message
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::cache::{Cache, values};
    use super::*;
    use crate::api::ExporterSet;
    use serde_json::json;

    fn guard(name: &str, version: &str, spec: &serde_json::Value) -> DeserializeGuard<ExporterSet> {
        serde_json::from_value(json!({
            "apiVersion": "virtualtarget.jumpstarter.dev/v1alpha1", "kind": "ExporterSet",
            "metadata": {"name": name, "uid": name, "resourceVersion": version,
                "managedFields": [{"manager": "kubectl"}]},
            "spec": spec,
        }))
        .unwrap()
    }

    fn good(name: &str, version: &str) -> DeserializeGuard<ExporterSet> {
        guard(
            name,
            version,
            &json!({"virtualTargetClassName": "c", "selector": {}, "template": {}}),
        )
    }

    #[tokio::test]
    async fn events_reach_cache_and_listener_past_an_object_that_cannot_be_read() {
        let (cache, bus) = (Cache::shared(), Bus::new());
        let kind = Kind::new("ExporterSets", Change::Set);
        bus.unlisted.send_modify(|kinds| {
            kinds.insert("ExporterSets");
        });
        let mut changes = bus.subscribe();
        let events = [
            Event::Init,
            Event::InitApply(good("a", "1")),
            Event::InitApply(guard("b", "2", &json!({"maxReplicas": "many"}))),
            Event::InitDone,
            Event::Apply(good("c", "3")),
            Event::Delete(good("a", "4")),
        ];
        for event in events {
            apply(event, kind, &cache, whole_object, &bus);
        }
        bus.all_listed().await;
        for name in ["a", "c", "a"] {
            assert_eq!(changes.try_recv().unwrap(), Change::Set(name.to_owned()));
        }
        assert!(changes.try_recv().is_err());
        let left = values(&cache);
        let names: Vec<_> = left.iter().map(|set| set.name_any()).collect();
        assert_eq!(names, ["c"]);
        assert!(left.iter().all(|set| set.managed_fields().is_empty()));
    }

    #[test]
    fn a_refusal_names_its_remedy() {
        let refused = |code| {
            let status = kube::core::Status::failure("no", "x")
                .with_code(code)
                .boxed();
            let error = watcher::Error::InitialListFailed(kube::Error::Api(status));
            describe(Kind::new("Leases", Change::Lease), &error)
        };
        assert!(refused(403).contains("Role"), "{}", refused(403));
        assert!(refused(404).contains("CRD"), "{}", refused(404));
    }
}
