//! What a watch has shown, and which names a new sighting changes.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// An object as a watch shows it.
pub(super) struct Sighting<T> {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) version: String,
    /// The object, or why it can't be read.
    pub(super) reading: Result<T, String>,
}

/// An object as it was when it could be read last.
struct Entry<T> {
    uid: String,
    version: String,
    /// `None`: was never readable.
    value: Option<Arc<T>>,
}

impl<T> Entry<T> {
    /// The version that readers of the cache see.
    fn visible(&self) -> Option<&str> {
        self.value.as_ref().map(|_| self.version.as_str())
    }
}

/// A cache that its watch writes and everybody reads.
pub(super) type Shared<T> = Arc<RwLock<Cache<T>>>;

/// Objects by name, in the order of their names.
pub(super) struct Cache<T> {
    now: BTreeMap<String, Entry<T>>,
    listing: BTreeMap<String, Entry<T>>,
}

/// All readable objects, by name.
pub(super) fn values<T>(cache: &Shared<T>) -> Vec<Arc<T>> {
    let cache = cache.read().unwrap_or_else(PoisonError::into_inner);
    cache.now.values().filter_map(|e| e.value.clone()).collect()
}

impl<T> Cache<T> {
    /// An empty cache.
    pub(super) fn shared() -> Shared<T> {
        Arc::new(RwLock::new(Self {
            now: BTreeMap::new(),
            listing: BTreeMap::new(),
        }))
    }

    /// An object was added or has changed. True if that is news.
    pub(super) fn seen(&mut self, sighting: Sighting<T>) -> bool {
        let (name, entry) = self.entry(sighting);
        let before = self.now.get(&name).and_then(Entry::visible);
        let news = before != entry.visible();
        self.now.insert(name, entry);
        news
    }

    /// An object was deleted. True if that is news.
    pub(super) fn gone(&mut self, name: &str) -> bool {
        self.now.remove(name).is_some()
    }

    /// A new list begins; the old state holds until it is complete.
    pub(super) fn list_begins(&mut self) {
        self.listing.clear();
    }

    /// An object of the new list.
    pub(super) fn listed(&mut self, sighting: Sighting<T>) {
        let (name, entry) = self.entry(sighting);
        self.listing.insert(name, entry);
    }

    /// The new list is complete. Returns the names for which it differs from the old state.
    pub(super) fn list_ends(&mut self) -> Vec<String> {
        let old = std::mem::replace(&mut self.now, std::mem::take(&mut self.listing));
        let changed = self
            .now
            .iter()
            .filter(|(name, entry)| old.get(*name).and_then(Entry::visible) != entry.visible());
        let deleted = old.keys().filter(|name| !self.now.contains_key(*name));
        changed
            .map(|(name, _)| name)
            .chain(deleted)
            .cloned()
            .collect()
    }

    /// An unreadable object keeps the last state in which it was readable: it must not look deleted.
    fn entry(&self, sighting: Sighting<T>) -> (String, Entry<T>) {
        let before = self
            .now
            .get(&sighting.name)
            .filter(|before| before.uid == sighting.uid);
        let (version, value) = match (sighting.reading, before) {
            (Ok(value), _) => (sighting.version, Some(Arc::new(value))),
            (Err(_), Some(before)) => (before.version.clone(), before.value.clone()),
            (Err(_), None) => (sighting.version, None),
        };
        let uid = sighting.uid;
        (
            sighting.name,
            Entry {
                uid,
                version,
                value,
            },
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn good(name: &str, version: u32) -> Sighting<u32> {
        Sighting {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            version: version.to_string(),
            reading: Ok(version),
        }
    }

    fn bad(name: &str, uid: &str, version: u32) -> Sighting<u32> {
        Sighting {
            name: name.to_owned(),
            uid: uid.to_owned(),
            version: version.to_string(),
            reading: Err("missing field `selector`".to_owned()),
        }
    }

    fn held(cache: &Shared<u32>) -> Vec<u32> {
        values(cache).iter().map(|v| **v).collect()
    }

    #[test]
    fn a_relist_reports_exactly_what_changed_meanwhile() {
        let shared = Cache::shared();
        {
            let mut cache = shared.write().unwrap();
            for (name, version) in [("kept", 1), ("changed", 2), ("deleted", 3)] {
                assert!(cache.seen(good(name, version)));
            }
            cache.list_begins();
            cache.listed(good("kept", 1));
            cache.listed(good("changed", 5));
            cache.listed(good("new", 6));
        }
        assert_eq!(
            held(&shared),
            [2, 3, 1],
            "the old state holds until the list is complete"
        );
        let mut names = shared.write().unwrap().list_ends();
        names.sort();
        assert_eq!(names, ["changed", "deleted", "new"]);
        assert_eq!(held(&shared), [5, 1, 6]);
    }

    #[test]
    fn a_list_that_breaks_off_leaves_no_trace() {
        let shared = Cache::shared();
        let mut cache = shared.write().unwrap();
        cache.list_begins();
        cache.listed(good("half", 1));
        cache.list_begins();
        cache.listed(good("whole", 2));
        assert_eq!(cache.list_ends(), ["whole"]);
    }

    #[test]
    fn an_unreadable_object_keeps_its_last_readable_state() {
        let shared = Cache::shared();
        let mut cache = shared.write().unwrap();
        cache.seen(good("a", 1));
        assert!(!cache.seen(bad("a", "uid-a", 2)));
        cache.list_begins();
        cache.listed(bad("a", "uid-a", 3));
        assert!(cache.list_ends().is_empty());
        drop(cache);
        assert_eq!(held(&shared), [1]);
        assert!(shared.write().unwrap().seen(good("a", 4)));
        assert_eq!(held(&shared), [4]);
    }

    #[test]
    fn an_unreadable_successor_of_the_same_name_does_not_inherit_its_state() {
        let shared = Cache::shared();
        shared.write().unwrap().seen(good("a", 1));
        assert!(
            shared.write().unwrap().seen(bad("a", "another", 2)),
            "the first one is gone"
        );
        assert!(held(&shared).is_empty());
    }

    #[test]
    fn what_was_seen_already_is_no_news() {
        let shared = Cache::shared();
        let mut cache = shared.write().unwrap();
        assert!(cache.seen(good("a", 1)));
        assert!(!cache.seen(good("a", 1)));
        assert!(cache.gone("a"));
        assert!(!cache.gone("a"));
    }

    proptest! {
        /// Whoever applies only the reported names to a copy has the same state as the cache.
        #[test]
        fn reported_changes_are_complete(
            before in proptest::collection::btree_map("[a-d]", 0u32..3, 0..4),
            after in proptest::collection::btree_map("[a-d]", 0u32..3, 0..4),
        ) {
            let shared = Cache::shared();
            let mut cache = shared.write().unwrap();
            for (name, version) in &before {
                cache.seen(good(name, *version));
            }
            cache.list_begins();
            for (name, version) in &after {
                cache.listed(good(name, *version));
            }
            let mut copy = before.clone();
            for name in cache.list_ends() {
                prop_assert_ne!(before.get(&name), after.get(&name));
                match after.get(&name) {
                    Some(version) => copy.insert(name, *version),
                    None => copy.remove(&name),
                };
            }
            prop_assert_eq!(copy, after);
        }
    }
}
