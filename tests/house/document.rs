//! ARCHITECTURE.md: its invariants with the tests that guard them, and its code map.

use super::files::{self, is_rust};
use std::collections::BTreeSet;

/// Rows `| I7 | … | guards |`, where a guard is `` `path/to/file.rs::function` ``.
pub(crate) fn broken_guards(document: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut number = 0;
    for line in document.lines().filter(|line| line.starts_with("| I")) {
        number += 1;
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells.first() != Some(&format!("I{number}").as_str()) {
            found.push(format!("I{number} is expected here: {line}"));
        }
        let guards: Vec<&str> = quoted(cells.last().unwrap_or(&"")).collect();
        if guards.is_empty() {
            found.push(format!("I{number} names no test"));
        }
        for guard in guards {
            found.extend(guard_problem(guard).map(|problem| format!("I{number}: {problem}")));
        }
    }
    if number == 0 {
        found.push("there are no invariants".to_owned());
    }
    found
}

fn guard_problem(guard: &str) -> Option<String> {
    let Some((path, function)) = guard.split_once("::") else {
        return Some(format!("{guard} is not file::function"));
    };
    match std::fs::read_to_string(files::root().join(path)) {
        Ok(text) if has_test(&text, function) => None,
        Ok(_) => Some(format!("{path} has no test {function}")),
        Err(error) => Some(format!("{path}: {error}")),
    }
}

/// Whether `text` has a function of that name under an attribute that makes it a test.
pub(crate) fn has_test(text: &str, function: &str) -> bool {
    let head = format!("fn {function}(");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(at, line)| {
        let above = lines[..at].iter().rev();
        let mut above = above.take_while(|line| line.starts_with("#[") || line.starts_with("///"));
        line.contains(&head)
            && above.any(|a| a.starts_with("#[test]") || a.starts_with("#[tokio::test"))
    })
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A section `### `folder/`` has a table whose first column names files of that folder. Every folder
/// with sources has such a section, and every file that is named exists.
pub(crate) fn broken_map(document: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = BTreeSet::new();
    let mut folder = None;
    for line in document.lines() {
        if line.starts_with('#') {
            folder = line
                .strip_prefix("### ")
                .and_then(|title| quoted(title).next());
            folders.extend(folder.map(|folder| folder.trim_end_matches('/').to_owned()));
        }
        let (Some(folder), Some(row)) = (folder, line.strip_prefix("| `")) else {
            continue;
        };
        let first = row.split(" | ").next().unwrap_or_default();
        for name in quoted(&format!("`{first}")) {
            if !files::root().join(folder).join(name).exists() {
                found.push(format!("{folder}{name} is in the map and not there"));
            }
        }
    }
    let sources = ["src", "journal/src"].into_iter().flat_map(files::texts);
    let parents = sources
        .filter(|(path, _)| is_rust(path))
        .filter_map(|(path, _)| {
            let mut parts = path.iter().map(|part| part.to_string_lossy().into_owned());
            match (parts.next()?.as_str(), parts.next()?, parts.next()) {
                ("src", second, Some(_)) => Some(format!("src/{second}")),
                ("journal", _, _) => Some("journal".to_owned()),
                _ => None,
            }
        });
    let missing = parents.collect::<BTreeSet<_>>();
    let missing = missing.difference(&folders);
    found.extend(missing.map(|folder| format!("{folder}/ has no section in the map")));
    found
}
