//! OpenSSH's `known_hosts` format (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"), over a text in memory.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use russh::keys::{HashAlg, PublicKey};
use sha1::Sha1;

/// What the lines that name a host say about it.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownKeys {
    /// Keys that the host may show.
    pub(super) trusted: Vec<PublicKey>,
    /// Keys that nobody may show any more (`@revoked`).
    pub(super) revoked: Vec<PublicKey>,
    /// Whether a `@cert-authority` line names the host; we don't check certificates.
    pub(super) certified: bool,
}

/// The name under which a host stands in `known_hosts`: `[name]:port` unless the port is 22.
pub(super) fn host_pattern(name: &str, port: u16) -> String {
    let name = bare_name(name).to_ascii_lowercase();
    if port == 22 {
        name
    } else {
        format!("[{name}]:{port}")
    }
}

/// A name or address as the resolver takes it: IPv6 literals without brackets.
pub(super) fn bare_name(name: &str) -> &str {
    name.strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(name)
}

/// The line by which `key` is pinned for a host.
pub(super) fn line(name: &str, port: u16, key: &PublicKey) -> String {
    let mut bare = key.clone();
    bare.set_comment("");
    let text = bare.to_openssh().unwrap_or_default();
    format!("{} {}", host_pattern(name, port), text.trim_end())
}

/// The fingerprint as `ssh-keygen -lf` shows it.
pub(super) fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

/// Collects what `text` says about a host. Lines that can't be read are skipped, as OpenSSH does.
pub(super) fn lookup(text: &str, name: &str, port: u16) -> KnownKeys {
    let host = host_pattern(name, port);
    let mut known = KnownKeys::default();
    for line in text.lines() {
        let mut fields = line.split_whitespace().peekable();
        let marker = fields.next_if(|field| field.starts_with('@'));
        let Some(patterns) = fields.next().filter(|field| !field.starts_with('#')) else {
            continue;
        };
        if !names_host(patterns, &host) {
            continue;
        }
        let key = match (fields.next(), fields.next()) {
            (Some(kind), Some(blob)) => PublicKey::from_openssh(&format!("{kind} {blob}")).ok(),
            _ => None,
        };
        match (marker, key) {
            (None, Some(key)) => known.trusted.push(key),
            (Some("@revoked"), Some(key)) => known.revoked.push(key),
            (Some("@cert-authority"), _) => known.certified = true,
            _ => {}
        }
    }
    known
}

/// Whether the first field of a line stands for `host`: a hash, or patterns of which none denies it.
fn names_host(patterns: &str, host: &str) -> bool {
    if let Some(hashed) = patterns.strip_prefix("|1|") {
        return hash_matches(hashed, host);
    }
    let mut named = false;
    for pattern in patterns.split(',') {
        let (denies, pattern) = match pattern.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        if glob_matches(&pattern.to_ascii_lowercase(), host) {
            if denies {
                return false;
            }
            named = true;
        }
    }
    named
}

/// `salt|hash`, both base64: HMAC-SHA1 of the host's name, keyed by the salt.
fn hash_matches(hashed: &str, host: &str) -> bool {
    let Some((salt, hash)) = hashed.split_once('|') else {
        return false;
    };
    let (Ok(salt), Ok(hash)) = (STANDARD.decode(salt), STANDARD.decode(hash)) else {
        return false;
    };
    let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(&salt) else {
        return false;
    };
    mac.update(host.as_bytes());
    mac.verify_slice(&hash).is_ok()
}

/// `*` stands for any characters, `?` for one. Only the last `*` is ever retried, so that no
/// pattern takes more than quadratic time.
fn glob_matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    let mut star = None;
    loop {
        let wanted = pattern.next();
        if wanted == Some('*') {
            star = Some((pattern.clone(), text.clone()));
            continue;
        }
        match (wanted, text.next()) {
            (None, None) => return true,
            (Some(p), Some(t)) if p == '?' || p == t => {}
            _ => {
                // Let the last star take one more character, and try again from there.
                let Some((after, mut rest)) = star else {
                    return false;
                };
                if rest.next().is_none() {
                    return false;
                }
                (pattern, text) = (after.clone(), rest.clone());
                star = Some((after, rest));
            }
        }
    }
}

#[cfg(test)]
#[path = "known_hosts_tests.rs"]
mod tests;
