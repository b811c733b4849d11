//! The files of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A text of the repository.
pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every text file below `folder`, by its path below the repository.
pub(crate) fn texts(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    let below = |path: PathBuf| path.strip_prefix(root()).unwrap().to_owned();
    let mut texts: Vec<_> = found
        .into_iter()
        .filter_map(|path| Some((fs::read_to_string(&path).ok()?, path)))
        .map(|(text, path)| (below(path), text))
        .collect();
    texts.sort();
    assert!(!texts.is_empty(), "{folder} has no files");
    texts
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        // What is built or booted, and what belongs to tools; `.ci` is ours.
        let skipped = matches!(name.to_str(), Some("target" | "state" | "node_modules"))
            || (name.to_string_lossy().starts_with('.') && name != ".ci");
        let kind = entry.file_type().unwrap();
        if skipped || kind.is_symlink() {
            continue;
        }
        if kind.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
}

pub(crate) fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

/// Code that is only there for tests.
pub(crate) fn is_test(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.ends_with("tests") || stem == "fixtures" || path.iter().any(|part| part == "tests")
}

/// The crates that the controller depends on, as code names them.
pub(crate) fn dependencies() -> BTreeSet<String> {
    let manifest = read("Cargo.toml");
    let mut section = "";
    let mut names = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if matches!(section, "[dependencies]" | "[dev-dependencies]") {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            if !name.is_empty() && !name.starts_with('#') {
                names.insert(name.replace('-', "_"));
            }
        }
    }
    assert!(
        names.contains("tokio"),
        "no dependencies in Cargo.toml: {names:?}"
    );
    names
}
