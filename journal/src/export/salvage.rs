//! Getting every intact record out of a damaged store.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::line::{DamagedLine, EndLine, HeaderLine, Line};
use super::{Exported, frame_line, write_line};
use crate::archive::{Archive, ArchiveScanner};
use crate::disk::RealDisk;
use crate::frame;
use crate::hash::ChainHash;
use crate::head::Head;
use crate::options::EventKind;
use crate::scan::ScanError;
use crate::segment::{ARCHIVE, FileId, HEADER_BYTES, SEGMENT};

/// Writes every record with a right checksum that is found in the segments of the folder and then in
/// its archives, in the order of the files, whether it continues the chain or not, and a line for
/// every stretch that is not a record.
pub(crate) fn salvage<E: Serialize + DeserializeOwned>(
    kind: &EventKind<E>,
    segments: &Path,
    output: &mut dyn Write,
) -> io::Result<Exported> {
    write_line(output, &Line::Journal(HeaderLine::new(&kind.name)))?;
    let paths = files(segments, SEGMENT)?;
    let mut head = Head {
        sequence: 0,
        hash: ChainHash::genesis(&kind.name),
    };
    let mut records = 0;
    for path in paths {
        // A segment is as large as the caller wanted segments to be; by default 32 MiB.
        let bytes = fs::read(&path)?;
        let mut at = HEADER_BYTES;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            match frame::decode(rest) {
                Ok(found) => {
                    if let frame::Entry::Record(record) = &found.entry {
                        head = Head {
                            sequence: record.sequence,
                            hash: found.hash,
                        };
                        records += 1;
                    }
                    write_line(output, &frame_line(kind, &found))?;
                    at += found.bytes.len();
                }
                Err(_) => {
                    let skip = next_frame(rest);
                    let file = path
                        .file_name()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .into_owned();
                    let line = DamagedLine {
                        file,
                        offset: at as u64,
                        bytes: skip as u64,
                    };
                    write_line(output, &Line::Damaged(line))?;
                    at += skip;
                }
            }
        }
    }
    for path in files(segments, ARCHIVE)? {
        records += salvage_archive(kind, &path, output)?;
    }
    write_line(
        output,
        &Line::End(EndLine {
            records,
            head: head.into(),
        }),
    )?;
    output.flush()?;
    Ok(Exported { head, records })
}

/// The files with this extension in a folder, by name.
fn files(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    if folder.is_dir() {
        for entry in fs::read_dir(folder)? {
            paths.push(entry?.path());
        }
    }
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    Ok(paths)
}

/// Writes the records of an archive up to the first one that can't be read.
fn salvage_archive<E: Serialize + DeserializeOwned>(
    kind: &EventKind<E>,
    path: &Path,
    output: &mut dyn Write,
) -> io::Result<u64> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let damaged = |bytes| {
        Line::Damaged(DamagedLine {
            file: name.clone(),
            offset: 0,
            bytes,
        })
    };
    let bytes = fs::metadata(path)?.len();
    let file = RealDisk::open_to_read(path)?;
    let opened = FileId::parse(&name, ARCHIVE).map(|id| Archive::open(file, id, &kind.name));
    let Some(Ok(archive)) = opened else {
        write_line(output, &damaged(bytes))?;
        return Ok(0);
    };
    let mut scanner = ArchiveScanner::from(Arc::new(archive), 0);
    let mut records = 0;
    loop {
        match scanner.next() {
            Ok(Some(found)) => write_line(output, &frame_line(kind, &found))?,
            Ok(None) => return Ok(records),
            Err(ScanError::Io(error)) => return Err(error),
            Err(ScanError::Frame(_)) => {
                write_line(output, &damaged(bytes))?;
                return Ok(records);
            }
        }
        records += 1;
    }
}

/// How far it is to the next frame, or to the end.
fn next_frame(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let magic = rest.starts_with(&frame::RECORD_MAGIC) || rest.starts_with(&frame::GAP_MAGIC);
        if magic && frame::decode(rest).is_ok() {
            return at;
        }
        at += 1;
    }
    bytes.len()
}
