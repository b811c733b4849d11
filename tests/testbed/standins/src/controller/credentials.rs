//! Exporters' tokens: shaped like the real ones, bound to the Exporter's UID.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A token is good for a year.
const LIFETIME_SECONDS: i64 = 365 * 24 * 3600;

/// Whom a token speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The Exporter's namespace.
    pub namespace: String,
    /// The Exporter's name.
    pub name: String,
    /// The Exporter's UID: a re-created Exporter needs a new token.
    pub uid: String,
}

/// Signs and checks tokens. No `Debug`: it holds the key.
///
/// The signature is a keyed digest. It keeps tests honest, not attackers out.
#[derive(Clone)]
pub struct Signer {
    key: String,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Vec<String>,
    iat: i64,
    exp: i64,
    jti: String,
}

impl Signer {
    /// A signer; the same key accepts the same tokens after a restart.
    #[must_use]
    pub fn new(key: String) -> Self {
        Self { key }
    }

    /// A new token, unlike all others by `id`.
    ///
    /// # Errors
    /// Claims that can't be written as JSON; there are none.
    pub fn issue(
        &self,
        subject: &Subject,
        id: String,
        now: Timestamp,
    ) -> Result<String, serde_json::Error> {
        let Subject {
            namespace,
            name,
            uid,
        } = subject;
        let claims = Claims {
            iss: "https://localhost:8085".into(),
            sub: format!("exporter:{namespace}:{name}:{uid}"),
            aud: vec!["https://jumpstarter.dev".into()],
            iat: now.as_second(),
            exp: now.as_second() + LIFETIME_SECONDS,
            jti: id,
        };
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","kid":"default","typ":"JWT"}"#);
        let claims = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claims)?);
        let signed = format!("{header}.{claims}");
        let signature = self.signature(&signed);
        Ok(format!("{signed}.{signature}"))
    }

    /// Whom the token speaks for; `None` if it isn't ours, is damaged or has expired.
    #[must_use]
    pub fn verify(&self, token: &str, now: Timestamp) -> Option<Subject> {
        let (signed, signature) = token.rsplit_once('.')?;
        if self.signature(signed) != signature {
            return None;
        }
        let claims = URL_SAFE_NO_PAD.decode(signed.split_once('.')?.1).ok()?;
        let claims: Claims = serde_json::from_slice(&claims).ok()?;
        if claims.exp <= now.as_second() {
            return None;
        }
        let mut parts = claims.sub.splitn(4, ':');
        let (kind, namespace, name, uid) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        (kind == "exporter").then(|| Subject {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
        })
    }

    fn signature(&self, signed: &str) -> String {
        let inner = Sha256::digest(format!("{}{signed}", self.key));
        URL_SAFE_NO_PAD.encode(
            Sha256::new()
                .chain_update(&self.key)
                .chain_update(inner)
                .finalize(),
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_token_proves_its_subject_until_it_expires() {
        let signer = Signer::new("key".into());
        let now = Timestamp::from_second(1_000_000).unwrap();
        let subject = Subject {
            namespace: "lab".into(),
            name: "x1".into(),
            uid: "u-1".into(),
        };
        let token = signer.issue(&subject, "a".into(), now).unwrap();
        assert_eq!(token.split('.').count(), 3);
        assert_eq!(signer.verify(&token, now), Some(subject.clone()));
        assert_ne!(signer.issue(&subject, "b".into(), now).unwrap(), token);

        let later = Timestamp::from_second(1_000_000 + LIFETIME_SECONDS).unwrap();
        assert_eq!(signer.verify(&token, later), None);
        assert_eq!(Signer::new("other".into()).verify(&token, now), None);
        for damaged in [
            "",
            "a.b.c",
            token.trim_end_matches(|_: char| true),
            &token.replace('.', ""),
        ] {
            assert_eq!(signer.verify(damaged, now), None);
        }
        let forged = token.replacen('.', ".x", 1);
        assert_eq!(signer.verify(&forged, now), None);
    }
}
