//! What the fuzz targets in `fuzz/` run. The corpus there is replayed by the unit tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc)]

use std::fs;
use std::path::Path;

use crate::frame::{self, Entry};
use crate::segment::{FileId, SEGMENT};
use crate::{EventKind, ReadOnly, import as import_lines};

/// A frame that decodes has exactly one encoding.
pub fn frame(bytes: &[u8]) {
    let Ok(found) = frame::decode(bytes) else {
        return;
    };
    let mut again = Vec::new();
    match &found.entry {
        Entry::Record(record) => {
            let hash = frame::encode_record(record, &mut again);
            assert_eq!(hash, found.hash);
        }
        Entry::Gap(gap) => frame::encode_gap(gap, &mut again),
    }
    assert_eq!(again, found.bytes);
    assert_eq!(frame::peek(bytes).expect("it decodes").0, again.len());
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Whatever a segment holds, it is refused, or opened twice with the same result.
pub fn segment(bytes: &[u8]) {
    let dir = scratch();
    let folder = dir.path().join("segments");
    fs::create_dir(&folder).unwrap();
    fs::write(
        FileId {
            first: 1,
            generation: 0,
        }
        .path(&folder, SEGMENT),
        bytes,
    )
    .unwrap();
    let open = |dir: &Path| crate::recover::segments_only(dir, "door-lock").ok();
    let first = open(dir.path());
    assert_eq!(open(dir.path()), first);
}

/// What is imported comes out again with the same head, and goes in again.
pub fn import(bytes: &[u8]) {
    let dir = scratch();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let Ok(imported) = import_lines(&one, bytes) else {
        assert!(!one.exists());
        return;
    };
    let kind = EventKind::<u8>::new(imported.kind.clone(), u16::MAX)
        .with_older(|_, _| Err(crate::PayloadError::new("not decoded here")));
    let reader = ReadOnly::open(&one, kind).expect("an import can be opened");
    let mut output = Vec::new();
    assert_eq!(reader.export(&mut output).unwrap().head, imported.head);
    assert_eq!(import_lines(&two, output.as_slice()).unwrap(), imported);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(target: &str, run: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz/corpus")
            .join(target);
        let mut count = 0;
        for entry in fs::read_dir(corpus).unwrap() {
            run(&fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count > 0, "{target} has no corpus");
    }

    #[test]
    fn the_corpus_of_frames() {
        replay("frame", frame);
    }

    #[test]
    fn the_corpus_of_segments() {
        replay("segment", segment);
    }

    #[test]
    fn the_corpus_of_imports() {
        replay("import", import);
    }
}
