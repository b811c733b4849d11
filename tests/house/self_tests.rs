//! The checks find what they are there for.

use super::document::{broken_guards, broken_map, has_test};
use super::rules::{Source, TABLE, broken};
use super::scan::{code, mentions};
use std::collections::BTreeSet;
use std::path::Path;

fn found_in(path: &str, text: &str) -> Vec<String> {
    let crates = ["kube", "tokio", "russh", "serde"].map(str::to_owned);
    let crates = BTreeSet::from(crates);
    let folder = Path::new(path).iter().nth(1).unwrap();
    let row = TABLE.iter().find(|row| folder == row.folder).unwrap();
    let source = Source {
        path: Path::new(path),
        text,
    };
    broken(&source, row, &crates)
}

#[test]
fn a_forbidden_path_is_found_in_every_spelling() {
    for (path, line) in [
        ("src/instance/decide.rs", "use tokio::sync::mpsc;"),
        ("src/instance/decide.rs", "use std::{fmt, fs};"),
        (
            "src/instance/decide.rs",
            "use std::{\n    fmt,\n    time::{Duration, Instant},\n};",
        ),
        (
            "src/instance/decide.rs",
            "fn f() { let _ = crate::api::PROVISIONER; }",
        ),
        (
            "src/instance/decide.rs",
            "fn f(_: super::super::api::Lease) {}",
        ),
        ("src/instance/mod.rs", "use super::api;"),
        ("src/instance/mod.rs", "pub(crate) async fn f() {}"),
        (
            "src/instance/mod.rs",
            "fn f() { std::thread::yield_now(); }",
        ),
        ("src/pool/scale.rs", "use kube::Client as Friend;"),
        (
            "src/pool/scale.rs",
            "use std::time::*; fn f() { SystemTime::now(); }",
        ),
        ("src/render/mod.rs", "use crate::host::Target;"),
        ("src/host/hosts.rs", "use crate::controller::Engine;"),
        (
            "src/host/hosts.rs",
            "use crate::{controller::{Engine, ports::Hosts}, instance::Step};",
        ),
        ("src/cluster/mod.rs", "use crate::host::SshHosts;"),
        ("src/cluster/mod.rs", "#[derive(russh::Nothing)] struct S;"),
        ("src/controller/actor.rs", "use crate::cli::main;"),
        (
            "src/controller/actor.rs",
            "use tokio::{sync::mpsc, time::sleep};",
        ),
        (
            "src/controller/actor.rs",
            "fn f() { let _ = std::time::Instant::now(); }",
        ),
        ("src/telemetry/mod.rs", "use crate::controller::Engine;"),
    ] {
        let found = found_in(path, line);
        assert_eq!(found.len(), 1, "{path}: {line}: {found:?}");
    }
}

#[test]
fn what_is_found_has_its_place() {
    let found = found_in(
        "src/instance/decide.rs",
        "//! Decides.\n\nuse std::{\n    fmt,\n    fs,\n};\n",
    );
    assert!(
        found[0].starts_with("src/instance/decide.rs:5: instance/ mentions std::fs"),
        "{found:?}"
    );
}

#[test]
fn what_is_no_code_of_ours_is_not_looked_at() {
    let text = r##"
        //! As `tokio::time` does it. use kube::Client;
        /* use russh::client; /* use tokio::fs; */ use kube::Api; */
        const A: &str = "use tokio::fs; \" std::fs::read";
        const B: &str = r#"std::fs::read "quoted" "#;
        const C: (char, char) = ('"', '\'');
        fn f<'a>(_: &'a str) -> &'a str { A }
        #[cfg(test)]
        #[allow(clippy::unwrap_used)]
        mod tests { use tokio::fs; fn g() { std::fs::read("x"); } }
        #[cfg(test)]
        mod fixtures;
        #[cfg(feature = "failpoints")]
        fn hit() { std::process::abort(); }
    "##;
    assert_eq!(found_in("src/instance/decide.rs", text), [""; 0]);
    let after = format!("{text}\nuse std::fs;");
    assert_eq!(
        found_in("src/instance/decide.rs", &after).len(),
        1,
        "the code after it is"
    );
}

#[test]
fn groups_are_taken_apart() {
    let text = code("use a::{b, c::{d as e, self}, f::*};\nlet x = g::h(i::<J>);");
    let paths: Vec<String> = mentions(&text)
        .iter()
        .map(|found| found.path.join("::"))
        .collect();
    assert_eq!(paths, ["a::b", "a::c::d", "a::c::self", "a::f", "g::h"]);
}

#[test]
fn a_guard_is_a_test_that_exists() {
    assert!(has_test("#[test]\n/// Why.\nfn it_holds() {}", "it_holds"));
    assert!(has_test(
        "#[tokio::test(start_paused = true)]\nasync fn it_holds() {}",
        "it_holds"
    ));
    assert!(!has_test("fn it_holds() {}", "it_holds"));
    assert!(!has_test("#[test]\nfn it_holds_too() {}", "it_holds"));
    let here = "`tests/house/self_tests.rs::a_guard_is_a_test_that_exists`";
    assert_eq!(
        broken_guards(&format!("| I1 | Something. | {here} |")),
        [""; 0]
    );
    for bad in [
        "",
        "| I1 | Something. | none |",
        "| I1 | Something. | `tests/house.rs` |",
        "| I1 | Something. | `tests/house.rs::no_such_test` |",
        "| I1 | Something. | `tests/no_such_file.rs::a_test` |",
    ] {
        assert_eq!(broken_guards(bad).len(), 1, "{bad}");
    }
    assert_eq!(
        broken_guards(&format!("| I2 | The first one. | {here} |")).len(),
        1
    );
}

#[test]
fn a_map_of_what_is_not_there_is_refused() {
    let found = broken_map("### `src/pool/`\n| `scale.rs` | x |\n| `no_such_file.rs` | x |\n");
    assert!(
        found.contains(&"src/pool/no_such_file.rs is in the map and not there".to_owned()),
        "{found:?}"
    );
    assert!(
        found.contains(&"src/host/ has no section in the map".to_owned()),
        "{found:?}"
    );
    assert!(
        !found
            .iter()
            .any(|line| line.contains("src/pool/scale.rs") || line.starts_with("src/pool/ has"))
    );
}
