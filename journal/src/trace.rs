//! W3C trace context, in the two forms the journal needs: its text and its 25 bytes.

use std::fmt;
use std::str::FromStr;

use crate::hash::parse_hex;

/// A validated W3C `traceparent` of version `00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(crate) trace: [u8; 16],
    pub(crate) parent: [u8; 8],
    pub(crate) flags: u8,
}

/// A `traceparent` that the W3C recommendation's version `00` does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "context.traceparent `{0}` is not valid: it takes `00-<32 hex>-<16 hex>-<2 hex>` in lower case, with ids that are not all zero"
)]
pub struct InvalidTraceParent(String);

impl FromStr for TraceParent {
    type Err = InvalidTraceParent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceParent> {
        parse(text).ok_or_else(|| InvalidTraceParent(text.chars().take(80).collect()))
    }
}

fn parse(text: &str) -> Option<TraceParent> {
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        return None;
    }
    let mut parts = text.split('-');
    if parts.next() != Some("00") {
        return None;
    }
    let trace = parse_hex::<16>(parts.next()?)?;
    let parent = parse_hex::<8>(parts.next()?)?;
    let [flags] = parse_hex::<1>(parts.next()?)?;
    let ends = parts.next().is_none();
    let context = TraceParent {
        trace,
        parent,
        flags,
    };
    (ends && context.has_ids()).then_some(context)
}

impl TraceParent {
    /// All-zero ids are invalid by the recommendation.
    pub(crate) fn has_ids(&self) -> bool {
        self.trace != [0; 16] && self.parent != [0; 8]
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("-")?;
        self.parent.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        write!(f, "-{:02x}", self.flags)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn text_form_round_trips() {
        assert_eq!(VALID.parse::<TraceParent>().unwrap().to_string(), VALID);
    }

    #[test]
    fn what_the_recommendation_forbids_is_refused() {
        let zero_trace = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let zero_parent = format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", "0".repeat(16));
        let extra = format!("{VALID}-00");
        let upper = VALID.to_uppercase();
        let version = VALID.replacen("00", "01", 1);
        for text in [
            "",
            "00",
            &zero_trace,
            &zero_parent,
            &extra,
            &upper,
            &version,
        ] {
            let error = text.parse::<TraceParent>().unwrap_err();
            assert!(error.to_string().contains("context.traceparent"), "{text}");
        }
    }
}
