//! Secrets: values read at use, and the one Secret of our own, that of the pinned host keys.

use super::COMPONENT;
use super::request::bounded;
use crate::api::HOST_KEYS_SECRET;
use crate::controller::ports::{ClusterError, SecretData};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use zeroize::Zeroizing;

/// The key in [`HOST_KEYS_SECRET`], in the format of a `known_hosts` file.
pub(super) const PINNED_KEY: &str = "known_hosts";
/// How often a line is added against others who write the same Secret.
const ATTEMPTS: u32 = 8;

/// Reads a Secret's values. They are never cached, and our copy is wiped when it is dropped.
pub(super) async fn read(
    api: &Api<Secret>,
    namespace: &str,
    name: &str,
) -> Result<SecretData, ClusterError> {
    let object = format!("Secret {namespace}/{name}");
    let secret = bounded(&object, name, api.get(name)).await?;
    let values = secret.data.unwrap_or_default().into_iter();
    Ok(values
        .map(|(key, value)| (key, Zeroizing::new(value.0)))
        .collect())
}

/// The pinned host keys; empty if there are none.
pub(super) async fn pinned_host_keys(
    api: &Api<Secret>,
    namespace: &str,
) -> Result<String, ClusterError> {
    Ok(fetch(api, namespace)
        .await?
        .map_or_else(String::new, |(text, _)| text))
}

/// Adds a line, unless the host has one. Returns the lines that hold.
///
/// # Errors
/// `Other` if `line` is not a line of a `known_hosts` file; `Conflict` if others kept writing.
pub(super) async fn pin_host_key(
    api: &Api<Secret>,
    namespace: &str,
    line: &str,
) -> Result<String, ClusterError> {
    let object = format!("Secret {namespace}/{HOST_KEYS_SECRET}");
    for _ in 0..ATTEMPTS {
        let current = fetch(api, namespace).await?;
        let text = current.as_ref().map_or("", |(text, _)| text.as_str());
        let Some(wanted) = with_line(text, line).map_err(|problem| ClusterError::Other {
            object: object.clone(),
            message: problem.to_owned(),
        })?
        else {
            return Ok(text.to_owned());
        };
        let version = current.as_ref().and_then(|(_, version)| version.clone());
        let written = match current {
            None => create(api, &object, &wanted).await,
            Some(_) => update(api, &object, &wanted, version).await,
        };
        match written {
            Ok(_) => return Ok(wanted),
            Err(
                ClusterError::Conflict(_)
                | ClusterError::AlreadyExists(_)
                | ClusterError::NotFound(_),
            ) => {}
            Err(error) => return Err(error),
        }
    }
    Err(ClusterError::Conflict(object))
}

/// The text of the Secret and its resourceVersion.
async fn fetch(
    api: &Api<Secret>,
    namespace: &str,
) -> Result<Option<(String, Option<String>)>, ClusterError> {
    let object = format!("Secret {namespace}/{HOST_KEYS_SECRET}");
    match bounded(&object, HOST_KEYS_SECRET, api.get(HOST_KEYS_SECRET)).await {
        Ok(secret) => {
            let value = secret.data.unwrap_or_default().remove(PINNED_KEY);
            let text =
                value.map_or_else(String::new, |v| String::from_utf8_lossy(&v.0).into_owned());
            Ok(Some((text, secret.metadata.resource_version)))
        }
        Err(ClusterError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn create(api: &Api<Secret>, object: &str, text: &str) -> Result<Secret, ClusterError> {
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(HOST_KEYS_SECRET.to_owned()),
            labels: Some(
                [(
                    "app.kubernetes.io/managed-by".to_owned(),
                    COMPONENT.to_owned(),
                )]
                .into(),
            ),
            ..ObjectMeta::default()
        },
        data: Some([(PINNED_KEY.to_owned(), ByteString(text.as_bytes().to_vec()))].into()),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    let params = PostParams {
        field_manager: Some(COMPONENT.to_owned()),
        ..PostParams::default()
    };
    bounded(object, HOST_KEYS_SECRET, api.create(&params, &secret)).await
}

async fn update(
    api: &Api<Secret>,
    object: &str,
    text: &str,
    version: Option<String>,
) -> Result<Secret, ClusterError> {
    let patch = Patch::Merge(json!({
        "metadata": { "resourceVersion": version },
        "data": { PINNED_KEY: ByteString(text.as_bytes().to_vec()) },
    }));
    let params = PatchParams::default();
    bounded(
        object,
        HOST_KEYS_SECRET,
        api.patch(HOST_KEYS_SECRET, &params, &patch),
    )
    .await
}

/// The text with `line` added, or `None` if the host has a line already.
fn with_line(text: &str, line: &str) -> Result<Option<String>, &'static str> {
    let line = line.trim();
    let host = hosts_of(line).filter(|_| {
        line.split_ascii_whitespace().count() >= 3 && !line.contains(['\n', '\r', '\0'])
    });
    let Some(host) = host else {
        return Err("a host key can be pinned only as one line: host, algorithm and key");
    };
    let known = text
        .lines()
        .filter_map(hosts_of)
        .flat_map(|hosts| hosts.split(','));
    if known.into_iter().any(|known| known == host) {
        return Ok(None);
    }
    let mut wanted = text.trim_end().to_owned();
    if !wanted.is_empty() {
        wanted.push('\n');
    }
    wanted.push_str(line);
    wanted.push('\n');
    Ok(Some(wanted))
}

/// The first field of a line that pins a key: not of a comment, nor of a marked (`@revoked`) line.
fn hosts_of(line: &str) -> Option<&str> {
    let first = line.split_ascii_whitespace().next()?;
    (!first.starts_with(['#', '@'])).then_some(first)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const A: &str = "lab1 ssh-ed25519 AAAA1";
    const B: &str = "[lab1]:2222 ssh-ed25519 AAAA2";

    #[test]
    fn a_line_is_added_once_per_host() {
        let one = with_line("", A).unwrap().unwrap();
        assert_eq!(one, format!("{A}\n"));
        let two = with_line(&one, B).unwrap().unwrap();
        assert_eq!(two, format!("{A}\n{B}\n"), "another port is another host");
        assert_eq!(
            with_line(&two, "lab1 ssh-ed25519 OTHER").unwrap(),
            None,
            "the first one wins"
        );
        assert_eq!(with_line("x,lab1 ssh-rsa K", A).unwrap(), None);
    }

    #[test]
    fn comments_and_marked_lines_pin_nothing_and_stay() {
        let text = "# lab1 ssh-rsa K\n@revoked lab1 ssh-rsa K";
        assert_eq!(
            with_line(text, A).unwrap().unwrap(),
            format!("{text}\n{A}\n")
        );
    }

    #[test]
    fn what_is_not_a_line_is_refused() {
        for line in [
            "",
            "lab1",
            "lab1 ssh-ed25519",
            "lab1 a b\nlab2 a b",
            "# lab1 a b",
        ] {
            assert!(with_line("", line).is_err(), "{line:?}");
        }
    }
}
