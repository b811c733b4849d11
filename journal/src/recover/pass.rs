//! The one pass over all records that recovery makes.

use std::path::Path;
use std::sync::Arc;

use super::fill::Filler;
use super::tail_check::{self, Tail};
use super::{Kind, damaged};
use crate::catalog::{Catalog, Segment};
use crate::chain::Chain;
use crate::disk::Disk;
use crate::error::OpenError;
use crate::frame::{Entry, FrameError};
use crate::hash::ChainHash;
use crate::head::Head;
use crate::report::Repair;
use crate::scan::{ScanError, Scanner};

/// A head that the records must contain.
pub(super) struct Known {
    pub(super) head: Head,
    /// From our `HEAD` file, not from the caller.
    pub(super) own: bool,
}

/// The end of the last segment that has to go.
pub(super) struct Cut {
    segment: Arc<Segment>,
    offset: u64,
}

impl Cut {
    /// Leaves the tail where it is, but readers don't see it.
    pub(super) fn hide(self) {
        self.segment.set_length(self.offset);
    }

    pub(super) fn apply(self, disk: &dyn Disk, head: Head) -> Result<Repair, OpenError> {
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
pub(super) struct Pass<'p, 'i> {
    pub(super) kind: &'p Kind<'p>,
    pub(super) known: Vec<Known>,
    pub(super) filler: Option<&'p mut Filler<'i>>,
}

impl Pass<'_, '_> {
    pub(super) fn run(
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
                    match check_tail(segment, offset, next, error, is_last) {
                        Ok(Tail::Zeros) if chain.is_whole() => {
                            segment.set_length(offset);
                            return Ok(None);
                        }
                        Ok(_) => break,
                        Err(error) => {
                            // A writer may have been at work here, if we have no lock. Then what was
                            // found behind this place shows that it is complete now.
                            scanner = Scanner::from(segment.clone(), offset);
                            if matches!(scanner.next(), Ok(Some(_))) {
                                scanner = Scanner::from(segment.clone(), offset);
                                continue;
                            }
                            return Err(error);
                        }
                    }
                }
            };
            let breach = |what| damaged(&segment.disk.path, offset, next, what);
            chain.accept(&frame).map_err(breach)?;
            segment.note(next, offset);
            self.check_known(chain.tip(), &segment.disk.path, offset)?;
            if let Entry::Record(record) = &frame.entry {
                self.check_schema(record.schema, record.sequence)?;
                if let Some(filler) = &mut self.filler {
                    filler.record(record);
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
) -> Result<Tail, OpenError> {
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
        Ok(tail @ (Tail::Torn | Tail::Zeros)) => Ok(tail),
        Ok(Tail::Newer(found)) => Err(newer(found)),
        Ok(Tail::Damaged { proof }) => {
            let what = format!("{error}; record {proof} behind it shows that it had been written");
            Err(damaged(path, offset, expected, what))
        }
        Err(e) => Err(OpenError::io("read", path, e)),
    }
}
