//! The one place where text becomes a word of a shell script.

use crate::instance::{Failure, FailureClass};

/// Quotes `text` as exactly one word of a POSIX shell, whatever it holds.
///
/// # Errors
/// A NUL can't be part of a shell word; `what` names the culprit in the error.
pub(super) fn quote(what: &str, text: &str) -> Result<String, Failure> {
    if text.contains('\0') {
        return Err(Failure::new(
            FailureClass::InvalidParameters,
            format!("{what} contains a NUL character; remove it"),
        ));
    }
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::quote;
    use proptest::prelude::*;
    use std::process::Command;

    fn through_sh(text: &str) -> Vec<u8> {
        let script = format!("printf '%s' {}", quote("text", text).unwrap());
        let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_quoted_text_comes_out_of_a_real_shell_as_it_went_in(text in "[^\0]{0,200}") {
            prop_assert_eq!(through_sh(&text), text.as_bytes());
        }

        #[test]
        fn so_do_the_characters_that_mean_something_to_a_shell(text in r#"['"\\$`!*?~#;&|<>(){} \t\n=-]{0,60}"#) {
            prop_assert_eq!(through_sh(&text), text.as_bytes());
        }
    }

    #[test]
    fn a_nul_is_refused_by_name() {
        let failure = quote("the config", "a\0b").unwrap_err();
        assert_eq!(
            failure.message,
            "the config contains a NUL character; remove it"
        );
    }
}
