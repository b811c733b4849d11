//! Log lines on standard error: JSON objects, or text for people.

use std::io::{self, Write as _};
use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::timestamp::rfc3339_millis;

/// Environment variable with fields for every line: `k=v`, separated by commas.
pub const FIELDS_VARIABLE: &str = "JUMPSTARTER_EXEC_LOG_FIELDS";

/// Writes log lines; cheap to share between threads.
#[derive(Debug, Clone)]
pub struct Log {
    debug: bool,
    json: bool,
    fields: Vec<(String, String)>,
}

impl Log {
    /// A log with the given switches; `fields` come with every line.
    #[must_use]
    pub fn new(debug: bool, json: bool, fields: Vec<(String, String)>) -> Self {
        Self {
            debug,
            json,
            fields,
        }
    }

    /// Something happened that an administrator may want to see.
    pub fn info(&self, message: &str) {
        self.write("info", message);
    }

    /// Something failed.
    pub fn error(&self, message: &str) {
        self.write("error", message);
    }

    /// Detail for developers, dropped unless asked for.
    pub fn debug(&self, message: &str) {
        if self.debug {
            self.write("debug", message);
        }
    }

    fn write(&self, level: &str, message: &str) {
        let line = self.line(level, message, SystemTime::now());
        // Nobody to tell when even standard error is gone.
        let _ = writeln!(io::stderr().lock(), "{line}");
    }

    fn line(&self, level: &str, message: &str, now: SystemTime) -> String {
        let ts = rfc3339_millis(now);
        if !self.json {
            return format!("{ts} {level} {message}");
        }
        let mut object = Map::new();
        let base = [("ts", ts.as_str()), ("level", level), ("msg", message)];
        let fields = self
            .fields
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        for (key, value) in base.into_iter().chain(fields) {
            object.entry(key).or_insert_with(|| Value::from(value));
        }
        object
            .entry("component")
            .or_insert_with(|| Value::from("exporter"));
        Value::Object(object).to_string()
    }
}

/// Reads `k=v,k=v`. Parts without `=` are skipped: a log field is no reason not to start.
#[must_use]
pub fn parse_fields(text: &str) -> Vec<(String, String)> {
    text.split(',')
        .filter_map(|part| part.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_carry_the_fields_of_the_environment() {
        let fields = parse_fields("component=exporter,exporter=x1,broken,namespace=lab");
        let line = Log::new(false, true, fields).line("info", "a \"b\"", SystemTime::UNIX_EPOCH);
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            object,
            serde_json::json!({
                "ts": "1970-01-01T00:00:00.000Z", "level": "info", "msg": "a \"b\"",
                "component": "exporter", "exporter": "x1", "namespace": "lab",
            })
        );
    }
}
