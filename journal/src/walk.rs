//! Reading every frame of a catalog in order, and checking it on the way.

use std::io;
use std::path::PathBuf;

use crate::catalog::{Catalog, Segment};
use crate::chain::Chain;
use crate::error::Damage;
use crate::frame::Frame;
use crate::hash::ChainHash;
use crate::head::Head;
use crate::scan::{ScanError, Scanner};

/// Why a walk didn't reach its end.
#[derive(Debug)]
pub(crate) enum WalkError<X> {
    Io {
        path: PathBuf,
        source: io::Error,
    },
    Damaged(Damage),
    /// The visitor had enough.
    Visitor(X),
}

/// Shows `visit` every frame up to `head`, with its segment and offset, after the rules of the chain
/// have been checked on it.
pub(crate) fn walk<X>(
    catalog: &Catalog,
    genesis: ChainHash,
    head: Head,
    mut visit: impl FnMut(&Frame<'_>, &Segment, u64) -> Result<(), X>,
) -> Result<Chain, WalkError<X>> {
    let mut chain = Chain::new(genesis);
    for segment in &catalog.segments {
        let mut scanner = Scanner::new(segment.clone());
        while chain.tip().sequence < head.sequence {
            let offset = scanner.offset();
            let sequence = chain.tip().sequence + 1;
            let path = || segment.disk.path.clone();
            let damaged = |what| {
                WalkError::Damaged(Damage {
                    path: path(),
                    offset,
                    sequence,
                    what,
                })
            };
            let frame = match scanner.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(ScanError::Io(source)) => {
                    return Err(WalkError::Io {
                        path: path(),
                        source,
                    });
                }
                Err(ScanError::Frame(error)) => return Err(damaged(error.to_string())),
            };
            chain.accept(&frame).map_err(damaged)?;
            visit(&frame, segment, offset).map_err(WalkError::Visitor)?;
        }
    }
    if chain.head() != head {
        let sequence = chain.head().sequence + 1;
        let what = format!(
            "the records end at {}, not at {}",
            sequence - 1,
            head.sequence
        );
        let path = catalog
            .segments
            .last()
            .map(|s| s.disk.path.clone())
            .unwrap_or_default();
        return Err(WalkError::Damaged(Damage {
            path,
            offset: 0,
            sequence,
            what,
        }));
    }
    Ok(chain)
}
