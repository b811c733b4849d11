//! All records in global order, the live ones and the archived ones.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::archive::ArchiveScanner;
use crate::catalog::{Catalog, Segment};
use crate::error::Damage;
use crate::frame::{self, Entry, Frame, Gap};
use crate::scan::{Peeked, ScanError, Scanner};

/// Why the next frame can't be read.
#[derive(Debug)]
pub(crate) enum LineError {
    Io { path: PathBuf, source: io::Error },
    Damaged(Damage),
}

/// Where the next frame comes from.
enum Step {
    End,
    /// The scanner stands before it.
    Live,
    /// It is in `held`.
    Archived,
    /// Records that were given up.
    Gap(Gap),
}

/// A gap that is being filled from archives.
#[derive(Debug)]
struct Filling {
    gap: Gap,
    sources: Vec<ArchiveScanner>,
}

/// Reads frame by frame. Gaps are filled with what the archives have; the gaps that it returns are
/// records that were given up.
#[derive(Debug)]
pub(crate) struct Mainline {
    catalog: Arc<Catalog>,
    segment: usize,
    scanner: Option<Scanner>,
    filling: Option<Filling>,
    /// A frame from an archive, and whether it is still to be returned.
    held: Vec<u8>,
    pending: bool,
    /// The sequence that comes next; right after the start the live records may be earlier ones.
    next: u64,
}

impl Mainline {
    /// Starts at the record with this sequence, or a little before it.
    pub(crate) fn from(catalog: Arc<Catalog>, sequence: u64) -> Self {
        let segment = catalog.position(sequence);
        let found = catalog.segments.get(segment);
        let scanner = found.map(|s| Scanner::from(Arc::clone(s), s.near(sequence)));
        Self {
            catalog,
            segment,
            scanner,
            filling: None,
            held: Vec::new(),
            pending: false,
            next: sequence,
        }
    }

    /// The next frame, and whether it comes from an archive; `None` at the end of the last segment.
    pub(crate) fn next(&mut self) -> Result<Option<(Frame<'_>, bool)>, LineError> {
        match self.step()? {
            Step::End => Ok(None),
            Step::Gap(gap) => {
                let hash = gap.hash;
                Ok(Some((
                    Frame {
                        entry: Entry::Gap(gap),
                        bytes: &[],
                        hash,
                    },
                    false,
                )))
            }
            Step::Archived => match frame::decode(&self.held) {
                Ok(frame) => Ok(Some((frame, true))),
                Err(error) => Err(LineError::Damaged(Damage {
                    path: PathBuf::new(),
                    offset: 0,
                    sequence: self.next,
                    what: error.to_string(),
                })),
            },
            Step::Live => {
                let next = self.next;
                let Some(scanner) = &mut self.scanner else {
                    return Ok(None);
                };
                let place = Place::of(scanner);
                match scanner.next() {
                    Ok(frame) => {
                        if let Some(Entry::Record(record)) = frame.map(|frame| frame.entry) {
                            self.next = record.sequence + 1;
                        }
                        Ok(frame.map(|frame| (frame, false)))
                    }
                    Err(error) => Err(place.explain(next, error)),
                }
            }
        }
    }

    fn step(&mut self) -> Result<Step, LineError> {
        loop {
            if self.filling.is_some() {
                return self.step_in_gap();
            }
            let next = self.next;
            let Some(scanner) = &mut self.scanner else {
                return Ok(Step::End);
            };
            let place = Place::of(scanner);
            match scanner.peek().map_err(|error| place.explain(next, error))? {
                Peeked::Record => return Ok(Step::Live),
                Peeked::Gap(gap) => self.begin_filling(gap),
                Peeked::End => {
                    self.segment += 1;
                    let segment = self.catalog.segments.get(self.segment);
                    self.scanner = segment.cloned().map(Scanner::new);
                }
            }
        }
    }

