//! Opening the store: check everything that is there, repair what may be repaired, refuse the rest.
//!
//! Nothing on the disk is changed before the segments have passed every check, but for the removal
//! of unfinished files.

mod fill;
mod load;
mod pass;
mod set_aside;
mod settle;
mod tail_check;

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};

use tokio::sync::watch;

use crate::archive::merge_streams;
use crate::catalog::Catalog;
use crate::chain::{Chain, Streams};
use crate::disk::{self, Disk};
use crate::error::{Damage, OpenError};
use crate::export::Exported;
use crate::hash::ChainHash;
use crate::head::{self, Head, Mark, MarkFile};
use crate::index::Index;
use crate::lock::{self, Lock};
use crate::options::{OnDamage, Options};
use crate::report::{OpenReport, Repair};
use crate::segment::valid_kind;
use crate::store::{Layout, Store};
use fill::Filler;
use load::{load, load_to_read};
use pass::{Known, Pass};
use set_aside::set_aside;
use settle::settle_index;

/// What a caller's kind comes down to here.
pub(crate) struct Kind<'a> {
    pub(crate) name: &'a str,
    pub(crate) schema: u16,
    /// Whether payloads with this schema number can be decoded.
    pub(crate) reads: &'a dyn Fn(u16) -> bool,
    /// Exports whatever is readable in a folder of segments.
    pub(crate) salvage: &'a Salvage<'a>,
}

/// See [`crate::export::salvage`].
pub(crate) type Salvage<'a> = dyn Fn(&Path, &mut dyn Write) -> io::Result<Exported> + 'a;

/// Opens or creates the store in `root`.
pub(crate) fn open(
    root: &Path,
    kind: &Kind<'_>,
    options: &Options,
    disk: Arc<dyn Disk>,
) -> Result<(Arc<Store>, Lock, OpenReport), OpenError> {
    let layout = Layout { root: root.into() };
    let lock = prepare(&*disk, &layout, kind)?;
    let damage = match (
        open_locked(&layout, kind, options, &disk),
        options.on_damage,
    ) {
        (Err(OpenError::Damaged(damage)), OnDamage::SetAside { at }) => (damage, at),
        (opened, _) => return opened.map(|(store, report)| (store, lock, report)),
    };
    let set_aside = set_aside(&*disk, &layout, kind, damage.0, damage.1)?;
    // The new journal is empty by intent, so it can't have the known head.
    let options = Options {
        known_head: None,
        ..options.clone()
    };
    ensure_segments(&*disk, &layout)?;
    let (store, mut report) = open_locked(&layout, kind, &options, &disk)?;
    report.set_aside = Some(set_aside);
    Ok((store, lock, report))
}

fn open_locked(
    layout: &Layout,
    kind: &Kind<'_>,
    options: &Options,
    disk: &Arc<dyn Disk>,
) -> Result<(Arc<Store>, OpenReport), OpenError> {
    let opened = Index::open(&layout.index(), options.cache_bytes, options.open_deadline);
    let mut filler = opened
        .as_ref()
        .ok()
        .map(|(index, census)| Filler::new(index, *census));
    let Segments {
        catalog,
        chain,
        created,
        mut repairs,
    } = segments(&**disk, layout, kind, options, filler.as_mut())?;
    let filled = filler.map(Filler::finish);
    let index = settle_index(opened, filled, layout, options, &catalog, &mut repairs);
    index
        .start_mover()
        .map_err(|e| OpenError::io("start the index thread for", &layout.root, e))?;

    let head = chain.head();
    let streams = all_streams(chain, &catalog);
    let report = OpenReport {
        created,
        head,
        streams: streams.len(),
        repairs,
        set_aside: None,
    };
    let store = Store {
        layout: layout.clone(),
        disk: Arc::clone(disk),
        kind: kind.name.into(),
        schema: kind.schema,
        segment_bytes: options.segment_bytes,
        preallocate_bytes: options.preallocate_bytes,
        genesis: ChainHash::genesis(kind.name),
        index,
        catalog: RwLock::new(Arc::new(catalog)),
        streams: RwLock::new(streams),
        head: watch::Sender::new(head),
        closed: AtomicBool::new(false),
        maintenance: Mutex::default(),
    };
    Ok((Arc::new(store), report))
}

