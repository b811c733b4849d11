//! Making the index agree with the segments.

use std::io;
use std::sync::Arc;

use super::fill::fill;
use crate::catalog::Catalog;
use crate::index::{Census, Index, IndexFault};
use crate::options::Options;
use crate::report::Repair;
use crate::store::Layout;

/// Takes the opened index if it agrees with the segments, else builds a new one; if that fails too,
/// the journal does without.
pub(super) fn settle_index(
    opened: Result<(Arc<Index>, Census), IndexFault>,
    filled: Option<Result<u64, String>>,
    layout: &Layout,
    options: &Options,
    catalog: &Catalog,
    repairs: &mut Vec<Repair>,
) -> Arc<Index> {
    let reason = match (opened, filled) {
        (Ok((index, _)), Some(Ok(0))) => return index,
        (Ok((index, _)), Some(Ok(records))) => {
            repairs.push(Repair::IndexRefilled { records });
            return index;
        }
        (Ok((index, _)), Some(Err(reason))) => {
            index.close();
            reason
        }
        (Ok((index, _)), None) => return index,
        (Err(fault), _) => fault.to_string(),
    };
    let (index, repair) = match rebuild(layout, options, catalog) {
        Ok((index, records)) => (index, Repair::IndexRebuilt { reason, records }),
        Err(failure) => {
            let reason = format!("{reason}; rebuilding it failed: {failure}");
            (
                Arc::new(Index::absent(&reason)),
                Repair::IndexAbsent { reason },
            )
        }
    };
    tracing::warn!(?repair, "journal index");
    repairs.push(repair);
    index
}

fn rebuild(
    layout: &Layout,
    options: &Options,
    catalog: &Catalog,
) -> Result<(Arc<Index>, u64), String> {
    set_index_aside(layout).map_err(|e| format!("can't set it aside: {e}"))?;
    let (index, _) = Index::open(&layout.index(), options.cache_bytes, options.open_deadline)
        .map_err(|fault| fault.to_string())?;
    let records = fill(&index, catalog)?;
    Ok((index, records))
}

fn set_index_aside(layout: &Layout) -> io::Result<()> {
    let (from, to) = (layout.index(), layout.broken_index());
    if !from.exists() {
        return Ok(());
    }
    if to.exists() {
        std::fs::remove_dir_all(&to)?;
    }
    std::fs::rename(&from, &to)
}
