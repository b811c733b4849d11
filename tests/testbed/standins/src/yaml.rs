//! YAML as PyYAML's safe loader reads it.
//!
//! The real exporter is a Python program. PyYAML resolves plain (unquoted)
//! scalars by the rules of YAML 1.1, where `no` is a boolean, `12:30` the
//! number 750 and `2001-01-01` a date; a YAML 1.2 library reads all three as
//! text. A config that means something else to Python must not pass here, so the
//! parser only delivers the structure and [`resolve`] decides on types.
//!
//! Deviations on purpose, each an error here: aliases, tags and duplicate keys
//! (the last one silently wins in Python), since no generated config needs them.

use std::collections::BTreeMap;
use std::fmt;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};

/// A value with the type that Python would see.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `None`.
    Null,
    /// `bool`.
    Bool(bool),
    /// `int`; the text as written, since only its being an integer matters mostly.
    Int(String),
    /// `float`, as written.
    Float(String),
    /// `date` or `datetime`, as written.
    Timestamp(String),
    /// `str`.
    Text(String),
    /// `list`.
    List(Vec<Value>),
    /// `dict` with text keys.
    Map(BTreeMap<String, Value>),
}

impl fmt::Display for Value {
    /// The value's Python type, for error messages: never the value, which may be a secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Timestamp(_) => "a date",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        })
    }
}

/// Why a text is not read.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// Not YAML at all.
    #[error("not YAML: {0}")]
    Syntax(#[from] ScanError),
    /// YAML that is not read here.
    #[error("line {line}: {what}")]
    Unsupported {
        /// Line in the text, from 1.
        line: usize,
        /// What was found, and what to write instead.
        what: String,
    },
}

/// Reads a text that holds one document.
///
/// # Errors
/// [`YamlError`], with the line.
pub fn parse(text: &str) -> Result<Value, YamlError> {
    let mut events = Events {
        parser: Parser::new_from_str(text),
        line: 1,
    };
    let mut document = None;
    loop {
        match events.next()? {
            Event::DocumentStart(..) if document.is_some() => {
                return Err(events.unsupported("a second document: write one only"));
            }
            Event::DocumentStart(..) => {
                let first = events.next()?;
                document = Some(events.node(first)?);
            }
            Event::StreamEnd => return Ok(document.unwrap_or(Value::Null)),
            _ => {}
        }
    }
}

struct Events<'text> {
    parser: Parser<'text, granit_parser::StrInput<'text>>,
    line: usize,
}

impl<'text> Events<'text> {
    /// The next event that is not a comment.
    fn next(&mut self) -> Result<Event<'text>, YamlError> {
        loop {
            match self.parser.next_event() {
                Some(event) => {
                    let (event, span): (Event<'text>, Span) = event?;
                    self.line = span.start.line();
                    if !matches!(event, Event::Comment(..)) {
                        return Ok(event);
                    }
                }
                None => return Ok(Event::StreamEnd),
            }
        }
    }

    fn unsupported(&self, what: impl Into<String>) -> YamlError {
        YamlError::Unsupported {
            line: self.line,
            what: what.into(),
        }
    }

    fn node(&mut self, event: Event<'text>) -> Result<Value, YamlError> {
        if event.tag().is_some() {
            return Err(self.unsupported("a tag: write the value without it"));
        }
        if let Some((text, style)) = event.scalar() {
            return match style {
                ScalarStyle::Plain => resolve(text)
                    .ok_or_else(|| self.unsupported(format!("unquoted {text}: quote it"))),
                _ => Ok(Value::Text(text.to_owned())),
            };
        }
        match event {
            Event::SequenceStart(..) => self.list(),
            Event::MappingStart(..) => self.map(),
            _ => Err(self.unsupported("an alias: write the value itself")),
        }
    }

    fn list(&mut self) -> Result<Value, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(Value::List(items)),
                event => items.push(self.node(event)?),
            }
        }
    }

    fn map(&mut self) -> Result<Value, YamlError> {
        let mut entries = BTreeMap::new();
        loop {
            let key = match self.next()? {
                Event::MappingEnd => return Ok(Value::Map(entries)),
                event => match self.node(event)? {
                    Value::Text(key) => key,
                    other => {
                        return Err(self.unsupported(format!("{other} as a key: quote it")));
                    }
                },
            };
            if entries.contains_key(&key) {
                return Err(self.unsupported(format!("the key {key} a second time")));
            }
            let event = self.next()?;
            let value = self.node(event)?;
            entries.insert(key, value);
        }
    }
}

/// The type of a plain scalar by PyYAML's resolvers, tried in its order; `None`
/// for the two texts that its safe loader can't construct (`=` and `<<`).
#[must_use]
pub fn resolve(text: &str) -> Option<Value> {
    const TRUE: [&str; 9] = [
        "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON",
    ];
    const FALSE: [&str; 9] = [
        "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF",
    ];
    Some(match text {
        "=" | "<<" => return None,
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        _ if TRUE.contains(&text) => Value::Bool(true),
        _ if FALSE.contains(&text) => Value::Bool(false),
        _ if is_float(text) => Value::Float(text.to_owned()),
        _ if is_int(text) => Value::Int(text.to_owned()),
        _ if is_timestamp(text) => Value::Timestamp(text.to_owned()),
        _ => Value::Text(text.to_owned()),
    })
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['-', '+']).unwrap_or(text)
}

fn digits_or_underscores(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'_')
}

/// `[0-9][0-9_]*`
fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit()) && digits_or_underscores(text)
}

/// `(:[0-5]?[0-9])+`, given what follows the first colon.
fn is_sexagesimal(parts: &str) -> bool {
    parts.split(':').all(|part| match part.as_bytes() {
        [digit] => digit.is_ascii_digit(),
        [tens, digit] => (b'0'..=b'5').contains(tens) && digit.is_ascii_digit(),
        _ => false,
    })
}

