//! Every write to the segment layer goes through [`Disk`], so that tests can record the writes and
//! syncs, replay them up to any power cut, and let any of them fail.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file with the path that it was opened by.
#[derive(Debug)]
pub(crate) struct DiskFile {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
}

/// What the segment layer asks of a file system.
pub(crate) trait Disk: Send + Sync + Debug {
    /// Creates a file that must not exist yet.
    fn create(&self, path: &Path) -> io::Result<DiskFile>;
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<DiskFile>;
    fn write_at(&self, file: &DiskFile, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// `fdatasync`: the data and the length are on the disk when it returns.
    fn sync(&self, file: &DiskFile) -> io::Result<()>;
    fn truncate(&self, file: &DiskFile, length: u64) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl RealDisk {
    /// Opens a file that nobody wants to write to here.
    pub(crate) fn open_to_read(path: &Path) -> io::Result<DiskFile> {
        let file = File::open(path)?;
        Ok(DiskFile {
            file,
            path: path.into(),
        })
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<DiskFile> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        Ok(DiskFile {
            file,
            path: path.into(),
        })
    }

    fn open(&self, path: &Path) -> io::Result<DiskFile> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(DiskFile {
            file,
            path: path.into(),
        })
    }

    fn write_at(&self, file: &DiskFile, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.file.write_all_at(bytes, offset)
    }

    fn sync(&self, file: &DiskFile) -> io::Result<()> {
        file.file.sync_data()
    }

    fn truncate(&self, file: &DiskFile, length: u64) -> io::Result<()> {
        file.file.set_len(length)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// The suffix of files that are not complete yet. Any that `open` finds are remains of a crash.
pub(crate) const UNFINISHED: &str = "tmp";

/// Why a whole file was not put in place.
#[derive(Debug)]
pub(crate) enum WholeError {
    /// Everything is as it was.
    Unchanged(io::Error),
    /// The file is in place, but a power cut may undo that.
    Unsettled(io::Error),
}

impl From<WholeError> for io::Error {
    fn from(error: WholeError) -> Self {
        let (WholeError::Unchanged(error) | WholeError::Unsettled(error)) = error;
        error
    }
}

/// Puts a whole file in place: after a crash it is there with all of `bytes`, or not at all.
pub(crate) fn write_whole(
    disk: &dyn Disk,
    path: &Path,
    bytes: &[u8],
) -> Result<DiskFile, WholeError> {
    let unfinished = path.with_extension(UNFINISHED);
    let written = write_synced(disk, &unfinished, bytes)
        .and_then(|file| disk.rename(&unfinished, path).map(|()| file));
    let file = written.map_err(|error| {
        // What is left behind would only be in the way of the next attempt.
        let _ = disk.remove(&unfinished);
        WholeError::Unchanged(error)
    })?;
    let folder = path.parent().unwrap_or(Path::new("."));
    disk.sync_dir(folder).map_err(WholeError::Unsettled)?;
    Ok(DiskFile {
        path: path.into(),
        ..file
    })
}

fn write_synced(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<DiskFile> {
    let file = disk.create(path)?;
    disk.write_at(&file, bytes, 0)?;
    disk.sync(&file)?;
    Ok(file)
}

/// Creates a folder and makes its entry in the parent durable.
pub(crate) fn ensure_folder(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path)?;
    disk.sync_dir(path)?;
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => disk.sync_dir(Path::new(".")),
        Some(parent) => disk.sync_dir(parent),
        None => Ok(()),
    }
}

/// Removes the unfinished files in a folder and returns their paths.
pub(crate) fn remove_unfinished(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == UNFINISHED) {
            disk.remove(&path)?;
            removed.push(path);
        }
    }
    removed.sort();
    Ok(removed)
}
