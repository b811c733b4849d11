//! Where the journal is kept.

use super::CliError;
use super::args::DEFAULT_JOURNAL_DIR;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tracing::warn;

/// Finds a folder for the journal: the one that was asked for, else the usual one, else a temporary
/// one, since the operator's Deployment gives us no volume and no right to make the usual one.
///
/// # Errors
/// If the folder that was asked for, or every one, can't be written.
pub(super) fn choose(asked: Option<PathBuf>) -> Result<PathBuf, CliError> {
    choose_from(asked, Path::new(DEFAULT_JOURNAL_DIR), &std::env::temp_dir())
}

fn choose_from(
    asked: Option<PathBuf>,
    usual: &Path,
    temporary: &Path,
) -> Result<PathBuf, CliError> {
    let failed = |path: PathBuf| |source| CliError::JournalDir { path, source };
    if let Some(path) = asked {
        usable(&path).map_err(failed(path.clone()))?;
        return Ok(path);
    }
    let Err(reason) = usable(usual) else {
        return Ok(usual.to_owned());
    };
    let path = temporary.join("exporter-set-controller").join("journal");
    usable(&path).map_err(failed(path.clone()))?;
    warn!(
        "{}: {reason}; the journal is kept in {} and is lost with this Pod: the next one takes its state from \
         the cluster and the hosts, but the history is gone. Mount a volume there to keep it",
        usual.display(),
        path.display()
    );
    Ok(path)
}

/// Makes the folder, for us alone, and checks that it can be written.
fn usable(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let probe = path.join(format!(".writable-{}", std::process::id()));
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&probe)?;
    fs::remove_file(probe)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A path that nobody can make a folder of, root included.
    fn blocked(dir: &Path) -> PathBuf {
        let file = dir.join("file");
        fs::write(&file, "").unwrap();
        file.join("journal")
    }

    #[test]
    fn the_usual_folder_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let usual = dir.path().join("a/b");
        assert_eq!(choose_from(None, &usual, dir.path()).unwrap(), usual);
        assert_eq!(
            fs::read_dir(&usual).unwrap().count(),
            0,
            "the probe is gone"
        );
    }

    #[test]
    fn without_a_volume_a_temporary_one_will_do() {
        let dir = tempfile::tempdir().unwrap();
        let chosen = choose_from(None, &blocked(dir.path()), dir.path()).unwrap();
        assert!(
            chosen.is_dir() && chosen.starts_with(dir.path()),
            "{chosen:?}"
        );
    }

    #[test]
    fn what_was_asked_for_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let asked = blocked(dir.path());
        let error = choose_from(Some(asked.clone()), dir.path(), dir.path()).unwrap_err();
        assert!(
            error.to_string().contains(&asked.display().to_string()),
            "{error}"
        );
    }
}
