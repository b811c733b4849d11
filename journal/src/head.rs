//! The journal's head, and the `HEAD` file that bounds it from below.

use std::fs;
use std::io;
use std::path::Path;

use crate::bytes::{Fields, seal, unseal};
use crate::disk::{Disk, write_whole};
use crate::hash::ChainHash;

/// The last record of a journal. Keep a copy elsewhere: an emptied journal is consistent in itself,
/// only a head that is known from outside shows that it was longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The global sequence of the last record; 0 in an empty journal.
    pub sequence: u64,
    /// The hash of the last record. It covers, through the chain, every record before it.
    pub hash: ChainHash,
}

const MAGIC: [u8; 8] = *b"JRNLHEAD";
const VERSION: u16 = 1;

/// A lower bound of what the segments hold, written on creation, rotation, recovery and close.
///
/// It lets `open` tell a torn tail from damage to records that had been on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) head: Head,
    /// The first sequence of the segment that was being written.
    pub(crate) active: u64,
}

/// What the `HEAD` file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkFile {
    Sound(Mark),
    Missing,
    /// Its checksum or its layout is wrong.
    Unreadable,
    /// Written by a newer version of the crate.
    Newer(u16),
}

pub(crate) fn write(disk: &dyn Disk, path: &Path, mark: &Mark) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(68);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 6]);
    bytes.extend_from_slice(&mark.head.sequence.to_le_bytes());
    bytes.extend_from_slice(mark.head.hash.as_bytes());
    bytes.extend_from_slice(&mark.active.to_le_bytes());
    seal(&mut bytes, 0);
    // Without its place in the folder settled it is the old file or the new one: both are right.
    write_whole(disk, path, &bytes)
        .map(drop)
        .map_err(io::Error::from)
}

pub(crate) fn read(path: &Path) -> io::Result<MarkFile> {
    match fs::read(path) {
        Ok(bytes) => Ok(decode(&bytes).unwrap_or(MarkFile::Unreadable)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(MarkFile::Missing),
        Err(e) => Err(e),
    }
}

fn decode(bytes: &[u8]) -> Option<MarkFile> {
    let mut fields = Fields(unseal(bytes)?);
    if fields.array()? != MAGIC {
        return None;
    }
    let version = fields.u16()?;
    if version != VERSION {
        return Some(MarkFile::Newer(version));
    }
    let reserved: [u8; 6] = fields.array()?;
    let sequence = fields.u64()?;
    let hash = ChainHash::from_bytes(fields.array()?);
    let active = fields.u64()?;
    let sound = reserved == [0; 6] && fields.0.is_empty();
    sound.then_some(MarkFile::Sound(Mark {
        head: Head { sequence, hash },
        active,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::disk::RealDisk;

    #[test]
    fn round_trips_and_notices_every_flipped_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("HEAD");
        assert_eq!(read(&path).unwrap(), MarkFile::Missing);
        let head = Head {
            sequence: 9,
            hash: ChainHash::of(b"nine"),
        };
        let mark = Mark { head, active: 4 };
        write(&RealDisk, &path, &mark).unwrap();
        assert_eq!(read(&path).unwrap(), MarkFile::Sound(mark));
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert_eq!(decode(&damaged), None, "byte {at}");
        }
        assert_eq!(decode(&bytes[..40]), None);
    }
}
