//! Reading merged parameters: finds each value with the object that it stands in, and collects
//! everything that is wrong instead of stopping at the first.

use super::ParameterError;
use super::text::{clean, kind, nearest, show};
use serde_json::{Map, Value};

/// What one parameter may hold, checked by a function that says what is wrong and what to write.
pub(super) type Checked<T> = Result<T, (String, String)>;

/// Builds the error of a [`Checked`].
pub(super) fn wrong<T>(problem: impl Into<String>, remedy: impl Into<String>) -> Checked<T> {
    Err((problem.into(), remedy.into()))
}

/// Reads values out of merged parameters.
pub(super) struct Reader<'a> {
    set: Option<&'a Value>,
    merged: &'a Value,
    errors: Vec<ParameterError>,
}

impl<'a> Reader<'a> {
    /// A reader of `merged`, which came about by laying `set` over a class's parameters.
    pub(super) fn new(set: Option<&'a Value>, merged: &'a Value) -> Self {
        Self {
            set,
            merged,
            errors: Vec::new(),
        }
    }

    /// The value at `path`, checked; none if it is absent, `null`, or wrong (then noted).
    pub(super) fn read<T>(
        &mut self,
        path: &[&str],
        check: impl FnOnce(&Value) -> Checked<T>,
    ) -> Option<T> {
        let value = lookup(self.merged, path).filter(|value| !value.is_null())?;
        match check(value) {
            Ok(read) => Some(read),
            Err((problem, remedy)) => {
                self.note(path, show(value), problem, remedy);
                None
            }
        }
    }

    /// Notes that `path` must be given and is not (unless it can't be, for what it stands in is no map).
    pub(super) fn missing(&mut self, path: &[&str], remedy: &str) {
        let broken = (0..path.len()).any(|depth| {
            let above = path.iter().take(depth).copied().collect::<Vec<_>>();
            lookup(self.merged, &above).is_some_and(|v| !v.is_object() && !v.is_null())
        });
        if !broken && lookup(self.merged, path).is_none_or(Value::is_null) {
            self.errors.push(ParameterError {
                path: format!("spec.parameters.{}", path.join(".")),
                value: "nothing".to_owned(),
                problem: "is required, in the ExporterSet or in its VirtualTargetClass".to_owned(),
                remedy: remedy.to_owned(),
            });
        }
    }

    /// Notes every key of the map at `path` that is not among `known`, or that `path` is no map.
    pub(super) fn only_known(&mut self, path: &[&str], known: &[&str]) {
        let merged = self.merged;
        match lookup(merged, path) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => self.note_unknown(path, map, known),
            Some(other) => self.note(
                path,
                show(other),
                format!("is {}, must be a map", kind(other)),
                format!("write a map with some of the keys {}", known.join(", ")),
            ),
        }
    }

    fn note_unknown(&mut self, path: &[&str], map: &Map<String, Value>, known: &[&str]) {
        for (key, value) in map {
            if known.contains(&key.as_str()) {
                continue;
            }
            let remedy = match nearest(key, known) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("known keys are {}", known.join(", ")),
            };
            let mut path = path.to_vec();
            path.push(key);
            // The value isn't shown: who takes us for something else may well write a password.
            self.note(
                &path,
                kind(value).to_owned(),
                "is unknown".to_owned(),
                remedy,
            );
        }
    }

    fn note(&mut self, path: &[&str], value: String, problem: String, remedy: String) {
        let object = if stands_in(self.set, path) {
            "ExporterSet"
        } else {
            "VirtualTargetClass"
        };
        let keys: String = path.iter().map(|key| format!(".{}", clean(key))).collect();
        self.errors.push(ParameterError {
            path: format!("{object} spec.parameters{keys}"),
            value,
            problem,
            remedy,
        });
    }

    /// Everything noted, in the order of the paths.
    pub(super) fn finish(mut self) -> Vec<ParameterError> {
        self.errors.sort_by(|a, b| a.path.cmp(&b.path));
        self.errors
    }
}

/// Lays `over` over `base`: maps are merged key by key, everything else is replaced.
pub(super) fn deep_merge(base: &Value, over: &Value) -> Value {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            let mut merged = base.clone();
            for (key, value) in over {
                let value = match base.get(key) {
                    Some(below) => deep_merge(below, value),
                    None => value.clone(),
                };
                merged.insert(key.clone(), value);
            }
            Value::Object(merged)
        }
        (_, over) => over.clone(),
    }
}

fn lookup<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

/// Whether the value at `path` of the merged parameters was written in the set: it has that path,
/// or something that is no map on the way, which replaced the class's.
fn stands_in(set: Option<&Value>, path: &[&str]) -> bool {
    let Some(mut value) = set else { return false };
    for key in path {
        match value {
            Value::Object(map) => match map.get(*key) {
                Some(below) => value = below,
                None => return false,
            },
            _ => return true,
        }
    }
    true
}
