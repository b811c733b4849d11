//! Reading every frame of a catalog in order, and checking it on the way.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::chain::Chain;
use crate::error::Damage;
use crate::frame::Frame;
use crate::hash::ChainHash;
use crate::head::Head;
use crate::mainline::{LineError, Mainline};

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

impl<X> From<LineError> for WalkError<X> {
    fn from(error: LineError) -> Self {
        match error {
            LineError::Io { path, source } => Self::Io { path, source },
            LineError::Damaged(damage) => Self::Damaged(damage),
        }
    }
}

/// Shows `visit` every frame up to `head`, archived ones (`true`) in their places, after the rules
/// of the chain have been checked on it.
pub(crate) fn walk<X>(
    catalog: &Arc<Catalog>,
    genesis: ChainHash,
    head: Head,
    mut visit: impl FnMut(&Frame<'_>, bool) -> Result<(), X>,
) -> Result<Chain, WalkError<X>> {
    let mut chain = Chain::new(genesis);
    let mut line = Mainline::from(Arc::clone(catalog), 1);
    let last = catalog.segments.last();
    let damaged = |sequence: u64, what: String| {
        // Where exactly is not known here; the segment is.
        let segment = catalog.segments.get(catalog.position(sequence)).or(last);
        let path = segment.map(|s| s.disk.path.clone()).unwrap_or_default();
        WalkError::Damaged(Damage {
            path,
            offset: 0,
            sequence,
            what,
        })
    };
    while chain.tip().sequence < head.sequence {
        let sequence = chain.tip().sequence + 1;
        let Some((frame, archived)) = line.next()? else {
            break;
        };
        chain
            .accept(&frame)
            .map_err(|what| damaged(sequence, what))?;
        visit(&frame, archived).map_err(WalkError::Visitor)?;
    }
    if chain.head() != head {
        let end = chain.head().sequence;
        let what = format!("the records end at {end}, not at {}", head.sequence);
        return Err(damaged(end + 1, what));
    }
    Ok(chain)
}
