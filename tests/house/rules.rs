//! Which folder may reach for what.

use super::scan;
use std::collections::BTreeSet;
use std::path::Path;

/// What one folder of `src/` may mention.
pub(crate) struct Row {
    pub(crate) folder: &'static str,
    /// Beginnings of paths, of other crates and of this one (`crate::…`). What is not here is
    /// forbidden.
    may: &'static [&'static str],
    /// Beginnings or, after `…::`, ends of paths that are forbidden although they would fit.
    but_not: &'static [&'static str],
    /// Whether code that waits is forbidden, too.
    pure: bool,
}

/// What a pure folder has no use for: time, chance and everything outside the process.
const NO_OUTSIDE: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::ToSocketAddrs",
    "std::net::UdpSocket",
    "std::os",
    "std::process",
    "std::sync",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "…::Instant::now",
    "…::SystemTime::now",
];

/// The controller has its ports for these.
const PORTS_INSTEAD: &[&str] = &[
    "crate::host::SshHosts",
    "kube::Api",
    "kube::Client",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "tokio::fs",
    "tokio::net",
    "tokio::process",
    "tokio::time",
    "…::Instant::now",
    "…::SystemTime::now",
];

pub(crate) const TABLE: &[Row] = &[
    Row {
        folder: "api",
        may: &[
            "std",
            "k8s_openapi",
            "kube",
            "schemars",
            "serde",
            "serde_json",
            "serde_yaml",
            "thiserror",
        ],
        but_not: &[
            "kube::Api",
            "kube::Client",
            "kube::api",
            "kube::client",
            "kube::runtime",
        ],
        pure: false,
    },
    Row {
        folder: "instance",
        may: &["std", "serde", "thiserror"],
        but_not: NO_OUTSIDE,
        pure: true,
    },
    Row {
        folder: "pool",
        may: &["std", "k8s_openapi", "crate::api", "crate::instance"],
        but_not: NO_OUTSIDE,
        pure: true,
    },
    Row {
        folder: "render",
        may: &[
            "std",
            "base64",
            "serde",
            "serde_json",
            "sha2",
            "crate::api",
            "crate::instance",
        ],
        but_not: NO_OUTSIDE,
        pure: true,
    },
    Row {
        folder: "host",
        may: &[
            "std",
            "base64",
            "futures",
            "hmac",
            "russh",
            "serde",
            "serde_json",
            "sha1",
            "sha2",
            "thiserror",
            "tokio",
            "tracing",
            "zeroize",
            "crate::api",
            "crate::instance",
            "crate::render",
            "crate::controller::ports",
        ],
        but_not: &[],
        pure: false,
    },
    Row {
        folder: "cluster",
        may: &[
            "std",
            "futures",
            "getrandom",
            "k8s_openapi",
            "kube",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tracing",
            "zeroize",
            "crate::api",
            "crate::controller::ports",
            "crate::host::Fence",
        ],
        but_not: &[],
        pure: false,
    },
    Row {
        folder: "controller",
        may: &[
            "std",
            "futures",
            "journal",
            "k8s_openapi",
            "kube",
            "serde",
            "thiserror",
            "tokio",
            "tracing",
            "zeroize",
            "crate::api",
            "crate::host",
            "crate::instance",
            "crate::pool",
            "crate::render",
            "crate::telemetry::current_traceparent",
        ],
        but_not: PORTS_INSTEAD,
        pure: false,
    },
    Row {
        folder: "telemetry",
        may: &[
            "std",
            "http_body_util",
            "hyper",
            "hyper_util",
            "k8s_openapi::jiff",
            "opentelemetry",
            "opentelemetry_otlp",
            "opentelemetry_sdk",
            "serde_json",
            "thiserror",
            "tokio",
            "tracing",
            "tracing_opentelemetry",
            "tracing_subscriber",
        ],
        but_not: &[],
        pure: false,
    },
    Row {
        folder: "cli",
        may: &[
            "std",
            "clap",
            "getrandom",
            "journal",
            "k8s_openapi",
            "kube",
            "serde",
            "serde_json",
            "serde_yaml",
            "thiserror",
            "tokio",
            "tracing",
            "crate",
        ],
        but_not: &[],
        pure: false,
    },
];

/// A source of the controller: its path below the repository, and its text.
pub(crate) struct Source<'a> {
    pub(crate) path: &'a Path,
    pub(crate) text: &'a str,
}

/// What breaks the rules in one source, as `file:line: what`. `crates` are the names of all
/// dependencies.
pub(crate) fn broken(source: &Source<'_>, row: &Row, crates: &BTreeSet<String>) -> Vec<String> {
    let code = scan::code(source.text);
    let at = |line: usize| format!("{}:{line}", source.path.display());
    let mut found = Vec::new();
    for mention in scan::mentions(&code) {
        let Some(path) = resolved(source.path, &mention.path, crates) else {
            continue;
        };
        let own = format!("crate::{}", row.folder);
        let fits = row.may.iter().any(|may| begins(&path, may)) || begins(&path, &own);
        if !fits {
            found.push(format!(
                "{}: {}/ mentions {path}; it may know {}",
                at(mention.line),
                row.folder,
                row.may.join(", ")
            ));
        } else if let Some(rule) = row.but_not.iter().find(|rule| hits(&path, rule)) {
            let (at, folder) = (at(mention.line), row.folder);
            found.push(format!(
                "{at}: {folder}/ mentions {path}; {rule} is not for it"
            ));
        }
    }
    let waits = scan::words(&code)
        .into_iter()
        .filter(|(word, _)| matches!(*word, "async" | "await"));
    for (word, line) in waits.filter(|_| row.pure) {
        found.push(format!(
            "{}: {}/ is pure, and this is {word}",
            at(line),
            row.folder
        ));
    }
    found
}

/// A mention as a path from the root of a crate; `None` if it is of something near by.
fn resolved(file: &Path, path: &[String], crates: &BTreeSet<String>) -> Option<String> {
    let (first, rest) = path.split_first()?;
    let mut from = match first.as_str() {
        "crate" | "exporter_set_controller" => vec!["crate".to_owned()],
        "super" => {
            let mut module = module_of(file);
            module.pop();
            module
        }
        "self" => module_of(file),
        // By whatever name a clock is imported, its `now` is meant.
        "Instant" | "SystemTime" => return Some(format!("std::time::{}", path.join("::"))),
        name if crates.contains(name) || name == "std" => vec![name.to_owned()],
        _ => return None,
    };
    for segment in rest {
        if segment == "super" {
            from.pop();
        } else if segment != "self" {
            from.push(segment.clone());
        }
    }
    Some(from.join("::"))
}

/// `src/pool/scale.rs` is `crate::pool::scale`.
fn module_of(file: &Path) -> Vec<String> {
    let inside = file.strip_prefix("src").unwrap_or(file).with_extension("");
    let names = inside
        .iter()
        .map(|name| name.to_string_lossy().into_owned());
    let mut module = vec!["crate".to_owned()];
    module.extend(names.filter(|name| name != "mod" && name != "lib"));
    module
}

fn begins(path: &str, with: &str) -> bool {
    path.strip_prefix(with)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn hits(path: &str, rule: &str) -> bool {
    match rule.strip_prefix('…') {
        Some(end) => path.ends_with(end),
        None => begins(path, rule),
    }
}
