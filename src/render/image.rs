//! Image references: which are used, and which are fit to be written into a quadlet.

use crate::api::{ImageSpec, clean};

/// The image with `jmp` and `jumpstarter-exec`, if nobody names one. Our own version says nothing
/// of Jumpstarter's, and no release before 0.10 can serve an ExporterSet, so the tag stays
/// `latest`; who wants to stand still names an image in the class.
const DEFAULT_EXPORTER: &str = "quay.io/jumpstarter-dev/jumpstarter:latest";
/// The image with QEMU, if nobody names one.
const DEFAULT_RUNTIME: &str = "quay.io/jumpstarter-dev/virtual/qemu-runtime:latest";

const HOW: &str = "write one like registry.example.com:5000/lab/jumpstarter:1.0";

/// The exporter's image.
pub(super) fn exporter(given: Option<&ImageSpec>) -> Result<ImageSpec, String> {
    choose(given, DEFAULT_EXPORTER, "images.exporter.image")
}

/// The runtime's image.
pub(super) fn runtime(given: Option<&ImageSpec>) -> Result<ImageSpec, String> {
    choose(given, DEFAULT_RUNTIME, "images.runtime.image")
}

/// The image that is given, else the default; always with a reference and a pull policy.
fn choose(given: Option<&ImageSpec>, default: &str, path: &str) -> Result<ImageSpec, String> {
    let reference = given
        .and_then(|spec| spec.image.as_deref())
        .filter(|image| !image.is_empty())
        .unwrap_or(default);
    if let Some(problem) = problem_with(reference) {
        let shown = clean(reference);
        return Err(format!("{path} {problem} (got \"{shown}\"); {HOW}"));
    }
    let policy = given.and_then(|spec| spec.image_pull_policy);
    Ok(ImageSpec {
        image: Some(reference.to_owned()),
        image_pull_policy: Some(policy.unwrap_or_default()),
    })
}

/// What keeps a text from being an image reference: `[registry[:port]/]path[:tag][@digest]`, in the
/// grammar of the Distribution project.
fn problem_with(reference: &str) -> Option<&'static str> {
    let (named, digest) = match reference.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (reference, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let (name, tag) = match named.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (named, None),
    };
    if reference.contains("://") {
        return Some("has a transport; only registries and the host's own storage are used");
    }
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return Some("has a digest that is none");
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Some("has a tag that is none");
    }
    if name.len() > 255 || !is_name(name) {
        return Some("is no image reference");
    }
    if [".image", ".build"]
        .iter()
        .any(|end| reference.ends_with(end))
    {
        return Some("is taken for the name of a quadlet, because of its ending; add a tag");
    }
    None
}

fn is_name(name: &str) -> bool {
    let (registry, path) = match name.split_once('/') {
        Some((first, rest)) if first == "localhost" || first.contains(['.', ':']) => {
            (Some(first), rest)
        }
        _ => (None, name),
    };
    registry.is_none_or(is_registry) && path.split('/').all(is_path_component)
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (registry, None),
    };
    let host_fits = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host
            .split('.')
            .all(|label| is_word(label, |b| b.is_ascii_alphanumeric(), |b| b == b'-')),
    };
    host_fits
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0) && is_digits(port))
}

fn is_path_component(component: &str) -> bool {
    is_word(
        component,
        |b| b.is_ascii_lowercase() || b.is_ascii_digit(),
        |b| b"._-".contains(&b),
    )
}

/// Letters with separators between them only.
fn is_word(text: &str, letter: fn(u8) -> bool, separator: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().copied().is_some_and(letter)
        && bytes.last().copied().is_some_and(letter)
        && bytes.iter().all(|b| letter(*b) || separator(*b))
}

fn is_tag(tag: &str) -> bool {
    (1..=128).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        is_word(
            algorithm,
            |b| b.is_ascii_alphanumeric(),
            |b| b"+._-".contains(&b),
        ) && (32..=128).contains(&hex.len())
            && hex.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::api::PullPolicy;
    use proptest::prelude::*;

    fn spec(image: &str) -> ImageSpec {
        ImageSpec {
            image: Some(image.into()),
            image_pull_policy: None,
        }
    }

    #[test]
    fn references_are_used_as_they_are() {
        for image in [
            "busybox",
            "lab/jumpstarter",
            "localhost/jumpstarter:main",
            "quay.io/jumpstarter-dev/virtual/qemu-runtime:latest",
            "registry.example.com:5000/a/b__c/d-e.f:v1.0_rc-1",
            "[2001:db8::1]:5000/a/b",
            "Registry.Example.com/a@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "example.com/my.image:1",
        ] {
            let chosen = exporter(Some(&spec(image))).unwrap();
            assert_eq!(chosen.image.as_deref(), Some(image));
            assert_eq!(chosen.image_pull_policy, Some(PullPolicy::IfNotPresent));
        }
    }

    #[test]
    fn without_one_the_defaults_are_used() {
        let only_policy = ImageSpec {
            image: None,
            image_pull_policy: Some(PullPolicy::Always),
        };
        let chosen = runtime(Some(&only_policy)).unwrap();
        assert_eq!(chosen.image.as_deref(), Some(DEFAULT_RUNTIME));
        assert_eq!(chosen.image_pull_policy, Some(PullPolicy::Always));
        assert_eq!(
            exporter(None).unwrap().image.as_deref(),
            Some(DEFAULT_EXPORTER)
        );
        assert_eq!(
            exporter(Some(&spec(""))).unwrap().image.as_deref(),
            Some(DEFAULT_EXPORTER)
        );
    }

    #[test]
    fn what_is_no_reference_is_refused_by_its_path() {
        for image in [
            "-v",
            "--privileged",
            "a b",
            "a;reboot",
            "$(reboot)",
            "a\nExec=reboot",
            "a\\",
            "%h",
            "\"a\"",
            "UPPER/case",
            "a//b",
            "/a",
            "a/",
            "a:",
            "a:-tag",
            "a@sha256:abc",
            "a@",
            "docker://quay.io/a",
            "example.com:port/a",
            "example.com:70000/a",
            "example.com/my.image",
            "my.build",
        ] {
            let error = exporter(Some(&spec(image))).unwrap_err();
            assert!(error.starts_with("images.exporter.image "), "{error}");
            assert!(error.contains("write one like"), "{error}");
        }
        let error = runtime(Some(&spec("no image"))).unwrap_err();
        assert!(error.starts_with("images.runtime.image "), "{error}");
    }

    proptest! {
        #[test]
        fn what_passes_needs_no_quoting(image in "\\PC{0,30}|[a-zA-Z0-9.:/@_%$;'\"\\\\ -]{0,30}") {
            if let Ok(ImageSpec { image: Some(image), .. }) = exporter(Some(&spec(&image))) {
                prop_assert!(!image.starts_with('-'));
                prop_assert!(image.bytes().all(|b| b.is_ascii_alphanumeric() || b".:/@_+-[]".contains(&b)), "{}", image);
            }
        }
    }
}
