//! Reading the private key.

use super::Target;
use crate::instance::{Failure, FailureClass};
use russh::keys::{self, HashAlg, PrivateKey, decode_secret_key};

/// Reads the target's private key.
///
/// # Errors
/// `BadPrivateKey`, saying whether it is encrypted, a public key, or no key at all. Nothing of the
/// text is repeated.
pub(super) fn read(target: &Target) -> Result<PrivateKey, Failure> {
    let text = target.key.expose();
    decode_secret_key(text, None).map_err(|error| {
        let what = if matches!(error, keys::Error::KeyIsEncrypted) {
            "it is encrypted with a passphrase; store it without one (ssh-keygen -p -N '' -f KEY)"
        } else if keys::PublicKey::from_openssh(text.trim()).is_ok() {
            "it is a public key; store the private half"
        } else if text.trim().is_empty() {
            "it is empty"
        } else {
            "it is not a private key in OpenSSH or PEM format"
        };
        Failure::new(
            FailureClass::BadPrivateKey,
            format!("the key for {}: {what}", target.address()),
        )
    })
}

/// The fingerprint of a private key's public half, as `ssh-keygen -lf` shows it.
pub(super) fn fingerprint(key: &PrivateKey) -> String {
    key.public_key().fingerprint(HashAlg::Sha256).to_string()
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
