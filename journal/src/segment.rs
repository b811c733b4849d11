//! The header of a segment and its file's name.

use std::path::{Path, PathBuf};

use crate::bytes::{Fields, seal, unseal};
use crate::hash::ChainHash;

const MAGIC: [u8; 8] = *b"JRNLSEGM";
pub(crate) const SEGMENT_VERSION: u16 = 1;
const KIND_BYTES: usize = 64;
/// The extensions of the files' names.
pub(crate) const SEGMENT: &str = "seg";
pub(crate) const ARCHIVE: &str = "arc";
/// Every header has this length; frames follow it.
pub(crate) const HEADER_BYTES: usize = 128;

/// Names a file of the store. A compaction replaces a file by one of the next generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId {
    /// The global sequence of the first record or gap.
    pub(crate) first: u64,
    pub(crate) generation: u32,
}

impl FileId {
    pub(crate) fn path(self, folder: &Path, extension: &str) -> PathBuf {
        let Self { first, generation } = self;
        folder.join(format!("{first:020}.{generation:04}.{extension}"))
    }

    /// The id in a file's name; `None` for any other name.
    pub(crate) fn parse(name: &str, extension: &str) -> Option<Self> {
        let stem = name.strip_suffix(extension)?.strip_suffix('.')?;
        let (first, generation) = stem.split_once('.')?;
        let id = Self {
            first: first.parse().ok()?,
            generation: generation.parse().ok()?,
        };
        (id.path(Path::new(""), extension).as_os_str() == name).then_some(id)
    }
}

/// What a segment says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: String,
    pub(crate) id: FileId,
    /// The hash of the record before the first one.
    pub(crate) previous: ChainHash,
}

/// Why a file doesn't begin with a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Damaged(&'static str),
    Newer(u16),
}

/// A kind's name is what the header has room for.
pub(crate) fn valid_kind(name: &str) -> bool {
    (1..=KIND_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
}

impl Header {
    /// The header's 128 bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.encode_as(MAGIC)
    }

    /// The same with another magic, for an archive.
    pub(crate) fn encode_as(&self, magic: [u8; 8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        let name = self.kind.as_bytes();
        out.extend_from_slice(&magic);
        out.extend_from_slice(&SEGMENT_VERSION.to_le_bytes());
        out.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&self.id.generation.to_le_bytes());
        out.extend_from_slice(&self.id.first.to_le_bytes());
        out.extend_from_slice(self.previous.as_bytes());
        out.extend_from_slice(name);
        out.resize(HEADER_BYTES - 4, 0);
        seal(&mut out, 0);
        out
    }

    /// Reads the header at the front of `bytes`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        Self::decode_as(MAGIC, bytes)
    }

    /// The same with another magic, for an archive.
    pub(crate) fn decode_as(magic: [u8; 8], bytes: &[u8]) -> Result<Self, HeaderError> {
        let whole = bytes.get(..HEADER_BYTES).ok_or(HeaderError::Damaged(
            "the file is shorter than a segment's header",
        ))?;
        let body = unseal(whole).ok_or(HeaderError::Damaged("the header's checksum is wrong"))?;
        let mut fields = Fields(body);
        if fields.array() != Some(magic) {
            return Err(HeaderError::Damaged("the magic is not that of such a file"));
        }
        match fields.u16() {
            Some(SEGMENT_VERSION) => {}
            Some(newer) => return Err(HeaderError::Newer(newer)),
            None => return Err(HeaderError::Damaged("the header has no version")),
        }
        decode_fields(&mut fields).ok_or(HeaderError::Damaged("a header field is not valid"))
    }
}

fn decode_fields(fields: &mut Fields<'_>) -> Option<Header> {
    let name_length = usize::from(fields.u16()?);
    let generation = fields.u32()?;
    let first = fields.u64().filter(|first| *first > 0)?;
    let previous = ChainHash::from_bytes(fields.array()?);
    let name = std::str::from_utf8(fields.slice(name_length)?).ok()?;
    let sound = valid_kind(name) && fields.0.iter().all(|byte| *byte == 0);
    sound.then(|| Header {
        kind: name.to_owned(),
        id: FileId { first, generation },
        previous,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn sample() -> Header {
        Header {
            kind: "door-lock".into(),
            id: FileId {
                first: 77,
                generation: 2,
            },
            previous: ChainHash::of(b"76"),
        }
    }

    #[test]
    fn round_trips_and_notices_every_flipped_byte() {
        let bytes = sample().encode();
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(Header::decode(&bytes), Ok(sample()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(Header::decode(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_newer_version_is_told_apart_from_damage() {
        let mut bytes = sample().encode();
        bytes.truncate(HEADER_BYTES - 4);
        bytes[8] = 9;
        seal(&mut bytes, 0);
        assert_eq!(Header::decode(&bytes), Err(HeaderError::Newer(9)));
    }

    #[test]
    fn only_its_own_file_names_are_an_id() {
        let id = FileId {
            first: 77,
            generation: 2,
        };
        let path = id.path(Path::new("/d"), SEGMENT);
        assert_eq!(path, Path::new("/d/00000000000000000077.0002.seg"));
        assert_eq!(
            FileId::parse("00000000000000000077.0002.seg", SEGMENT),
            Some(id)
        );
        for name in [
            "77.0002.seg",
            "00000000000000000077.0002.tmp",
            "x.seg",
            "+0000000000000000077.0002.seg",
        ] {
            assert_eq!(FileId::parse(name, SEGMENT), None, "{name}");
        }
    }
}
