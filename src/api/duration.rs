//! Durations as Go writes them, which is how Kubernetes carries them in JSON.

use std::time::Duration;
use thiserror::Error;

/// A text that is not a duration we can use.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text:?} is not a duration: {problem}; write one like 90s, 5m or 1h30m")]
pub struct InvalidDuration {
    /// What was given, shortened.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// The longest that Go can express: an `i64` of nanoseconds.
const MAX_NANOS: u128 = i64::MAX as u128;

/// Reads a duration in the syntax of Go's `time.ParseDuration`: decimal numbers, each with a unit
/// (`ns`, `us`/`µs`, `ms`, `s`, `m`, `h`), e.g. `1h30m` or `1.5s`; `0` needs no unit. What is
/// finer than a nanosecond is cut off.
///
/// # Errors
/// If the text is not in that syntax, is negative, or exceeds what Go can express (about 292 years).
pub fn parse_go_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let refuse = |problem| InvalidDuration {
        text: text.chars().take(40).collect(),
        problem,
    };
    if text.starts_with('-') {
        return Err(refuse("it is negative"));
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(refuse("it is empty"));
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (nanos, after) = leading_term(rest).map_err(refuse)?;
        total = total.saturating_add(nanos);
        if total > MAX_NANOS {
            return Err(refuse("it is too long"));
        }
        rest = after;
    }
    u64::try_from(total)
        .map(Duration::from_nanos)
        .map_err(|_| refuse("it is too long"))
}

/// Reads one number with its unit; gives nanoseconds and what follows.
fn leading_term(text: &str) -> Result<(u128, &str), &'static str> {
    let (whole, rest) = leading_digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => leading_digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err("a number is missing");
    }
    let end = rest
        .find(|c: char| c.is_ascii_digit() || c == '.')
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let unit: u128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "" => return Err("a unit is missing"),
        _ => return Err("a unit is unknown"),
    };
    // Longer numbers than these are too long in every unit; a fraction's 19th digit is worth
    // less than a nanosecond in every unit.
    let whole: u128 = match whole.trim_start_matches('0') {
        "" => 0,
        digits if digits.len() > 19 => return Err("it is too long"),
        digits => digits.parse().map_err(|_| "a number is missing")?,
    };
    let (mut part, mut denominator) = (0_u128, 1_u128);
    for digit in fraction.bytes().take(18) {
        part = part * 10 + u128::from(digit - b'0');
        denominator *= 10;
    }
    let nanos = whole.saturating_mul(unit) + part * unit / denominator;
    Ok((nanos, rest))
}

fn leading_digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("0", 0),
            ("+0", 0),
            ("0s", 0),
            ("5m", 300_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("300ms", 300_000_000),
            ("1.5s", 1_500_000_000),
            ("1.s", 1_000_000_000),
            (".5s", 500_000_000),
            ("+5s", 5_000_000_000),
            ("1us1µs1μs", 3_000),
            ("1h1m1s1ms1us1ns", 3_661_001_001_001),
            ("0.3333333333333333333h", 1_200_000_000_000 - 1),
            ("0.000000000000000000001s", 0),
            ("9223372036854775807ns", 9_223_372_036_854_775_807),
            ("0000000000000000000000001s", 1_000_000_000),
        ] {
            assert_eq!(
                parse_go_duration(text).unwrap(),
                Duration::from_nanos(nanos),
                "{text}"
            );
        }
    }

    #[test]
    fn refuses_what_go_refuses_and_the_negative() {
        for (text, problem) in [
            ("", "empty"),
            ("+", "empty"),
            ("-5m", "negative"),
            ("-0", "negative"),
            ("5", "a unit is missing"),
            ("5 minutes", "unknown"),
            ("5min", "unknown"),
            ("1d", "unknown"),
            ("m", "a number is missing"),
            (".s", "a number is missing"),
            ("1..5s", "a unit is missing"),
            (" 5m", "a number is missing"),
            ("5m ", "unknown"),
            ("9223372036854775808ns", "too long"),
            ("3000000h", "too long"),
            ("99999999999999999999999h", "too long"),
        ] {
            let error = parse_go_duration(text).unwrap_err();
            assert!(error.problem.contains(problem), "{text}: {error}");
        }
    }

    /// Writes a duration as Go does, for times of a second and more.
    fn as_go(total: Duration) -> String {
        let seconds = total.as_secs();
        let fraction = format!("{:09}", total.subsec_nanos());
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() { "" } else { "." };
        format!(
            "{}h{}m{}{dot}{fraction}s",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        )
    }

    proptest! {
        #[test]
        fn round_trips(nanos in 0..=i64::MAX as u64) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_go_duration(&as_go(duration)).unwrap(), duration);
        }

        #[test]
        fn never_panics_and_never_exceeds_gos_range(text in "[-+0-9.a-zµ ]{0,40}|\\PC{0,20}") {
            if let Ok(duration) = parse_go_duration(&text) {
                prop_assert!(duration.as_nanos() <= MAX_NANOS);
            }
        }

        #[test]
        fn terms_add_up(a in 0u32..10_000, b in 0u32..10_000) {
            let sum = parse_go_duration(&format!("{a}m{b}s")).unwrap();
            prop_assert_eq!(sum.as_secs(), u64::from(a) * 60 + u64::from(b));
        }
    }
}
