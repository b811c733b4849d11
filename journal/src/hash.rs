//! The SHA-256 links of the chain.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// A SHA-256 digest; the link between a record and the one before it.
///
/// SHA-256 rather than a faster hash: its output can be checked with tools that every system has
/// (`sha256sum`), it is what auditors ask for, and on CPUs with SHA extensions it costs a fraction
/// of a microsecond per record, far below one `fdatasync`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChainHash([u8; 32]);

impl ChainHash {
    /// A digest from its 32 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the digest.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// What the first record of a journal of this kind names as its predecessor: the digest of
    /// `journal genesis\0` and the kind's name.
    pub(crate) fn genesis(kind: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"journal genesis\0");
        hasher.update(kind.as_bytes());
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a chain hash: it takes 64 hexadecimal digits")]
pub struct InvalidHash(String);

impl FromStr for ChainHash {
    type Err = InvalidHash;

    fn from_str(text: &str) -> Result<Self, InvalidHash> {
        parse_hex::<32>(text)
            .map(Self)
            .ok_or_else(|| InvalidHash(text.chars().take(80).collect()))
    }
}

/// Exactly `N` bytes written as `2 * N` hexadecimal digits of either case.
pub(crate) fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let pair: &[u8; 2] = pair.try_into().ok()?;
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let hash = ChainHash::of(b"abc");
        assert_eq!(
            hash.to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(hash.to_string().parse(), Ok(hash));
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "00", &"g".repeat(64), &"é".repeat(32)] {
            assert!(text.parse::<ChainHash>().is_err(), "{text}");
        }
    }
}