fn is_int(text: &str) -> bool {
    let body = unsigned(text);
    let all = |digits: &str, allowed: fn(u8) -> bool| {
        !digits.is_empty() && digits.bytes().all(|byte| byte == b'_' || allowed(byte))
    };
    if let Some(binary) = body.strip_prefix("0b") {
        return all(binary, |byte| matches!(byte, b'0' | b'1'));
    }
    if let Some(hexadecimal) = body.strip_prefix("0x") {
        return all(hexadecimal, |byte| byte.is_ascii_hexdigit());
    }
    if let Some(octal) = body.strip_prefix('0') {
        return octal.is_empty() || all(octal, |byte| (b'0'..=b'7').contains(&byte));
    }
    match body.split_once(':') {
        Some((first, rest)) => is_number(first) && is_sexagesimal(rest),
        None => is_number(body),
    }
}

fn is_float(text: &str) -> bool {
    let body = unsigned(text);
    if matches!(body, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let Some((whole, fraction)) = body.split_once('.') else {
        return false;
    };
    // A float's exponent needs its sign: `1.5e3` is text to PyYAML.
    let (fraction, exponent) = match fraction.split_once(['e', 'E']) {
        Some((fraction, exponent)) => (fraction, Some(exponent)),
        None => (fraction, None),
    };
    let exponent_is_valid = exponent.is_none_or(|exponent| {
        exponent.strip_prefix(['-', '+']).is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    });
    if !exponent_is_valid || !digits_or_underscores(fraction) {
        return false;
    }
    match whole.split_once(':') {
        Some((first, rest)) => exponent.is_none() && is_number(first) && is_sexagesimal(rest),
        None if whole.is_empty() => body == text && is_number(fraction),
        None => is_number(whole),
    }
}

/// A date, or a date and a time of day. Slightly wider than PyYAML's pattern:
/// what follows the time's hour isn't looked at.
fn is_timestamp(text: &str) -> bool {
    let (date, time) = match text.find(['T', 't', ' ', '\t']) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let numbers: Vec<&str> = date.split('-').collect();
    let [year, month, day] = numbers.as_slice() else {
        return false;
    };
    let digits = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let least = if time.is_empty() { 2 } else { 1 };
    digits(year, 4..=4)
        && digits(month, least..=2)
        && digits(day, least..=2)
        && (time.is_empty()
            || time
                .trim_start_matches(['T', 't', ' ', '\t'])
                .split_once(':')
                .is_some_and(|(hour, _)| digits(hour, 1..=2)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_have_the_types_that_python_sees() {
        for (kind, texts) in [
            ("null", "~ null Null NULL"),
            ("a boolean", "yes No ON off true FALSE"),
            (
                "an integer",
                "0 5 -17 017 0x1F 0b101 1_000 1__0 12:30:45 1:2 190:20:30 0_7 +1",
            ),
            (
                "a float",
                "1.5 -.5 .5 1. 1_0.5 1.5e+3 190:20:30.15 .inf -.INF .nan",
            ),
            (
                "a date",
                "2001-01-01 2001-1-1T0:00:00Z 2001-01-01T00:00:00.5+01:00",
            ),
            (
                "a string",
                "y n 1e3 1.5e3 0o17 09 08:99 4Gi 4G 1.2.3 localhost:8082 lab-1 a=b -nan 0x \
                 2001-1-1 52:54:00:12:34:56x yEs tRue",
            ),
        ] {
            for text in texts.split_whitespace() {
                // "-.5" has no float form in PyYAML: only an unsigned number may start with a dot.
                let expected = if text == "-.5" { "a string" } else { kind };
                assert_eq!(resolve(text).unwrap().to_string(), expected, "{text}");
            }
        }
        assert_eq!((resolve("="), resolve("<<")), (None, None));
    }

    #[test]
    fn quotes_keep_text_and_json_is_yaml() {
        let value = parse(r#"{"a": "no", "b": [1, null, '5'], "c": {"d": true}}"#).unwrap();
        let Value::Map(map) = value else {
            unreachable!("{value}")
        };
        assert_eq!(map.get("a"), Some(&Value::Text("no".into())));
        let list = Value::List(vec![
            Value::Int("1".into()),
            Value::Null,
            Value::Text("5".into()),
        ]);
        assert_eq!(map.get("b"), Some(&list));
    }

    #[test]
    fn blocks_and_comments_are_read() {
        let value = parse("# head\na: # why\n  b: |\n    one\n    two\nc:\n- 'x'\n").unwrap();
        let inner = BTreeMap::from([("b".to_owned(), Value::Text("one\ntwo\n".into()))]);
        let list = Value::List(vec![Value::Text("x".into())]);
        let outer = BTreeMap::from([("a".into(), Value::Map(inner)), ("c".into(), list)]);
        assert_eq!(value, Value::Map(outer));
        assert_eq!(parse("").unwrap(), Value::Null);
    }

    #[test]
    fn what_python_reads_differently_is_refused_with_its_line() {
        for (text, reason) in [
            ("a: 1\na: 2\n", "line 2: the key a a second time"),
            ("a: =\n", "line 1: unquoted =: quote it"),
            ("a: 1\nno: 2\n", "line 2: a boolean as a key: quote it"),
            (
                "a: &x 1\nb: *x\n",
                "line 2: an alias: write the value itself",
            ),
            ("a: !Thing 1\n", "line 1: a tag: write the value without it"),
            ("a: 1\n---\nb: 2\n", "a second document: write one only"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(matches!(parse("a: [1"), Err(YamlError::Syntax(_))));
    }
}