/// The streams of the segments and of the archives.
pub(crate) fn all_streams(chain: Chain, catalog: &Catalog) -> Streams {
    let mut streams = chain.into_streams();
    for archive in &catalog.archives {
        merge_streams(&mut streams, &archive.footer.streams);
    }
    streams
}

/// Checks a store without its lock and without changing anything, up to the last whole append.
pub(crate) fn open_read_only(root: &Path, kind: &Kind<'_>) -> Result<(Catalog, Chain), OpenError> {
    let layout = Layout { root: root.into() };
    // The mark first: the segments that are listed after it have everything that it covers.
    let mark = read_mark(&layout)?;
    let catalog = load_to_read(&layout, kind)?;
    let options = Options::default();
    let mut pass = Pass {
        kind,
        known: known_heads(mark, &options),
        filler: None,
    };
    let (chain, cut) = pass.run(&catalog, ChainHash::genesis(kind.name))?;
    check_bounds(&catalog, chain.head(), mark, &options)?;
    if let Some(cut) = cut {
        cut.hide();
    }
    Ok((catalog, chain))
}

/// Recovers the segments alone, without an index, and returns the hash of every record. Each has to
/// be there, archived or not.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn segments_only(root: &Path, kind: &str) -> Result<Vec<ChainHash>, String> {
    let salvage = |_: &Path, _: &mut dyn Write| Err(io::ErrorKind::Unsupported.into());
    let kind = Kind {
        name: kind,
        schema: 1,
        reads: &|_| true,
        salvage: &salvage,
    };
    let layout = Layout { root: root.into() };
    let recovered = prepare(&disk::RealDisk, &layout, &kind).and_then(|lock| {
        segments(&disk::RealDisk, &layout, &kind, &Options::default(), None).map(|s| (lock, s))
    });
    let (_lock, found) = recovered.map_err(|error| error.to_string())?;
    let (head, genesis) = (found.chain.head(), ChainHash::genesis(kind.name));
    let catalog = Arc::new(found.catalog);
    let mut hashes = Vec::new();
    let complete = crate::walk::walk(&catalog, genesis, head, |frame, _| match frame.entry {
        crate::frame::Entry::Gap(gap) => Err(gap),
        crate::frame::Entry::Record(_) => {
            hashes.push(frame.hash);
            Ok(())
        }
    });
    complete
        .map(|_| hashes)
        .map_err(|error| format!("{error:?}"))
}

/// Makes the folders and takes the lock.
fn prepare(disk: &dyn Disk, layout: &Layout, kind: &Kind<'_>) -> Result<Lock, OpenError> {
    if !valid_kind(kind.name) {
        return Err(OpenError::InvalidKind {
            name: kind.name.into(),
        });
    }
    let root = &layout.root;
    disk::ensure_folder(disk, root).map_err(|e| OpenError::io("create the folder", root, e))?;
    let lock = lock::acquire(root)?;
    ensure_segments(disk, layout)?;
    Ok(lock)
}

fn ensure_segments(disk: &dyn Disk, layout: &Layout) -> Result<(), OpenError> {
    let path = layout.segments();
    disk::ensure_folder(disk, &path).map_err(|e| OpenError::io("create the folder", &path, e))
}

/// The segments after they have been checked and repaired.
struct Segments {
    catalog: Catalog,
    chain: Chain,
    created: bool,
    repairs: Vec<Repair>,
}

