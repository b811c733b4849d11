//! Showing what a user wrote, in an error.

use serde_json::Value;

/// How much of a value is shown.
const SHOWN: usize = 60;

/// A value as JSON, shortened, and with everything escaped that a terminal or a log might act on.
pub(super) fn show(value: &Value) -> String {
    let text = value.to_string();
    if text.contains("PRIVATE KEY") {
        return "a private key, not shown".to_owned();
    }
    clean(&text)
}

/// A text, shortened and escaped like [`show`].
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == SHOWN {
            out.push('…');
            break;
        }
        if unprintable(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Control characters, and those that change the direction or the look of the text around them.
fn unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// What kind of value it is, for those that are not shown.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// The known key that `key` was most likely meant to be: at most a third of its letters differ.
pub(super) fn nearest<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| -> Vec<char> {
        text.chars()
            .take(40)
            .filter(|c| !matches!(c, '_' | '-'))
            .flat_map(char::to_lowercase)
            .collect()
    };
    let key = plain(key);
    known
        .iter()
        .map(|&candidate| (distance(&key, &plain(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= 1.max(candidate.len() / 3))
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters have to be put in, left out or changed to turn `a` into `b`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        let mut left = i + 1;
        for ((y, up_left), up) in b.iter().zip(&row).zip(row.iter().skip(1)) {
            left = (up_left + usize::from(x != y)).min(up + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_shortened_and_escaped() {
        assert_eq!(
            show(&json!("a\u{1b}[31m\u{85}\u{202e}b")),
            "\"a\\u001b[31m\\u{85}\\u{202e}b\""
        );
        assert!(!show(&json!(["-----BEGIN PRIVATE KEY-----\nMIIE"])).contains("MII"));
        let long = show(&json!("x".repeat(1000)));
        assert!(long.chars().count() == SHOWN + 1 && long.ends_with('…'));
    }

    #[test]
    fn the_nearest_key_is_a_near_one() {
        let known = ["kvm", "devices", "host_network"];
        assert_eq!(nearest("hostNetwork", &known), Some("host_network"));
        assert_eq!(nearest("device", &known), Some("devices"));
        assert_eq!(nearest("KVM", &known), Some("kvm"));
        assert_eq!(nearest("memory", &known), None);
        assert_eq!(nearest("", &known), None);
    }

    #[test]
    fn the_distance_counts_edits() {
        let d = |a: &str, b: &str| {
            distance(
                &a.chars().collect::<Vec<_>>(),
                &b.chars().collect::<Vec<_>>(),
            )
        };
        assert_eq!(d("kitten", "sitting"), 3);
        assert_eq!(d("", "abc"), 3);
        assert_eq!(d("same", "same"), 0);
    }
}
