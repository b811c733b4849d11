//! Moving a damaged store out of the way, without losing anything of it.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Kind;
use crate::date;
use crate::disk::{Disk, UNFINISHED};
use crate::error::{Damage, OpenError};
use crate::report::SetAside;
use crate::store::Layout;

/// Exports what is readable and moves everything of the store into a dated folder.
pub(super) fn set_aside(
    disk: &dyn Disk,
    layout: &Layout,
    kind: &Kind<'_>,
    damage: Damage,
    at: SystemTime,
) -> Result<SetAside, OpenError> {
    let folder = free_name(&layout.root, at);
    let export = folder.with_extension("jsonl");
    let records = write_export(&export, layout, kind)
        .map_err(|e| OpenError::io("export what is readable to", &export, e))?;
    fs::create_dir(&folder).map_err(|e| OpenError::io("create the folder", &folder, e))?;
    // The segments first: what is left without them is recognised as what is left of a damaged store.
    for from in [
        layout.segments(),
        layout.head(),
        layout.index(),
        layout.broken_index(),
    ] {
        let to = folder.join(from.file_name().unwrap_or_default());
        if from.exists() {
            fs::rename(&from, &to).map_err(|e| OpenError::io("set aside", &from, e))?;
        }
    }
    disk.sync_dir(&folder)
        .and_then(|()| disk.sync_dir(&layout.root))
        .map_err(|e| OpenError::io("sync", &folder, e))?;
    tracing::error!(%damage, folder = %folder.display(), records, "damaged journal set aside");
    Ok(SetAside {
        damage,
        folder,
        export,
        records,
    })
}

/// `damaged-20261130T051234Z`, or with a number behind it if there is one already.
fn free_name(root: &Path, at: SystemTime) -> PathBuf {
    let name = format!("damaged-{}", date::compact(at));
    let mut path = root.join(&name);
    let mut number = 1;
    while path.exists() || path.with_extension("jsonl").exists() {
        number += 1;
        path = root.join(format!("{name}-{number}"));
    }
    path
}

fn write_export(path: &Path, layout: &Layout, kind: &Kind<'_>) -> io::Result<u64> {
    let unfinished = path.with_extension(UNFINISHED);
    let mut output = BufWriter::new(File::create(&unfinished)?);
    let exported = (kind.salvage)(&layout.segments(), &mut output)?;
    output
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()?;
    fs::rename(&unfinished, path)?;
    Ok(exported.records)
}
