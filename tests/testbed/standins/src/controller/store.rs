//! The newest known version of each object.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Resource, ResourceExt as _};

/// Namespace and name.
pub type Key = (String, String);

/// An object's key.
pub fn key(object: &impl Resource) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Objects of one kind.
///
/// Fed by a watch and by the answers to our own writes, whichever is first:
/// resource versions of one API server can be compared, and an older one is ignored.
#[derive(Debug)]
pub struct Store<K> {
    objects: BTreeMap<Key, K>,
    listing: BTreeSet<Key>,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            listing: BTreeSet::new(),
        }
    }
}

impl<K: Resource> Store<K> {
    /// Takes an object in; whether it is news.
    pub fn put(&mut self, object: K) -> bool {
        let key = key(&object);
        if let Some(known) = self.objects.get(&key)
            && known.meta().uid == object.meta().uid
            && version(known) >= version(&object)
        {
            return false;
        }
        self.objects.insert(key, object);
        true
    }

    /// Forgets an object; returns what was known of it.
    pub fn remove(&mut self, key: &Key) -> Option<K> {
        self.objects.remove(key)
    }

    /// One object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&K> {
        self.objects.get(key)
    }

    /// The objects of a namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &K> {
        self.objects
            .iter()
            .filter(move |(key, _)| key.0 == namespace)
            .map(|(_, object)| object)
    }

    /// A complete list begins.
    pub fn begin_list(&mut self) {
        self.listing.clear();
    }

    /// An object of the list.
    pub fn listed(&mut self, key: Key) {
        self.listing.insert(key);
    }

    /// The list is complete: the keys of objects that aren't in it.
    #[must_use]
    pub fn end_list(&mut self) -> Vec<Key> {
        let listing = std::mem::take(&mut self.listing);
        self.objects
            .keys()
            .filter(|key| !listing.contains(key))
            .cloned()
            .collect()
    }
}

fn version(object: &impl Resource) -> u64 {
    object
        .resource_version()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::controller::objects::Exporter;

    fn exporter(uid: &str, version: &str) -> Exporter {
        let mut exporter = Exporter::default();
        exporter.metadata.namespace = Some("lab".into());
        exporter.metadata.name = Some("x1".into());
        exporter.metadata.uid = Some(uid.into());
        exporter.metadata.resource_version = Some(version.into());
        exporter
    }

    #[test]
    fn only_newer_versions_are_news() {
        let mut store = Store::default();
        assert!(store.put(exporter("a", "9")));
        assert!(!store.put(exporter("a", "9")));
        assert!(store.put(exporter("a", "10")));
        assert!(!store.put(exporter("a", "9")));
        assert!(store.put(exporter("b", "11")), "created again");
    }

    #[test]
    fn what_a_list_lacks_is_gone() {
        let mut store = Store::default();
        store.put(exporter("a", "1"));
        store.begin_list();
        assert_eq!(store.end_list(), [("lab".to_owned(), "x1".to_owned())]);
        store.begin_list();
        store.listed(key(store.in_namespace("lab").next().unwrap()));
        assert_eq!(store.end_list(), []);
    }
}
