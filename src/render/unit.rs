//! Text of a quadlet, which is a systemd unit with sections of Podman's.

use std::fmt::Write;

/// A quadlet on its way.
///
/// Values that come from users are checked where they are read; this is the second fence: no value
/// can end its line, and systemd expands nothing in it.
#[derive(Default)]
pub(super) struct Unit {
    text: String,
}

impl Unit {
    /// Begins a section.
    pub(super) fn section(&mut self, name: &str) -> &mut Self {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.line(&format!("[{name}]"))
    }

    /// Adds `key=value`, with everything in the value taken literally.
    pub(super) fn set(&mut self, key: &str, value: &str) -> &mut Self {
        let value = literal(value);
        self.line(&format!("{key}={value}"))
    }

    /// Adds `key=value` as it is: a value of our own, written for systemd.
    pub(super) fn raw(&mut self, key: &str, value: &str) -> &mut Self {
        self.line(&format!("{key}={value}"))
    }

    fn line(&mut self, line: &str) -> &mut Self {
        // Writing to a String can't fail.
        let _ = writeln!(self.text, "{line}");
        self
    }

    /// The whole text.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// `%` would begin a specifier, a control character end the line, a last backslash join it to the
/// next one, and quotes and backslashes within change the words that Podman sees.
fn literal(value: &str) -> String {
    value
        .trim()
        .chars()
        .filter(|c| !c.is_control() && !matches!(c, '"' | '\'' | '\\'))
        .fold(String::new(), |mut out, c| {
            out.push(c);
            if c == '%' {
                out.push('%');
            }
            out
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sections_are_set_apart() {
        let mut unit = Unit::default();
        unit.section("Unit").set("Description", "100 % of \"x\"");
        unit.section("Service")
            .raw("ExecStartPre", "/bin/test -n \"$$x\"");
        assert_eq!(
            unit.finish(),
            "[Unit]\nDescription=100 %% of x\n\n[Service]\nExecStartPre=/bin/test -n \"$$x\"\n"
        );
    }

    proptest! {
        #[test]
        fn a_value_is_one_line_and_no_specifier(value in any::<String>()) {
            let mut unit = Unit::default();
            unit.section("Container").set("Image", &value);
            let text = unit.finish();
            let lines: Vec<&str> = text.split('\n').collect();
            prop_assert_eq!(lines.len(), 3, "{:?}", text);
            let entry = text.lines().nth(1).unwrap_or_default();
            prop_assert!(entry.starts_with("Image=") && !entry.ends_with('\\'));
            prop_assert!(!entry.replace("%%", "").contains('%'));
        }
    }
}
