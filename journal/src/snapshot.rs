//! Folded states of streams, to save reading a long stream from its beginning.
//!
//! A snapshot is only ever a shortcut. It lies beside the index and shares its fate: gone when the
//! index is rebuilt, never believed when it doesn't fit. It names the hash of the last record it has
//! seen, so that it can't be taken for the state of another history.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bytes::{Fields, seal, unseal};
use crate::codec;
use crate::error::ReadError;
use crate::hash::ChainHash;
use crate::journal::Journal;
use crate::read::Envelope;

/// The largest encoded state. sled puts larger values into files that it doesn't sync.
const MAX_STATE_BYTES: u64 = codec::MAX_PAYLOAD_BYTES;

/// The state of a stream after its version `version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot<S> {
    /// The last version that the state has seen.
    pub version: u64,
    /// The state.
    pub state: S,
}

/// Why a snapshot was not saved, or could not be proved. The journal is not affected.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The state is too large.
    #[error("the state takes {size} bytes, a snapshot at most {MAX_STATE_BYTES}: go without")]
    TooLarge {
        /// The size of the encoded state.
        size: u64,
    },
    /// The state can't be encoded.
    #[error("the state can't be encoded: {0}")]
    State(#[from] codec::PayloadError),
    /// The stream has no such version.
    #[error("stream `{stream}` has no version {version}")]
    NoSuchVersion {
        /// The stream.
        stream: String,
        /// The version.
        version: u64,
    },
    /// The stream can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no usable index to keep it in.
    #[error("the index can't keep it: {0}")]
    Index(String),
}

fn encode(version: u64, hash: ChainHash, state: &[u8]) -> Vec<u8> {
    let mut out = version.to_le_bytes().to_vec();
    out.extend_from_slice(hash.as_bytes());
    out.extend_from_slice(state);
    seal(&mut out, 0);
    out
}

fn decode(bytes: &[u8]) -> Option<(u64, ChainHash, &[u8])> {
    let mut fields = Fields(unseal(bytes)?);
    Some((
        fields.u64()?,
        ChainHash::from_bytes(fields.array()?),
        fields.0,
    ))
}

impl<E> Journal<E>
where
    E: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// Keeps the state that a stream has after `version`. It replaces an earlier one.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub fn save_snapshot<S: Serialize>(
        &self,
        stream: &str,
        version: u64,
        state: &S,
    ) -> Result<(), SnapshotError> {
        let size = codec::encoded_size(state)?;
        if size > MAX_STATE_BYTES {
            return Err(SnapshotError::TooLarge { size });
        }
        let hash = self.hash_of(stream, version)?;
        let value = encode(version, hash, &codec::encode(state)?);
        let index = &self.store().index;
        index
            .keep(stream, &value)
            .map_err(|fault| SnapshotError::Index(fault.to_string()))
    }

    /// The kept state of a stream, if there is one that fits the stream as it is.
    ///
    /// # Errors
    /// The record that the snapshot names can't be read; see [`ReadError`].
    pub fn snapshot<S: DeserializeOwned>(
        &self,
        stream: &str,
    ) -> Result<Option<Snapshot<S>>, ReadError> {
        let Ok(Some(value)) = self.store().index.kept(stream) else {
            return Ok(None);
        };
        let Some((version, hash, state)) = decode(&value) else {
            return Ok(None);
        };
        match self.hash_of(stream, version) {
            Ok(found) if found == hash => {}
            Err(SnapshotError::Read(error)) => return Err(error),
            _ => return Ok(None),
        }
        // A state of another type is no use either.
        Ok(codec::decode_payload(state)
            .ok()
            .map(|state| Snapshot { version, state }))
    }

    /// Whether the kept state of a stream is what folding the stream from its beginning gives; `None`
    /// if none is kept.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub fn verify_snapshot<S: Serialize>(
        &self,
        stream: &str,
        initial: S,
        mut step: impl FnMut(&mut S, &Envelope<E>),
    ) -> Result<Option<bool>, SnapshotError> {
        let fault = |fault: crate::index::IndexFault| SnapshotError::Index(fault.to_string());
        let Some(value) = self.store().index.kept(stream).map_err(fault)? else {
            return Ok(None);
        };
        let Some((version, hash, kept)) = decode(&value) else {
            return Ok(Some(false));
        };
        let mut state = initial;
        let mut last = None;
        for item in self.read(stream, 1)? {
            let envelope = item?;
            if envelope.version > version {
                break;
            }
            step(&mut state, &envelope);
            last = Some((envelope.version, envelope.hash));
        }
        Ok(Some(
            last == Some((version, hash)) && codec::encode(&state)? == kept,
        ))
    }

    fn hash_of(&self, stream: &str, version: u64) -> Result<ChainHash, SnapshotError> {
        let missing = || SnapshotError::NoSuchVersion {
            stream: stream.to_owned(),
            version,
        };
        if version == 0 {
            return Err(missing());
        }
        let found = self.read(stream, version)?.next().ok_or_else(missing)??;
        Ok(found.hash)
    }
}
