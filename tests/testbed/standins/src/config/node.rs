//! A value and the way to it: what schema checks are written in.

use std::ops::RangeInclusive;

use crate::yaml::{Value, YamlError};

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text can't be read, or not as Python would.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// A field is missing or wrong.
    #[error("{path}: {problem}")]
    Field {
        /// Names from the root, joined by dots.
        path: String,
        /// What is wrong and what would be right.
        problem: String,
    },
}

/// A value inside the configuration.
#[derive(Debug, Clone)]
pub(super) struct Node<'value> {
    path: String,
    value: &'value Value,
}

impl<'value> Node<'value> {
    pub(super) fn root(value: &'value Value) -> Self {
        Self {
            path: String::new(),
            value,
        }
    }

    pub(super) fn value(&self) -> &'value Value {
        self.value
    }

    /// An error about this value.
    pub(super) fn wrong(&self, problem: impl Into<String>) -> ConfigError {
        let path = if self.path.is_empty() {
            "the file".into()
        } else {
            self.path.clone()
        };
        ConfigError::Field {
            path,
            problem: problem.into(),
        }
    }

    fn expected(&self, what: &str) -> ConfigError {
        self.wrong(format!("must be {what}, is {}", self.value))
    }

    fn join(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// A field that must be there.
    pub(super) fn field(&self, name: &str) -> Result<Self, ConfigError> {
        self.optional(name)?.ok_or_else(|| ConfigError::Field {
            path: self.join(name),
            problem: "is required".into(),
        })
    }

    /// A field that may be absent. A `null` is a value, not an absence.
    pub(super) fn optional(&self, name: &str) -> Result<Option<Self>, ConfigError> {
        let Value::Map(map) = self.value else {
            return Err(self.expected("a map"));
        };
        Ok(map.get(name).map(|value| Self {
            path: self.join(name),
            value,
        }))
    }

    /// The entries of a map.
    pub(super) fn entries(&self) -> Result<Vec<(&'value str, Self)>, ConfigError> {
        let Value::Map(map) = self.value else {
            return Err(self.expected("a map"));
        };
        let entry = |(name, value): (&'value String, &'value Value)| {
            (
                name.as_str(),
                Self {
                    path: self.join(name),
                    value,
                },
            )
        };
        Ok(map.iter().map(entry).collect())
    }

    pub(super) fn text(&self) -> Result<&'value str, ConfigError> {
        match self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.expected("a string")),
        }
    }

    pub(super) fn literal(&self, expected: &str) -> Result<(), ConfigError> {
        match self.text()? {
            text if text == expected => Ok(()),
            _ => Err(self.wrong(format!("must be {expected}"))),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, ConfigError> {
        match self.value {
            Value::Bool(value) => Ok(*value),
            _ => Err(self.expected("a boolean")),
        }
    }

    pub(super) fn integer(&self, range: RangeInclusive<u64>) -> Result<u64, ConfigError> {
        let Value::Int(text) = self.value else {
            return Err(self.expected("an integer"));
        };
        match text.parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => Err(self.wrong(format!(
                "must be a decimal integer from {} to {}",
                range.start(),
                range.end()
            ))),
        }
    }
}
