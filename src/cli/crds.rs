//! `crds`: the CustomResourceDefinitions, for `kubectl apply -f -`.

use super::CliError;
use std::io::Write;

/// Prints all definitions as YAML documents.
pub(super) fn print(out: &mut impl Write) -> Result<(), CliError> {
    for (_, document) in crate::api::crds_yaml()? {
        out.write_all(document.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn four_documents_that_kubectl_would_take_apart() {
        let mut out = Vec::new();
        print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let documents: Vec<_> = text.split("---\n").filter(|d| !d.is_empty()).collect();
        assert_eq!(documents.len(), 4);
        for document in documents {
            assert!(
                document.starts_with("apiVersion: apiextensions.k8s.io/v1\n"),
                "{document}"
            );
        }
    }
}