    fn begin_filling(&mut self, gap: Gap) {
        let first = gap.first.max(self.next);
        if first > gap.last {
            // Reading begins behind it.
            return;
        }
        self.next = first;
        let overlapping = self
            .catalog
            .archives
            .iter()
            .filter(|a| a.overlaps(first, gap.last));
        let sources = overlapping
            .map(|archive| ArchiveScanner::from(Arc::clone(archive), first))
            .collect();
        self.filling = Some(Filling { gap, sources });
    }

    fn step_in_gap(&mut self) -> Result<Step, LineError> {
        let Some(filling) = &mut self.filling else {
            return Ok(Step::End);
        };
        let gap = filling.gap;
        if !self.pending {
            match filling.take_lowest(self.next, &mut self.held)? {
                None => {
                    let rest = Gap {
                        first: self.next,
                        ..gap
                    };
                    self.next = gap.last + 1;
                    self.filling = None;
                    return Ok(Step::Gap(rest));
                }
                Some(lowest) if lowest.sequence > self.next => {
                    let first = self.next;
                    self.next = lowest.sequence;
                    self.pending = true;
                    let last = lowest.sequence - 1;
                    return Ok(Step::Gap(Gap {
                        first,
                        last,
                        hash: lowest.previous,
                    }));
                }
                Some(_) => {}
            }
        }
        self.pending = false;
        self.next += 1;
        if self.next > gap.last {
            self.filling = None;
        }
        Ok(Step::Archived)
    }
}

/// What is known of a record that was taken from an archive.
struct Taken {
    sequence: u64,
    previous: crate::ChainHash,
}

impl Filling {
    /// Puts the record with the lowest sequence from `next` on into `held`.
    fn take_lowest(&mut self, next: u64, held: &mut Vec<u8>) -> Result<Option<Taken>, LineError> {
        let mut lowest: Option<(u64, &mut ArchiveScanner)> = None;
        for source in &mut self.sources {
            let sequence = skip_to(source, next).map_err(|e| explain(source, next, e))?;
            let Some(sequence) = sequence.filter(|sequence| *sequence <= self.gap.last) else {
                continue;
            };
            if lowest.as_ref().is_none_or(|(least, _)| sequence < *least) {
                lowest = Some((sequence, source));
            }
        }
        let Some((_, source)) = lowest else {
            return Ok(None);
        };
        let taken = match source.next() {
            Ok(Some(frame)) => {
                held.clear();
                held.extend_from_slice(frame.bytes);
                match frame.entry {
                    Entry::Record(r) => Ok(Taken {
                        sequence: r.sequence,
                        previous: r.previous,
                    }),
                    Entry::Gap(_) => Err(ScanError::Frame(frame::FrameError::Field("magic"))),
                }
            }
            Ok(None) => return Ok(None),
            Err(error) => Err(error),
        };
        taken
            .map(Some)
            .map_err(|error| explain(source, next, error))
    }
}

/// The first sequence from `next` on that the source has.
fn skip_to(source: &mut ArchiveScanner, next: u64) -> Result<Option<u64>, ScanError> {
    while let Some(sequence) = source.peek()? {
        if sequence >= next {
            return Ok(Some(sequence));
        }
        source.skip()?;
    }
    Ok(None)
}

fn explain(source: &ArchiveScanner, sequence: u64, error: ScanError) -> LineError {
    match error {
        ScanError::Io(error) => LineError::Io {
            path: source.archive().disk.path.clone(),
            source: error,
        },
        ScanError::Frame(error) => LineError::Damaged(source.damage(sequence, error)),
    }
}

/// Where a scanner stands, for an error's text.
struct Place {
    segment: Arc<Segment>,
    offset: u64,
}

impl Place {
    fn of(scanner: &Scanner) -> Self {
        Self {
            segment: Arc::clone(scanner.segment()),
            offset: scanner.offset(),
        }
    }

    fn explain(self, sequence: u64, error: ScanError) -> LineError {
        let path = self.segment.disk.path.clone();
        match error {
            ScanError::Io(source) => LineError::Io { path, source },
            ScanError::Frame(error) => LineError::Damaged(Damage {
                path,
                offset: self.offset,
                sequence,
                what: error.to_string(),
            }),
        }
    }
}