fn segments(
    disk: &dyn Disk,
    layout: &Layout,
    kind: &Kind<'_>,
    options: &Options,
    filler: Option<&mut Filler<'_>>,
) -> Result<Segments, OpenError> {
    let mut repairs = remove_leftovers(disk, layout)?;
    let genesis = ChainHash::genesis(kind.name);
    let mark = read_mark(layout)?;
    let (catalog, created) = load(disk, layout, kind, genesis, mark, &mut repairs)?;
    let mut pass = Pass {
        kind,
        known: known_heads(mark, options),
        filler,
    };
    let (chain, cut) = pass.run(&catalog, genesis)?;
    check_bounds(&catalog, chain.head(), mark, options)?;
    repairs.extend(cut.map(|cut| cut.apply(disk, chain.head())).transpose()?);
    settle_mark(
        disk,
        layout,
        &catalog,
        chain.head(),
        mark,
        created,
        &mut repairs,
    )?;
    Ok(Segments {
        catalog,
        chain,
        created,
        repairs,
    })
}

fn remove_leftovers(disk: &dyn Disk, layout: &Layout) -> Result<Vec<Repair>, OpenError> {
    let mut repairs = Vec::new();
    for folder in [&layout.root, &layout.segments()] {
        let removed = disk::remove_unfinished(disk, folder)
            .map_err(|e| OpenError::io("clear unfinished files in", folder, e))?;
        repairs.extend(removed.into_iter().map(|path| Repair::Unfinished { path }));
    }
    Ok(repairs)
}

fn read_mark(layout: &Layout) -> Result<MarkFile, OpenError> {
    let path = layout.head();
    let mark = head::read(&path).map_err(|e| OpenError::io("read", &path, e))?;
    match mark {
        MarkFile::Newer(found) => Err(OpenError::NewerFormat {
            path,
            found,
            supported: 1,
        }),
        mark => Ok(mark),
    }
}

fn known_heads(mark: MarkFile, options: &Options) -> Vec<Known> {
    let own = match mark {
        MarkFile::Sound(mark) => Some(Known {
            head: mark.head,
            own: true,
        }),
        _ => None,
    };
    let given = options.known_head.map(|head| Known { head, own: false });
    own.into_iter().chain(given).collect()
}

/// Refuses a store that ends before a head it must have had.
fn check_bounds(
    catalog: &Catalog,
    head: Head,
    mark: MarkFile,
    options: &Options,
) -> Result<(), OpenError> {
    let Some(last) = catalog.segments.last() else {
        return Ok(());
    };
    if let MarkFile::Sound(mark) = mark
        && (head.sequence < mark.head.sequence || last.id.first < mark.active)
    {
        let what = format!(
            "the records end here, but HEAD says that {} were on the disk, the last ones in a segment that begins with {}",
            mark.head.sequence, mark.active
        );
        return Err(damaged(
            &last.disk.path,
            last.length(),
            head.sequence + 1,
            what,
        ));
    }
    match options.known_head {
        Some(known) if known.sequence > head.sequence => {
            Err(OpenError::Behind { known, found: head })
        }
        _ => Ok(()),
    }
}

/// Writes the `HEAD` file if it doesn't say what was found.
fn settle_mark(
    disk: &dyn Disk,
    layout: &Layout,
    catalog: &Catalog,
    head: Head,
    found: MarkFile,
    created: bool,
    repairs: &mut Vec<Repair>,
) -> Result<(), OpenError> {
    let active = catalog
        .segments
        .last()
        .map_or(1, |segment| segment.id.first);
    let mark = Mark { head, active };
    match found {
        MarkFile::Sound(found) if found == mark => return Ok(()),
        MarkFile::Missing if !created => {
            repairs.push(Repair::HeadRewritten {
                reason: "it was missing",
            });
        }
        MarkFile::Unreadable => {
            repairs.push(Repair::HeadRewritten {
                reason: "it was not readable",
            });
        }
        _ => {}
    }
    let path = layout.head();
    head::write(disk, &path, &mark).map_err(|e| OpenError::io("write", &path, e))
}

fn damaged(path: &Path, offset: u64, sequence: u64, what: String) -> OpenError {
    OpenError::Damaged(Damage {
        path: path.into(),
        offset,
        sequence,
        what,
    })
}
