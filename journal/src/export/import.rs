//! Making a journal from an export.

use std::fs;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use super::line::{EXPORT_VERSION, EndLine, GapLine, Line, RecordLine, from_hex};
use crate::chain::Chain;
use crate::codec::MAX_PAYLOAD_BYTES;
use crate::disk::{self, Disk, DiskFile, RealDisk};
use crate::frame::{self, Gap, Record};
use crate::hash::ChainHash;
use crate::head::{self, Head, Mark};
use crate::segment::{FileId, HEADER_BYTES, Header, SEGMENT, valid_kind};
use crate::store::Layout;
use crate::trace::TraceParent;

/// A line holds at most one payload in hexadecimal and the same as JSON, where a byte may take six.
const MAX_LINE: u64 = 16 * MAX_PAYLOAD_BYTES;
/// Segments of an imported journal are sealed at this length.
const SEGMENT_BYTES: u64 = 32 << 20;
/// Frames are written in pieces of this size.
const PIECE: usize = 1 << 20;

/// What was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The kind that the export names.
    pub kind: String,
    /// The last record; the same as in the exported journal.
    pub head: Head,
    /// How many records there are.
    pub records: u64,
}

/// Why an export was not imported. The target folder is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// There is something in the target folder.
    #[error("{} is not empty: import into a new folder", path.display())]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// The files can't be written, or the export can't be read.
    #[error("can't {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A line is not what it should be.
    #[error("line {line}: {what}")]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
}

/// Makes a journal in the folder `dir`, which must be empty or not exist, from an export. Every hash
/// is computed again and compared. The folder appears with the whole journal or not at all.
///
/// Blocks while it works.
///
/// # Errors
/// See [`ImportError`].
pub fn import(dir: impl AsRef<Path>, input: impl BufRead) -> Result<Imported, ImportError> {
    let dir = dir.as_ref();
    let failed = |action: &str, path: &Path| {
        let action = format!("{action} {}", path.display());
        move |source| ImportError::Io { action, source }
    };
    match fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
        Ok(true) => return Err(ImportError::Occupied { path: dir.into() }),
        Ok(false) => fs::remove_dir(dir).map_err(failed("replace", dir))?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed("look into", dir)(e)),
    }
    let mut unfinished = dir.as_os_str().to_owned();
    unfinished.push(".importing");
    let unfinished = PathBuf::from(unfinished);
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(failed("remove", &unfinished))?;
    }
    let imported = read_lines(&unfinished, input);
    if imported.is_err() {
        // The half that was written is of no use to anybody.
        let _ = fs::remove_dir_all(&unfinished);
    }
    let imported = imported?;
    let parent = match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::rename(&unfinished, dir)
        .and_then(|()| RealDisk.sync_dir(parent))
        .map_err(failed("put in place", dir))?;
    Ok(imported)
}

fn read_lines(dir: &Path, mut input: impl BufRead) -> Result<Imported, ImportError> {
    let mut number = 0;
    let mut next = || -> Result<Option<(u64, Line)>, ImportError> {
        let mut text = Vec::new();
        number += 1;
        let read = (&mut input).take(MAX_LINE).read_until(b'\n', &mut text);
        let read = read.map_err(|source| ImportError::Io {
            action: format!("read line {number}"),
            source,
        })?;
        if read == 0 {
            return Ok(None);
        }
        let bad = |what| ImportError::Line { line: number, what };
        if read as u64 == MAX_LINE {
            return Err(bad(format!("it is longer than {MAX_LINE} bytes")));
        }
        let line = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
        Ok(Some((number, line)))
    };
    let at = |line, what: &str| ImportError::Line {
        line,
        what: what.to_owned(),
    };
    let kind = match next()? {
        Some((line, Line::Journal(header))) if header.format != EXPORT_VERSION => {
            let what = format!(
                "format {}, this program reads {EXPORT_VERSION}",
                header.format
            );
            return Err(at(line, &what));
        }
        Some((_, Line::Journal(header))) if valid_kind(&header.kind) => header.kind,
        _ => {
            return Err(at(
                1,
                "an export begins with {\"journal\":{\"kind\":…,\"format\":1}}",
            ));
        }
    };
    let mut builder = Builder::new(dir, &kind)?;
    loop {
        let bad = |line| move |what: String| ImportError::Line { line, what };
        match next()? {
            Some((line, Line::Record(record))) => builder.record(&record, bad(line))?,
            Some((line, Line::Gap(gap))) => builder.gap(&gap, bad(line))?,
            Some((line, Line::End(end))) => {
                builder.check_end(&end).map_err(bad(line))?;
                if let Some((line, _)) = next()? {
                    return Err(at(line, "nothing may follow the end line"));
                }
                return builder.finish();
            }
            Some((line, Line::Damaged(_))) => {
                return Err(at(
                    line,
                    "the export was salvaged from a damaged journal and has a hole",
                ));
            }
            Some((line, Line::Journal(_))) => return Err(at(line, "a second header")),
            None => return Err(at(number, "the export is cut off: it has no end line")),
        }
    }
}

/// Writes segments.
struct Builder {
    layout: Layout,
    kind: String,
    chain: Chain,
    records: u64,
    file: DiskFile,
    first: u64,
    length: u64,
    buffer: Vec<u8>,
}

