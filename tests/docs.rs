//! The documentation keeps up with the code.

#![allow(clippy::unwrap_used, clippy::panic)]

use exporter_set_controller::instance::{FailureClass, Retry};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn errors() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors")
}

/// The page's title has the class, and its first paragraph says who has to act.
#[test]
fn every_failure_class_has_its_page() {
    for class in FailureClass::ALL {
        let page = errors().join(format!("{}.md", class.code()));
        let text =
            fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        let title = format!("# {class}\n");
        assert!(
            text.starts_with(&title),
            "{} begins with {title:?}",
            page.display()
        );
        let first = text.split("\n\n").nth(1).unwrap_or_default();
        let opening = match class.retry() {
            Retry::Soon => "Tried again after 1 s",
            Retry::Seldom => "Somebody has to act.",
        };
        assert!(
            first.starts_with(opening),
            "{} says {opening:?}",
            page.display()
        );
    }
}

#[test]
fn the_index_has_every_page_and_no_other() {
    let index = fs::read_to_string(errors().join("README.md")).unwrap();
    let listed: Vec<&str> = index
        .lines()
        .filter(|line| line.starts_with("| [QS"))
        .collect();
    for (class, line) in FailureClass::ALL.iter().zip(&listed) {
        let (code, reason) = (class.code(), class.reason());
        let begin = format!("| [{code}]({code}.md) | {reason} |");
        assert!(line.starts_with(&begin), "{line} begins with {begin}");
    }
    assert_eq!(listed.len(), FailureClass::ALL.len());
    let pages: BTreeSet<String> = fs::read_dir(errors())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    let codes = FailureClass::ALL
        .iter()
        .map(|class| format!("{}.md", class.code()));
    assert_eq!(pages, codes.collect::<BTreeSet<_>>());
}
