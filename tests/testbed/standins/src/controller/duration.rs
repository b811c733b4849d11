//! Durations in Go's syntax, as Kubernetes writes them: `90s`, `1h30m`, `1.5h`.

use std::time::Duration;

/// Reads a duration that is not negative.
///
/// # Errors
/// A text that shows what would be right.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: write one such as 90s, 1h30m or 300ms");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let is_unit = |character: char| !character.is_ascii_digit() && character != '.';
        let (number, tail) = rest.split_at(rest.find(is_unit).ok_or_else(wrong)?);
        let is_number = |character: char| character.is_ascii_digit() || character == '.';
        let (unit, tail) = tail.split_at(tail.find(is_number).unwrap_or(tail.len()));
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        total += Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        rest = tail;
    }
    if text.is_empty() {
        Err(wrong())
    } else {
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read() {
        for (text, millis) in [
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("1m0s", 60_000),
            ("300ms", 300),
            ("1.5s", 1_500),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "-5m", "5 minutes", "m", "1..s", "1d"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
