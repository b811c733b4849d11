//! The one bincode configuration of the crate. It is frozen: it is part of the file format.

use bincode::Options;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest payload in bytes; a record with its header must fit [`crate::MAX_RECORD_BYTES`].
pub(crate) const MAX_PAYLOAD_BYTES: u64 = 64 * 1024;

/// A payload that can't be encoded, or bytes that aren't one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PayloadError(String);

impl PayloadError {
    /// A payload error with the given explanation, for use by [`crate::EventKind::with_older`].
    #[must_use]
    pub fn new(explanation: impl Into<String>) -> Self {
        Self(explanation.into())
    }
}

/// Little-endian, fixed-width integers, bounded, nothing may follow the value.
fn frozen() -> impl Options {
    bincode::DefaultOptions::new()
        .with_little_endian()
        .with_fixint_encoding()
        .with_limit(MAX_PAYLOAD_BYTES)
        .reject_trailing_bytes()
}

/// How many bytes `value` takes, or why it can't be encoded. The limit is not applied, so that an
/// oversized value can be reported with its size.
pub(crate) fn encoded_size<T: Serialize>(value: &T) -> Result<u64, PayloadError> {
    frozen()
        .with_no_limit()
        .serialized_size(value)
        .map_err(|e| PayloadError(e.to_string()))
}

/// Encodes one payload.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, PayloadError> {
    frozen()
        .serialize(value)
        .map_err(|e| PayloadError(e.to_string()))
}

/// Decodes one payload that the journal wrote: bincode 1.3, little-endian, fixed-width integers, no
/// trailing bytes.
///
/// Use it in [`crate::EventKind::with_older`] to decode the frozen type of an older schema.
///
/// # Errors
/// The bytes are not exactly one `T`.
pub fn decode_payload<T: DeserializeOwned>(payload: &[u8]) -> Result<T, PayloadError> {
    frozen()
        .deserialize(payload)
        .map_err(|e| PayloadError(e.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_configuration_is_frozen() {
        let bytes = encode(&(7u16, "ab", Some(1u8))).unwrap();
        assert_eq!(
            bytes,
            [7, 0, 2, 0, 0, 0, 0, 0, 0, 0, b'a', b'b', 1, 1],
            "fixed-width little-endian integers, u64 lengths, u8 option tags"
        );
    }

    #[test]
    fn trailing_and_hostile_bytes_are_refused() {
        assert!(decode_payload::<u16>(&[1, 0, 9]).is_err());
        assert!(decode_payload::<String>(&[0xff; 8]).is_err());
        assert!(decode_payload::<Vec<u64>>(&[0xff, 0xff, 0, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn oversized_values_have_a_size_but_no_encoding() {
        let value = vec![0u8; 70_000];
        assert_eq!(encoded_size(&value).unwrap(), 70_008);
        assert!(encode(&value).is_err());
    }
}
