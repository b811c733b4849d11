//! What the writer, the readers and the public handle share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::watch;

use crate::catalog::Catalog;
use crate::chain::{StreamState, Streams};
use crate::disk::Disk;
use crate::hash::ChainHash;
use crate::head::Head;
use crate::index::Index;

/// Where everything lies in a journal's folder.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
}

impl Layout {
    pub(crate) fn head(&self) -> PathBuf {
        self.root.join("HEAD")
    }

    pub(crate) fn segments(&self) -> PathBuf {
        self.root.join("segments")
    }

    pub(crate) fn index(&self) -> PathBuf {
        self.root.join("index")
    }

    /// The last index that had to be given up, for whoever wants to know why.
    pub(crate) fn broken_index(&self) -> PathBuf {
        self.root.join("index.broken")
    }
}

/// The shared state of an open journal. The writer thread changes it, and maintenance the files of
/// sealed segments.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) layout: Layout,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) kind: String,
    pub(crate) schema: u16,
    pub(crate) segment_bytes: u64,
    pub(crate) preallocate_bytes: u64,
    pub(crate) genesis: ChainHash,
    pub(crate) index: Arc<Index>,
    pub(crate) catalog: RwLock<Arc<Catalog>>,
    pub(crate) streams: RwLock<Streams>,
    /// The last durable record. It moves after catalog, index and streams: what it covers can be read.
    pub(crate) head: watch::Sender<Head>,
    pub(crate) closed: AtomicBool,
    /// One compaction or retention at a time.
    pub(crate) maintenance: Mutex<()>,
}

impl Store {
    pub(crate) fn head(&self) -> Head {
        *self.head.borrow()
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives readers that come from now on a changed catalog.
    pub(crate) fn change_catalog(&self, change: impl FnOnce(&mut Catalog)) {
        let mut shared = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        let mut catalog = Catalog::clone(&shared);
        change(&mut catalog);
        *shared = Arc::new(catalog);
    }

    pub(crate) fn stream(&self, name: &str) -> Option<StreamState> {
        self.streams
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .copied()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}