fn write_failed(path: &Path) -> impl FnOnce(io::Error) -> ImportError {
    let action = format!("write {}", path.display());
    move |source| ImportError::Io { action, source }
}

impl Builder {
    fn new(dir: &Path, kind: &str) -> Result<Self, ImportError> {
        let layout = Layout { root: dir.into() };
        let segments = layout.segments();
        disk::ensure_folder(&RealDisk, dir)
            .and_then(|()| disk::ensure_folder(&RealDisk, &segments))
            .map_err(write_failed(&segments))?;
        let chain = Chain::new(ChainHash::genesis(kind));
        let file = begin(&layout, kind, chain.tip())?;
        Ok(Self {
            layout,
            kind: kind.to_owned(),
            chain,
            records: 0,
            file,
            first: 1,
            length: HEADER_BYTES as u64,
            buffer: Vec::new(),
        })
    }

    fn record(
        &mut self,
        line: &RecordLine,
        bad: impl Fn(String) -> ImportError,
    ) -> Result<(), ImportError> {
        let start = self.buffer.len();
        self.encode(line).map_err(&bad)?;
        self.accept(start, bad)?;
        self.records += 1;
        Ok(())
    }

    /// Appends the record's frame to the buffer.
    fn encode(&mut self, line: &RecordLine) -> Result<(), String> {
        let payload = from_hex(&line.payload).ok_or("`payload` is not hexadecimal")?;
        let size = frame::record_bytes(line.stream.len(), payload.len());
        if size > crate::MAX_RECORD_BYTES || !frame::valid_stream(&line.stream) {
            return Err("`stream` or `payload` has no valid length".into());
        }
        let trace = line
            .traceparent
            .as_deref()
            .map(str::parse::<TraceParent>)
            .transpose();
        let record = Record {
            schema: line.schema,
            continues: line.continues,
            stream: &line.stream,
            sequence: line.sequence,
            version: line.version,
            at_micros: line.at,
            epoch: line.epoch,
            trace: trace.map_err(|e| e.to_string())?,
            previous: line
                .previous
                .parse()
                .map_err(|e| format!("`previous`: {e}"))?,
            payload: &payload,
            commit: line.sequence,
        };
        let hash = frame::encode_record(&record, &mut self.buffer);
        let said: ChainHash = line.hash.parse().map_err(|e| format!("`hash`: {e}"))?;
        if hash != said {
            return Err(format!("the record's hash is {hash}, the line says {said}"));
        }
        Ok(())
    }

    fn gap(
        &mut self,
        line: &GapLine,
        bad: impl Fn(String) -> ImportError,
    ) -> Result<(), ImportError> {
        let start = self.buffer.len();
        let hash = line.hash.parse().map_err(|e| bad(format!("`hash`: {e}")))?;
        let gap = Gap {
            first: line.first,
            last: line.last,
            hash,
        };
        frame::encode_gap(&gap, &mut self.buffer);
        self.accept(start, bad)
    }

    /// Checks the frame at the end of the buffer, and writes the buffer if it is large.
    fn accept(
        &mut self,
        start: usize,
        bad: impl Fn(String) -> ImportError,
    ) -> Result<(), ImportError> {
        let bytes = self.buffer.get(start..).unwrap_or_default();
        let frame = frame::decode(bytes).map_err(|e| bad(e.to_string()))?;
        self.chain.accept(&frame).map_err(bad)?;
        if self.buffer.len() >= PIECE {
            self.flush()?;
        }
        if self.chain.is_whole() && self.length >= SEGMENT_BYTES {
            self.flush()?;
            RealDisk
                .sync(&self.file)
                .map_err(write_failed(&self.file.path))?;
            self.file = begin(&self.layout, &self.kind, self.chain.tip())?;
            self.first = self.chain.tip().sequence + 1;
            self.length = HEADER_BYTES as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        let written = RealDisk.write_at(&self.file, &self.buffer, self.length);
        written.map_err(write_failed(&self.file.path))?;
        self.length += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn check_end(&self, end: &EndLine) -> Result<(), String> {
        let tip = self.chain.tip();
        if !self.chain.is_whole() {
            return Err("the last append is not complete".into());
        }
        if end.records != self.records
            || end.head.sequence != tip.sequence
            || end.head.hash != tip.hash.to_string()
        {
            let found = (self.records, tip.sequence, tip.hash);
            return Err(format!(
                "the end line doesn't fit what came before it: {found:?}"
            ));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        self.flush()?;
        let head = self.chain.head();
        let mark = Mark {
            head,
            active: self.first,
        };
        let path = self.layout.head();
        RealDisk
            .sync(&self.file)
            .and_then(|()| head::write(&RealDisk, &path, &mark))
            .map_err(write_failed(&path))?;
        Ok(Imported {
            kind: self.kind,
            head,
            records: self.records,
        })
    }
}

fn begin(layout: &Layout, kind: &str, tip: Head) -> Result<DiskFile, ImportError> {
    let id = FileId {
        first: tip.sequence + 1,
        generation: 0,
    };
    let header = Header {
        kind: kind.to_owned(),
        id,
        previous: tip.hash,
    };
    let path = id.path(&layout.segments(), SEGMENT);
    disk::write_whole(&RealDisk, &path, &header.encode()).map_err(|e| write_failed(&path)(e.into()))
}
