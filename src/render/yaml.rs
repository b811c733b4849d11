//! YAML that every reader takes for the same.
//!
//! The exporter reads its config by YAML 1.1, where `on`, `1_000`, `12:30:45` or `2001-01-01` are
//! no strings, and where a number like `1e3` is one. So every string is double-quoted, numbers are
//! written in the one form that all versions agree on, and whatever some reader takes for the end
//! of a line or refuses is escaped.

use serde_json::{Map, Number, Value};
use std::fmt::Write;

/// Writes a value as a YAML document, keys in the order of their bytes.
pub(super) fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_map(&mut out, map, 0),
        Value::Array(items) if !items.is_empty() => write_list(&mut out, items, 0),
        scalar => {
            write_scalar(&mut out, scalar);
            out.push('\n');
        }
    }
    out
}

fn indent(out: &mut String, depth: usize) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

fn write_map(out: &mut String, map: &Map<String, Value>, depth: usize) {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    for (key, value) in entries {
        indent(out, depth);
        // Readers look for the colon of a plain entry within 1024 characters only.
        let long = key.len() > 128;
        if long {
            out.push_str("? ");
        }
        write_key(out, key);
        if long {
            out.push('\n');
            indent(out, depth);
        }
        out.push(':');
        write_child(out, value, depth);
    }
}

fn write_list(out: &mut String, items: &[Value], depth: usize) {
    for item in items {
        indent(out, depth);
        out.push('-');
        write_child(out, item, depth);
    }
}

/// What follows a `:` or a `-`.
fn write_child(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            write_map(out, map, depth + 1);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            write_list(out, items, depth + 1);
        }
        scalar => {
            out.push(' ');
            write_scalar(out, scalar);
            out.push('\n');
        }
    }
}

fn write_scalar(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_quoted(out, text),
        // Only empty ones come here.
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

/// YAML 1.1 wants a dot in a fraction and a sign in an exponent.
fn write_number(out: &mut String, number: &Number) {
    let text = number.to_string();
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text.as_str(), None),
    };
    out.push_str(mantissa);
    if let Some(exponent) = exponent {
        if !mantissa.contains('.') {
            out.push_str(".0");
        }
        out.push('e');
        if !exponent.starts_with(['+', '-']) {
            out.push('+');
        }
        out.push_str(exponent);
    }
}

/// Keys of the schema stay plain, for people to read; any other is quoted.
fn write_key(out: &mut String, key: &str) {
    let plain = key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
        && !["y", "n", "yes", "no", "on", "off", "true", "false", "null"]
            .contains(&key.to_ascii_lowercase().as_str());
    if plain {
        out.push_str(key);
    } else {
        write_quoted(out, key);
    }
}

fn write_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}'
            | '\u{7f}'..='\u{a0}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                // Writing to a String can't fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_text_is_as_expected() {
        let value = json!({
            "b": [1, -2, 0.5, 1e30, 1.5e-7, true, null, [], {}, ["x"], { "k": "v" }],
            "a": { "on": "off", "OVMF_CODE.fd": "1_000", "12:30": "\u{85}\u{7f}\u{2028}\n\"\\" },
            "empty": "",
        });
        insta::assert_snapshot!(to_yaml(&value));
    }

    #[test]
    fn a_key_too_long_for_a_plain_entry_is_read_back() {
        let key = "k".repeat(3000);
        let value = json!({ "a": { key.clone(): { "b": [1] } }, key: 2 });
        assert_eq!(
            serde_yaml::from_str::<Value>(&to_yaml(&value)).unwrap(),
            value
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            any::<String>(),
            "[\\x00-\\x1f\\x7f-\\xa0\u{2028}\u{2029}\u{feff}\u{ffff}'\"\\\\#:,&*!|>%@`{}\\[\\] -]{0,8}",
            "yes|no|on|off|~|null|=|<<|1e3|0x10|0o17|012|12:30:45|2001-01-01|1_000|\\.inf|---|\\.\\.\\.",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>()
                .prop_filter("JSON has finite numbers only", |n| n.is_finite())
                .prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(text.clone(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in any_json()) {
            let text = to_yaml(&value);
            prop_assert_eq!(serde_yaml::from_str::<Value>(&text).unwrap(), value, "{}", text);
        }

        #[test]
        fn every_line_is_printable(value in any_json()) {
            let text = to_yaml(&value);
            prop_assert!(text.lines().all(|line| !line.contains(char::is_control)), "{:?}", text);
        }
    }
}
