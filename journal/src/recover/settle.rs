//! Making the index agree with the segments.

use std::sync::Arc;

use super::fill::fill;
use crate::catalog::Catalog;
use crate::error::OpenError;
use crate::index::{Census, Index, IndexFault};
use crate::options::Options;
use crate::report::Repair;
use crate::store::Layout;

/// Takes the opened index if it agrees with the segments, else builds a new one.
pub(super) fn settle_index(
    opened: Result<(Arc<Index>, Census), IndexFault>,
    filled: Option<Result<u64, String>>,
    layout: &Layout,
    options: &Options,
    catalog: &Catalog,
    repairs: &mut Vec<Repair>,
) -> Result<Arc<Index>, OpenError> {
    let reason = match (opened, filled) {
        (Ok((index, _)), Some(Ok(0))) => return Ok(index),
        (Ok((index, _)), Some(Ok(records))) => {
            repairs.push(Repair::IndexRefilled { records });
            return Ok(index);
        }
        (Ok((index, _)), Some(Err(reason))) => {
            index.close();
            reason
        }
        (Ok((index, _)), None) => return Ok(index),
        (Err(fault), _) => fault.to_string(),
    };
    set_index_aside(layout)?;
    let path = layout.index();
    let rebuilt = Index::open(&path, options.cache_bytes, options.open_deadline)
        .map_err(|fault| fault.to_string())
        .and_then(|(index, _)| fill(&index, catalog).map(|records| (index, records)));
    let (index, records) = rebuilt
        .map_err(|e| OpenError::io("rebuild the index in", &path, std::io::Error::other(e)))?;
    tracing::warn!(reason, records, "journal index rebuilt from the segments");
    repairs.push(Repair::IndexRebuilt { reason, records });
    Ok(index)
}

fn set_index_aside(layout: &Layout) -> Result<(), OpenError> {
    let (from, to) = (layout.index(), layout.broken_index());
    if !from.exists() {
        return Ok(());
    }
    if to.exists() {
        std::fs::remove_dir_all(&to).map_err(|e| OpenError::io("remove", &to, e))?;
    }
    std::fs::rename(&from, &to).map_err(|e| OpenError::io("set aside", &from, e))
}
