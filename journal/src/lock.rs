//! One process per journal: an advisory lock on `LOCK`, which names its holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::OpenError;

/// Holds the lock until it is dropped, or the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Takes the lock of the journal in `dir`.
pub(crate) fn acquire(dir: &Path) -> Result<Lock, OpenError> {
    let path = dir.join("LOCK");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|e| OpenError::io("open the lock file", &path, e))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The holder is a courtesy: an unreadable one must not hide that the lock is taken.
            let _ = file.read_to_string(&mut holder);
            return Err(OpenError::Locked {
                path,
                holder: describe(&holder),
            });
        }
        Err(TryLockError::Error(e)) => return Err(OpenError::io("lock", &path, e)),
    }
    let holder = format!("pid {} on {}\n", std::process::id(), host());
    file.set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| file.write_all(holder.as_bytes()))
        .map_err(|e| OpenError::io("write the lock file", &path, e))?;
    Ok(Lock { _file: file })
}

fn describe(holder: &str) -> String {
    let line = holder.lines().next().unwrap_or_default().trim();
    let line: String = line.chars().filter(|c| !c.is_control()).take(120).collect();
    if line.is_empty() {
        "an unnamed process".into()
    } else {
        line
    }
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_else(|| "an unknown host".into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_second_one_is_told_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = acquire(dir.path()).unwrap();
        let Err(OpenError::Locked { holder, .. }) = acquire(dir.path()) else {
            panic!("taken twice");
        };
        assert_eq!(holder, format!("pid {} on {}", std::process::id(), host()));
        drop(first);
        acquire(dir.path()).unwrap();
    }
}
