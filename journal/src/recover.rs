//! Opening the store: check everything that is there, repair what may be repaired, refuse the rest.
//!
//! Nothing on the disk is changed before the segments have passed every check, but for the removal
//! of unfinished files.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, RwLock};

use tokio::sync::watch;

use crate::catalog::{self, Catalog, Segment};
use crate::chain::Chain;
use crate::disk::{self, Disk};
use crate::error::{Damage, OpenError};
use crate::fill::{Filler, fill};
use crate::frame::{Entry, FrameError};
use crate::hash::ChainHash;
use crate::head::{self, Head, Mark, MarkFile};
use crate::index::{Census, Index, IndexFault, Pointer};
use crate::lock::{self, Lock};
use crate::options::Options;
use crate::report::{OpenReport, Repair};
use crate::scan::{ScanError, Scanner};
use crate::segment::{FileId, Header, valid_kind};
use crate::store::{Layout, Store};
use crate::tail_check::{self, Tail};

/// What a caller's kind comes down to here.
pub(crate) struct Kind<'a> {
    pub(crate) name: &'a str,
    pub(crate) schema: u16,
    /// Whether payloads with this schema number can be decoded.
    pub(crate) reads: &'a dyn Fn(u16) -> bool,
}

/// Opens or creates the store in `root`.
pub(crate) fn open(
    root: &Path,
    kind: &Kind<'_>,
    options: &Options,
    disk: Arc<dyn Disk>,
) -> Result<(Arc<Store>, Lock, OpenReport), OpenError> {
    if !valid_kind(kind.name) {
        return Err(OpenError::InvalidKind {
            name: kind.name.into(),
        });
    }
    let layout = Layout { root: root.into() };
    let segments = layout.segments();
    disk::ensure_folder(&*disk, root).map_err(|e| OpenError::io("create the folder", root, e))?;
    let lock = lock::acquire(root)?;
    disk::ensure_folder(&*disk, &segments)
        .map_err(|e| OpenError::io("create the folder", &segments, e))?;
    let mut repairs = remove_leftovers(&*disk, &layout)?;
    let genesis = ChainHash::genesis(kind.name);
    let mark = read_mark(&layout)?;
    let (catalog, created) = load(&*disk, &layout, kind, genesis, mark, &mut repairs)?;

    let opened = Index::open(&layout.index(), options.cache_bytes, options.open_deadline);
    let (chain, filled, cut) = {
        let mut filler = opened
            .as_ref()
            .ok()
            .map(|(index, census)| Filler::new(index, *census));
        let mut pass = Pass {
            kind,
            known: known_heads(mark, options),
            filler: filler.as_mut(),
        };
        let (chain, cut) = pass.run(&catalog, genesis)?;
        (chain, filler.map(Filler::finish), cut)
    };
    check_bounds(&catalog, chain.head(), mark, options)?;
    repairs.extend(cut.map(|cut| cut.apply(&*disk, chain.head())).transpose()?);
    let index = settle_index(opened, filled, &layout, options, &catalog, &mut repairs)?;
    index
        .start_mover()
        .map_err(|e| OpenError::io("start the index thread for", root, e))?;
    settle_mark(
        &*disk,
        &layout,
        &catalog,
        chain.head(),
        mark,
        created,
        &mut repairs,
    )?;

    let head = chain.head();
    let streams = chain.into_streams();
    let report = OpenReport {
        created,
        head,
        streams: streams.len(),
        repairs,
    };
    let store = Store {
        layout,
        disk,
        kind: kind.name.into(),
        schema: kind.schema,
        segment_bytes: options.segment_bytes,
        genesis,
        index,
        catalog: RwLock::new(Arc::new(catalog)),
        streams: RwLock::new(streams),
        head: watch::Sender::new(head),
        closed: AtomicBool::new(false),
    };
    Ok((Arc::new(store), lock, report))
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

/// Opens every segment, or creates the first one in an empty folder.
fn load(
    disk: &dyn Disk,
    layout: &Layout,
    kind: &Kind<'_>,
    genesis: ChainHash,
    mark: MarkFile,
    repairs: &mut Vec<Repair>,
) -> Result<(Catalog, bool), OpenError> {
    let folder = layout.segments();
    let mut ids = catalog::list(&folder).map_err(|e| OpenError::io("list", &folder, e))?;
    if ids.is_empty() {
        if mark != MarkFile::Missing {
            let what = "there is a HEAD file but no segment: the segments are gone".into();
            return Err(damaged(&folder, 0, 1, what));
        }
        let id = FileId {
            first: 1,
            generation: 0,
        };
        let header = Header {
            kind: kind.name.into(),
            id,
            previous: genesis,
        };
        let segment = Segment::create(disk, &folder, header)
            .map_err(|e| OpenError::io("create the first segment in", &folder, e))?;
        return Ok((
            Catalog {
                segments: vec![Arc::new(segment)],
            },
            true,
        ));
    }
    remove_superseded(disk, &folder, &mut ids, repairs)?;
    let mut segments = Vec::new();
    for id in ids {
        let segment = Segment::open(disk, &id.path(&folder), id)?;
        if segment.kind != kind.name {
            return Err(OpenError::WrongKind {
                path: segment.disk.path.clone(),
                found: segment.kind,
                expected: kind.name.into(),
            });
        }
        segments.push(Arc::new(segment));
    }
    Ok((Catalog { segments }, false))
}

/// A compaction that was interrupted between putting the new file in place and removing the old
/// one leaves both; the new one is whole.
fn remove_superseded(
    disk: &dyn Disk,
    folder: &Path,
    ids: &mut Vec<FileId>,
    repairs: &mut Vec<Repair>,
) -> Result<(), OpenError> {
    let all = std::mem::take(ids);
    let mut rest = all.iter().peekable();
    while let Some(id) = rest.next() {
        if rest.peek().is_none_or(|next| next.first != id.first) {
            ids.push(*id);
            continue;
        }
        let path = id.path(folder);
        disk.remove(&path)
            .map_err(|e| OpenError::io("remove", &path, e))?;
        repairs.push(Repair::Superseded { path });
    }
    Ok(())
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

/// A head that the records must contain.
struct Known {
    head: Head,
    /// From our `HEAD` file, not from the caller.
    own: bool,
}

/// The end of the last segment that has to go.
struct Cut {
    segment: Arc<Segment>,
    offset: u64,
}

impl Cut {
    fn apply(self, disk: &dyn Disk, head: Head) -> Result<Repair, OpenError> {
        let path = self.segment.disk.path.clone();
        let bytes = self.segment.length().saturating_sub(self.offset);
        disk.truncate(&self.segment.disk, self.offset)
            .and_then(|()| disk.sync(&self.segment.disk))
            .map_err(|e| OpenError::io("cut the torn tail of", &path, e))?;
        self.segment.set_length(self.offset);
        Ok(Repair::TornTail {
            path,
            offset: self.offset,
            bytes,
            sequence: head.sequence + 1,
        })
    }
}

/// One pass over all records.
struct Pass<'p, 'i> {
    kind: &'p Kind<'p>,
    known: Vec<Known>,
    filler: Option<&'p mut Filler<'i>>,
}

impl Pass<'_, '_> {
    fn run(
        &mut self,
        catalog: &Catalog,
        genesis: ChainHash,
    ) -> Result<(Chain, Option<Cut>), OpenError> {
        let mut chain = Chain::new(genesis);
        let mut cut = None;
        for (at, segment) in catalog.segments.iter().enumerate() {
            let is_last = at + 1 == catalog.segments.len();
            check_joint(segment, chain.tip(), chain.is_whole())?;
            cut = self.segment(segment, &mut chain, is_last)?;
        }
        Ok((chain, cut))
    }

    fn segment(
        &mut self,
        segment: &Arc<Segment>,
        chain: &mut Chain,
        is_last: bool,
    ) -> Result<Option<Cut>, OpenError> {
        let mut scanner = Scanner::new(segment.clone());
        // Where the last whole append ends.
        let mut sound = scanner.offset();
        loop {
            let offset = scanner.offset();
            let next = chain.tip().sequence + 1;
            let frame = match scanner.next() {
                Ok(Some(frame)) => frame,
                Ok(None) if chain.is_whole() => return Ok(None),
                Ok(None) if is_last => break,
                Ok(None) => {
                    let what = "the segment ends inside an append".into();
                    return Err(damaged(&segment.disk.path, offset, next, what));
                }
                Err(ScanError::Io(e)) => return Err(OpenError::io("read", &segment.disk.path, e)),
                Err(ScanError::Frame(error)) => {
                    check_tail(segment, offset, next, error, is_last)?;
                    break;
                }
            };
            let breach = |what| damaged(&segment.disk.path, offset, next, what);
            chain.accept(&frame).map_err(breach)?;
            self.check_known(chain.tip(), &segment.disk.path, offset)?;
            if let Entry::Record(record) = &frame.entry {
                self.check_schema(record.schema, record.sequence)?;
                segment.note(record.sequence, offset);
                let length = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
                let sequence = record.sequence;
                let pointer = Pointer {
                    sequence,
                    file: segment.id,
                    offset,
                    length,
                };
                if let Some(filler) = &mut self.filler {
                    filler.record(record, pointer);
                }
            }
            if chain.is_whole() {
                sound = scanner.offset();
            }
        }
        chain.drop_open();
        Ok(Some(Cut {
            segment: segment.clone(),
            offset: sound,
        }))
    }

    fn check_schema(&self, found: u16, sequence: u64) -> Result<(), OpenError> {
        if (self.kind.reads)(found) {
            return Ok(());
        }
        let supported = self.kind.schema;
        let remedy = if found > supported {
            "use the program version that wrote it, or a newer one"
        } else {
            "give EventKind::with_older a decoder for it"
        };
        Err(OpenError::UnknownSchema {
            sequence,
            found,
            supported,
            remedy,
        })
    }

    fn check_known(&self, tip: Head, path: &Path, offset: u64) -> Result<(), OpenError> {
        for known in self
            .known
            .iter()
            .filter(|k| k.head.sequence == tip.sequence)
        {
            if known.head.hash != tip.hash && known.own {
                let what = "its hash is not the one that HEAD has: it was exchanged".into();
                return Err(damaged(path, offset, tip.sequence, what));
            }
            if known.head.hash != tip.hash {
                return Err(OpenError::Diverged {
                    known: known.head,
                    found: tip.hash,
                });
            }
        }
        Ok(())
    }
}

fn check_joint(segment: &Segment, tip: Head, whole: bool) -> Result<(), OpenError> {
    let expected = tip.sequence + 1;
    let breach = |what: String| Err(damaged(&segment.disk.path, 0, expected, what));
    if segment.id.first != expected {
        return breach(format!(
            "the segment begins with record {}: the records from {expected} on are missing",
            segment.id.first
        ));
    }
    if segment.previous != tip.hash {
        return breach("the segment doesn't follow the one before it".into());
    }
    if !whole {
        return breach("the segment begins inside an append".into());
    }
    Ok(())
}

fn check_tail(
    segment: &Segment,
    offset: u64,
    expected: u64,
    error: FrameError,
    is_last: bool,
) -> Result<(), OpenError> {
    let path = &segment.disk.path;
    let newer = |found| OpenError::NewerFormat {
        path: path.clone(),
        found,
        supported: crate::frame::FORMAT_VERSION,
    };
    if let FrameError::Version(found) = error {
        return Err(newer(found));
    }
    if !is_last || matches!(error, FrameError::Field(_)) {
        return Err(damaged(path, offset, expected, error.to_string()));
    }
    match tail_check::judge(segment, offset, expected) {
        Ok(Tail::Torn) => Ok(()),
        Ok(Tail::Newer(found)) => Err(newer(found)),
        Ok(Tail::Damaged { proof }) => {
            let what = format!("{error}; record {proof} behind it shows that it had been written");
            Err(damaged(path, offset, expected, what))
        }
        Err(e) => Err(OpenError::io("read", path, e)),
    }
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

/// Takes the opened index if it agrees with the segments, else builds a new one.
fn settle_index(
    opened: Result<(Arc<Index>, Census), IndexFault>,
    filled: Option<Result<u64, String>>,
    layout: &Layout,
    options: &Options,
    catalog: &Catalog,
    repairs: &mut Vec<Repair>,
) -> Result<Arc<Index>, OpenError> {
    let reason = match (opened, filled) {
        (Ok((index, _)), Some(Ok(0))) => return Ok(index),
        (Ok((index, _)), Some(Ok(records))) => {
            repairs.push(Repair::IndexRefilled { records });
            return Ok(index);
        }
        (Ok((index, _)), Some(Err(reason))) => {
            index.close();
            reason
        }
        (Ok((index, _)), None) => return Ok(index),
        (Err(fault), _) => fault.to_string(),
    };
    set_index_aside(layout)?;
    let path = layout.index();
    let rebuilt = Index::open(&path, options.cache_bytes, options.open_deadline)
        .map_err(|fault| fault.to_string())
        .and_then(|(index, _)| fill(&index, catalog).map(|records| (index, records)));
    let (index, records) = rebuilt
        .map_err(|e| OpenError::io("rebuild the index in", &path, std::io::Error::other(e)))?;
    tracing::warn!(reason, records, "journal index rebuilt from the segments");
    repairs.push(Repair::IndexRebuilt { reason, records });
    Ok(index)
}

fn set_index_aside(layout: &Layout) -> Result<(), OpenError> {
    let (from, to) = (layout.index(), layout.broken_index());
    if !from.exists() {
        return Ok(());
    }
    if to.exists() {
        std::fs::remove_dir_all(&to).map_err(|e| OpenError::io("remove", &to, e))?;
    }
    std::fs::rename(&from, &to).map_err(|e| OpenError::io("set aside", &from, e))
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
