//! Deadlines of requests, and what their errors mean.

use crate::controller::ports::ClusterError;
use std::future::Future;
use std::time::Duration;
use tokio::time::timeout;

/// How long a request may take, kube's own repetitions included.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(15);

/// Waits for the answer to a request for `object` (`Kind namespace/name`), whose name is `name`.
///
/// # Errors
/// What [`classify`] makes of the API server's answer; `Other` if there is none in time.
pub(super) async fn bounded<T>(
    object: &str,
    name: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, ClusterError> {
    match timeout(REQUEST_LIMIT, request).await {
        Ok(answer) => answer.map_err(|error| classify(object, name, &error)),
        Err(_) => Err(ClusterError::Other {
            object: object.to_owned(),
            message: format!(
                "the API server gave no answer within {} s",
                REQUEST_LIMIT.as_secs()
            ),
        }),
    }
}

/// Says what an error means for `object`, whose name is `name`.
///
/// A 404 counts as [`ClusterError::NotFound`] only if it is about that very object: a missing CRD,
/// namespace or route must not look like a deleted object.
pub(super) fn classify(object: &str, name: &str, error: &kube::Error) -> ClusterError {
    let other = |message: String| ClusterError::Other {
        object: object.to_owned(),
        message,
    };
    match error {
        kube::Error::Api(status) => {
            let about = status.details.as_ref().map(|d| d.name.as_str());
            match status.code {
                404 if about == Some(name) && !name.is_empty() => {
                    ClusterError::NotFound(object.to_owned())
                }
                409 if status.is_already_exists() => ClusterError::AlreadyExists(object.to_owned()),
                409 => ClusterError::Conflict(object.to_owned()),
                422 if names_another_uid(status) => ClusterError::Conflict(object.to_owned()),
                403 => ClusterError::Forbidden(format!("{object}: {}", status.message)),
                code => other(format!("{code} {}: {}", status.reason, status.message)),
            }
        }
        // Its text can quote values of the object, which may be a Secret.
        kube::Error::SerdeError(error) => other(format!(
            "the answer can't be read ({:?} error at line {} column {})",
            error.classify(),
            error.line(),
            error.column()
        )),
        error => other(with_causes(error)),
    }
}

/// A patch that names the UID of an object which another one of that name has followed. For custom
/// resources this is not answered as a conflict, but as an attempt to change the UID.
fn names_another_uid(status: &kube::core::Status) -> bool {
    let details = status.details.as_ref();
    details.is_some_and(|details| {
        details
            .causes
            .iter()
            .any(|cause| cause.field == "metadata.uid")
    })
}

/// An error with all its causes; kube's own text often ends before the interesting one.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use kube::core::Status;
    use kube::core::response::StatusDetails;

    fn answer(code: u16, reason: &str, name: &str) -> kube::Error {
        let details: StatusDetails =
            serde_json::from_value(serde_json::json!({ "name": name })).unwrap();
        let status = Status::failure("the message", reason)
            .with_code(code)
            .with_details(details);
        kube::Error::Api(status.boxed())
    }

    fn classified(error: &kube::Error) -> String {
        format!("{:?}", classify("Exporter lab/a", "a", error))
    }

    #[test]
    fn answers_are_told_apart() {
        assert_eq!(
            classified(&answer(404, "NotFound", "a")),
            r#"NotFound("Exporter lab/a")"#
        );
        assert_eq!(
            classified(&answer(409, "AlreadyExists", "a")),
            r#"AlreadyExists("Exporter lab/a")"#
        );
        assert_eq!(
            classified(&answer(409, "Conflict", "a")),
            r#"Conflict("Exporter lab/a")"#
        );
        assert_eq!(
            classified(&answer(403, "Forbidden", "a")),
            r#"Forbidden("Exporter lab/a: the message")"#
        );
    }

    #[test]
    fn a_missing_crd_or_namespace_is_not_a_missing_object() {
        for name in ["", "lab"] {
            let text = classified(&answer(404, "NotFound", name));
            assert!(text.starts_with("Other"), "{text}");
        }
    }

    #[test]
    fn an_unreadable_answer_is_not_quoted() {
        let error = serde_json::from_str::<u32>(r#""s3cret""#).unwrap_err();
        assert!(
            error.to_string().contains("s3cret"),
            "the trap has gone: {error}"
        );
        let text = classified(&kube::Error::SerdeError(error));
        assert!(!text.contains("s3cret"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_api_server_is_given_up() {
        let silence = std::future::pending::<kube::Result<()>>();
        match bounded("Exporter lab/a", "a", silence).await {
            Err(ClusterError::Other { message, .. }) => assert!(message.contains("no answer")),
            other => panic!("{other:?}"),
        }
    }
}
