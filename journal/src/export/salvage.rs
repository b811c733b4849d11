//! Getting every intact record out of a damaged store.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::line::{DamagedLine, EndLine, HeaderLine, Line};
use super::{Exported, frame_line, write_line};
use crate::frame;
use crate::hash::ChainHash;
use crate::head::Head;
use crate::options::EventKind;
use crate::segment::HEADER_BYTES;

/// Writes every record with a right checksum that is found in the segments of the folder, in the
/// order of the files, whether it continues the chain or not, and a line for every stretch that is
/// not a record.
pub(crate) fn salvage<E: Serialize + DeserializeOwned>(
    kind: &EventKind<E>,
    segments: &Path,
    output: &mut dyn Write,
) -> io::Result<Exported> {
    write_line(output, &Line::Journal(HeaderLine::new(&kind.name)))?;
    let mut paths = Vec::new();
    if segments.is_dir() {
        for entry in fs::read_dir(segments)? {
            paths.push(entry?.path());
        }
    }
    paths.retain(|path| path.extension().is_some_and(|e| e == "seg"));
    paths.sort();
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
