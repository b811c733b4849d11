//! One set: how many exporters it has and should have, and what its status says. Pure: no I/O, no
//! clock, no async.

mod census;
mod conditions;
mod scale;

pub use census::{Census, Member, Phase};
pub use conditions::{Stuck, Turn, Verdict, conditions};
pub use scale::{Clock, Demand, Scale, scale};

use crate::api::{LABEL_CLASS, LABEL_PROVISIONER, LABEL_SET, PROVISIONER};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;

/// The labels of an Exporter: those of the template, and over them which set, class and
/// provisioner it comes from, as far as these are valid label values.
#[must_use]
pub fn exporter_labels(
    template: &BTreeMap<String, String>,
    set: &str,
    class: &str,
) -> BTreeMap<String, String> {
    let mut labels = template.clone();
    for (key, value) in [
        (LABEL_SET, set),
        (LABEL_CLASS, class),
        (LABEL_PROVISIONER, PROVISIONER),
    ] {
        if is_label_value(value) {
            labels.insert(key.to_owned(), value.to_owned());
        } else {
            labels.remove(key);
        }
    }
    labels
}

fn is_label_value(value: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    value.len() <= 63
        && value.chars().all(inner)
        && ends(value.chars().next())
        && ends(value.chars().next_back())
}

/// Whether `selector` matches `labels`, as the API server would judge.
#[must_use]
pub fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let wanted = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    wanted
        .into_iter()
        .all(|(key, value)| labels.get(key) == Some(value))
        && expressions.into_iter().all(|expression| {
            let value = labels.get(&expression.key);
            let listed = || {
                value.is_some_and(|value| expression.values.iter().flatten().any(|v| v == value))
            };
            match expression.operator.as_str() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// `selector` as a string, as `kubectl get -l` takes it.
#[must_use]
pub fn selector_text(selector: &LabelSelector) -> String {
    let mut parts: Vec<String> = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    for expression in selector.match_expressions.iter().flatten() {
        let key = &expression.key;
        let mut values: Vec<&str> = expression
            .values
            .iter()
            .flatten()
            .map(String::as_str)
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        parts.push(match expression.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        });
    }
    parts.sort();
    parts.join(",")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn identity_goes_over_the_template() {
        let template = labels(&[
            ("board", "a"),
            (LABEL_SET, "another"),
            (LABEL_CLASS, "another"),
        ]);
        let got = exporter_labels(&template, "pool", "class");
        let want = [
            ("board", "a"),
            (LABEL_SET, "pool"),
            (LABEL_CLASS, "class"),
            (LABEL_PROVISIONER, PROVISIONER),
        ];
        assert_eq!(got, labels(&want));
    }

    #[test]
    fn a_name_that_is_no_label_value_is_left_out() {
        let long = "x".repeat(64);
        let got = exporter_labels(&labels(&[(LABEL_SET, "another")]), &long, "class");
        assert_eq!(got.get(LABEL_SET), None);
    }

    #[test]
    fn selectors() {
        let expression = |operator: &str, values: &[&str]| LabelSelector {
            match_labels: None,
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "arch".into(),
                operator: operator.into(),
                values: Some(values.iter().map(|v| (*v).to_owned()).collect()),
            }]),
        };
        let cases = [
            (
                expression("In", &["aarch64", "arm"]),
                true,
                "arch in (aarch64,arm)",
            ),
            (expression("In", &["arm"]), false, "arch in (arm)"),
            (expression("NotIn", &["arm"]), true, "arch notin (arm)"),
            (
                expression("NotIn", &["aarch64"]),
                false,
                "arch notin (aarch64)",
            ),
            (expression("Exists", &[]), true, "arch"),
            (expression("DoesNotExist", &[]), false, "!arch"),
            (expression("Sometimes", &[]), false, "arch"),
            (LabelSelector::default(), true, ""),
        ];
        for (selector, matches, text) in cases {
            assert_eq!(
                selects(&selector, &labels(&[("arch", "aarch64")])),
                matches,
                "{text}"
            );
            assert_eq!(selector_text(&selector), text);
        }
    }
}
