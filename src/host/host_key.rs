//! Whether a host is who it should be.

use super::HostKeys;
use super::known_hosts::{self, KnownKeys, fingerprint, host_pattern, lookup};
use crate::instance::{Failure, FailureClass};
use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PublicKey};

/// A policy, prepared for one host.
#[derive(Clone, Debug)]
pub(super) struct HostKeyPolicy {
    name: String,
    port: u16,
    accepted: Accepted,
}

#[derive(Clone, Debug)]
enum Accepted {
    Known(KnownKeys),
    Key(PublicKey),
    Fingerprint(String),
    Any,
}

impl HostKeyPolicy {
    /// Reads the policy `keys` for the host `name`.
    ///
    /// # Errors
    /// `InvalidParameters` if the pinned key is neither `SHA256:…` nor a public key line;
    /// `HostKeyMismatch` if no key could ever be accepted.
    pub(super) fn new(name: &str, port: u16, keys: &HostKeys) -> Result<Self, Failure> {
        let accepted = match keys {
            HostKeys::FirstUse => Accepted::Any,
            HostKeys::Pinned(pin) => parse_pin(pin)?,
            HostKeys::KnownHosts(text) => Accepted::Known(lookup(text, name, port)),
        };
        let policy = Self {
            name: name.to_owned(),
            port,
            accepted,
        };
        policy.refuse_the_impossible()?;
        Ok(policy)
    }

    /// The key algorithms to ask for, each entry one attempt. A host has keys of several
    /// algorithms and shows one; asking for the wrong one would look like a changed key.
    pub(super) fn algorithms(&self) -> Vec<Vec<Algorithm>> {
        match &self.accepted {
            Accepted::Any => vec![known_algorithms()],
            Accepted::Key(key) => vec![offers_of(&key.algorithm())],
            Accepted::Known(known) => {
                vec![
                    known
                        .trusted
                        .iter()
                        .flat_map(|key| offers_of(&key.algorithm()))
                        .collect(),
                ]
            }
            // A fingerprint doesn't tell its algorithm: try the kinds one after another.
            Accepted::Fingerprint(_) => vec![
                vec![Algorithm::Ed25519],
                ecdsa_algorithms(),
                offers_of(&Algorithm::Rsa { hash: None }),
            ],
        }
    }

    /// Judges the key that the host shows.
    ///
    /// # Errors
    /// `HostKeyMismatch`, naming both fingerprints and how to accept the new one.
    pub(super) fn check(&self, shown: &PublicKey) -> Result<(), Failure> {
        let expected = match &self.accepted {
            Accepted::Any => return Ok(()),
            Accepted::Fingerprint(pin) if *pin == fingerprint(shown) => return Ok(()),
            Accepted::Fingerprint(pin) => pin.clone(),
            Accepted::Key(key) if key.key_data() == shown.key_data() => return Ok(()),
            Accepted::Key(key) => fingerprint(key),
            Accepted::Known(known) => {
                let is_shown = |key: &PublicKey| key.key_data() == shown.key_data();
                if known.revoked.iter().any(is_shown) {
                    return Err(self.mismatch(format!(
                        "shows the key {}, which known_hosts marks as @revoked",
                        fingerprint(shown)
                    )));
                }
                if known.trusted.iter().any(is_shown) {
                    return Ok(());
                }
                let expected: Vec<_> = known.trusted.iter().map(fingerprint).collect();
                expected.join(" or ")
            }
        };
        Err(self.mismatch(format!(
            "shows the key {}, expected is {expected}; to accept the new key, replace the old one by: {}",
            fingerprint(shown),
            self.line(shown),
        )))
    }

    /// The `known_hosts` line that pins `key` for this host.
    pub(super) fn line(&self, key: &PublicKey) -> String {
        known_hosts::line(&self.name, self.port, key)
    }

    fn refuse_the_impossible(&self) -> Result<(), Failure> {
        let Accepted::Known(known) = &self.accepted else {
            return Ok(());
        };
        if !known.trusted.is_empty() {
            return Ok(());
        }
        Err(self.mismatch(if known.certified {
            "is only named by a @cert-authority line of known_hosts, and host certificates are not supported; add a line with the host's own public key".to_owned()
        } else {
            format!(
                "is not in known_hosts; add a line that starts with {} (ssh-keyscan prints it; compare the fingerprint on the host)",
                host_pattern(&self.name, self.port)
            )
        }))
    }

    fn mismatch(&self, what: String) -> Failure {
        Failure::new(
            FailureClass::HostKeyMismatch,
            format!("{} {what}", host_pattern(&self.name, self.port)),
        )
    }
}

fn parse_pin(pin: &str) -> Result<Accepted, Failure> {
    let pin = pin.trim();
    if let Some(digest) = pin.strip_prefix("SHA256:")
        && digest.trim_end_matches('=').len() == 43
    {
        return Ok(Accepted::Fingerprint(pin.trim_end_matches('=').to_owned()));
    }
    PublicKey::from_openssh(pin).map(Accepted::Key).map_err(|_| {
        Failure::new(
            FailureClass::InvalidParameters,
            format!("parameters.host.hostKey: {pin:?} is neither a fingerprint (SHA256:… as ssh-keygen -lf prints it) nor a public key line (ssh-ed25519 AAAA…)"),
        )
    })
}

fn ecdsa_algorithms() -> Vec<Algorithm> {
    [
        EcdsaCurve::NistP256,
        EcdsaCurve::NistP384,
        EcdsaCurve::NistP521,
    ]
    .map(|curve| Algorithm::Ecdsa { curve })
    .to_vec()
}

fn known_algorithms() -> Vec<Algorithm> {
    let mut all = vec![Algorithm::Ed25519];
    all.extend(ecdsa_algorithms());
    all.extend(offers_of(&Algorithm::Rsa { hash: None }));
    all
}

/// What to offer for a key of `algorithm`: RSA keys sign by SHA-2 only.
fn offers_of(algorithm: &Algorithm) -> Vec<Algorithm> {
    if matches!(algorithm, Algorithm::Rsa { .. }) {
        [HashAlg::Sha512, HashAlg::Sha256]
            .map(|hash| Algorithm::Rsa { hash: Some(hash) })
            .to_vec()
    } else {
        vec![algorithm.clone()]
    }
}

#[cfg(test)]
#[path = "host_key_tests.rs"]
mod tests;
