//! A lab host and how we get in.

use super::known_hosts::bare_name;
use std::fmt;
use zeroize::Zeroizing;

/// A lab host and how we get in.
#[derive(Clone, Debug)]
pub struct Target {
    /// DNS name or address, as in `parameters.host.name`.
    pub name: String,
    /// Login name.
    pub user: String,
    /// SSH port.
    pub port: u16,
    /// The key that opens it.
    pub key: PrivateKey,
    /// How the host proves who it is.
    pub host_keys: HostKeys,
}

impl Target {
    /// `user@host:port`, for messages; IPv6 literals in brackets.
    #[must_use]
    pub fn address(&self) -> String {
        let name = bare_name(&self.name);
        if name.contains(':') {
            format!("{}@[{name}]:{}", self.user, self.port)
        } else {
            format!("{}@{name}:{}", self.user, self.port)
        }
    }
}

/// The text of a private key, in OpenSSH or PEM format; never shown.
#[derive(Clone)]
pub struct PrivateKey(Zeroizing<String>);

impl PrivateKey {
    /// Keeps the text of a key.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text, for the one place that parses it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

/// How a host proves who it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostKeys {
    /// Lines of a `known_hosts` file, from the credentials Secret or our own Secret of pinned keys.
    KnownHosts(String),
    /// `SHA256:…` or a public key line, from `parameters.host.hostKey`.
    Pinned(String),
    /// Not known yet: what it shows first is accepted and returned, to be pinned.
    FirstUse,
}
