//! Go's way to write flags, brought into clap's.

use std::ffi::OsString;

/// Words that are for the program itself and not for `run`.
const OF_THE_PROGRAM: [&str; 5] = ["-h", "--help", "-help", "-V", "--version"];

/// Inserts `run` where a flag, or nothing, stands in place of a subcommand, and gives `-flag` of `run` its
/// second dash. Other subcommands are left alone: they have flags of one letter.
pub(super) fn normalize(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words = arguments.into_iter();
    let mut out: Vec<OsString> = words.next().into_iter().collect();
    let mut words = words.peekable();
    match words.peek().map(|word| word.to_string_lossy().into_owned()) {
        Some(first) if OF_THE_PROGRAM.contains(&first.as_str()) => {}
        Some(first) if first == "run" => out.extend(words.next()),
        Some(first) if !first.starts_with('-') => {
            out.extend(words);
            return out;
        }
        _ => out.push("run".into()),
    }
    out.extend(words.map(two_dashes));
    out
}

fn two_dashes(word: OsString) -> OsString {
    match word.to_str().and_then(|text| text.strip_prefix('-')) {
        // `-h` is a short flag in Go, too, and a value can be a negative number.
        Some(name) if name.len() > 1 && name.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            format!("--{name}").into()
        }
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(line: &str) -> String {
        let words = normalize(line.split_whitespace().map(OsString::from));
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn flags_become_those_of_run_and_other_subcommands_are_left_alone() {
        let table = [
            ("x", "x run"),
            (
                "x -provisioner=p --leader-elect -v 1",
                "x run --provisioner=p --leader-elect -v 1",
            ),
            ("x run -kubeconfig k", "x run --kubeconfig k"),
            ("x crds -output yaml", "x crds -output yaml"),
            ("x --help", "x --help"),
            ("x -help", "x --help"),
            ("x -h", "x -h"),
            ("x run -h", "x run -h"),
            ("x -port -1", "x run --port -1"),
        ];
        for (given, expected) in table {
            assert_eq!(normalized(given), expected);
        }
    }
}
