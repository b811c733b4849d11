#![allow(clippy::unwrap_used)]

use super::HostKeyPolicy;
use crate::host::HostKeys;
use crate::instance::FailureClass;
use russh::keys::{Algorithm, HashAlg, PublicKey};

const A: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDbxAqEMUfHOXB8VL+bU+YXQWcfK8UAkNnopCiOXsBBh";
const A_FINGERPRINT: &str = "SHA256:B970wpFbNSLaZbnr0Md/hY7XuiBiIwaEHNTDKGyGT/c";
const B: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPK5rVa4ZwvkueaEl67O7mPuRAZGeqKqyrxi4Dd9WJu/";
const B_FINGERPRINT: &str = "SHA256:N1RNsIbzlO+ad9KkVPgLtI0LQhyUxEe/RW5kjqM2nv0";
const R: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDTWyfKnnvaqJqJtGfeE618cEei+WtxFFyE2uUbHjoAg0ijEHuxQPeZMbbeoj2mdFdSPI0cPzrNLz0K4tYqLoXDqRRgFrTkCEfSYMW53+tTyQbyhw1QPlbzMPW0WIW4SIV6bmqf79rTTleZyoiGhkTDcM7hqJyVrHvN70G82iai+vT9dGx3lNdU2ATAuMwA5zpaIWiAgAH9l6oUEATNvRLBCwLlh0ujb0VzuQZn8mw4AaDUiQ8Wox8S/fC0w9y2JSlBqCPFSQJtCSdvnquq67bYuJRbYTgjI1r+u/bnPDgGsmavj6lZ5nAYkR4XTG7G2iqNTvHJ8sOsUSf/mwSZsDVl";

fn key(text: &str) -> PublicKey {
    PublicKey::from_openssh(text).unwrap()
}

fn policy(keys: &HostKeys) -> HostKeyPolicy {
    HostKeyPolicy::new("lab-1", 2222, keys).unwrap()
}

#[test]
fn each_way_to_name_a_key_accepts_it_and_no_other() {
    for keys in [
        HostKeys::Pinned(A_FINGERPRINT.to_owned()),
        HostKeys::Pinned(format!(" {A_FINGERPRINT}=\n")),
        HostKeys::Pinned(A.to_owned()),
        HostKeys::Pinned(format!("{A} root@lab-1\n")),
        HostKeys::KnownHosts(format!("[lab-1]:2222 {A}\n")),
    ] {
        let policy = policy(&keys);
        assert_eq!(
            policy.check(&key(&format!("{A} comment"))),
            Ok(()),
            "{keys:?}"
        );
        let failure = policy.check(&key(B)).unwrap_err();
        assert_eq!(failure.class, FailureClass::HostKeyMismatch);
        for part in [
            "[lab-1]:2222",
            A_FINGERPRINT,
            B_FINGERPRINT,
            "to accept the new key",
            &format!("[lab-1]:2222 {B}"),
        ] {
            assert!(failure.message.contains(part), "{part}: {failure}");
        }
    }
}

#[test]
fn on_first_use_any_key_is_accepted() {
    assert_eq!(policy(&HostKeys::FirstUse).check(&key(B)), Ok(()));
}

#[test]
fn a_revoked_key_is_refused_even_if_it_is_also_known() {
    let text = format!("[lab-1]:2222 {A}\n@revoked * {A}\n[lab-1]:2222 {B}");
    let policy = policy(&HostKeys::KnownHosts(text));
    let failure = policy.check(&key(A)).unwrap_err();
    assert_eq!(failure.class, FailureClass::HostKeyMismatch);
    assert!(failure.message.contains("@revoked"), "{failure}");
    assert_eq!(policy.check(&key(B)), Ok(()));
}

#[test]
fn what_could_never_be_accepted_is_said_at_once() {
    for (keys, class, part) in [
        (
            HostKeys::KnownHosts(format!("lab-1 {A}")),
            FailureClass::HostKeyMismatch,
            "is not in known_hosts; add a line that starts with [lab-1]:2222",
        ),
        (
            HostKeys::KnownHosts(String::new()),
            FailureClass::HostKeyMismatch,
            "is not in known_hosts",
        ),
        (
            HostKeys::KnownHosts(format!("@cert-authority [lab-1]:2222 {A}")),
            FailureClass::HostKeyMismatch,
            "host certificates are not supported",
        ),
        (
            HostKeys::Pinned("MD5:00:11".to_owned()),
            FailureClass::InvalidParameters,
            "parameters.host.hostKey",
        ),
        (
            HostKeys::Pinned("SHA256:short".to_owned()),
            FailureClass::InvalidParameters,
            "\"SHA256:short\"",
        ),
    ] {
        let failure = HostKeyPolicy::new("lab-1", 2222, &keys).unwrap_err();
        assert_eq!(failure.class, class, "{failure}");
        assert!(failure.message.contains(part), "{failure}");
    }
}

#[test]
fn only_algorithms_of_expected_keys_are_asked_for() {
    let rsa = [HashAlg::Sha512, HashAlg::Sha256].map(|hash| Algorithm::Rsa { hash: Some(hash) });
    let algorithms = |keys| policy(&keys).algorithms();
    assert_eq!(algorithms(HostKeys::Pinned(R.to_owned())), [rsa.to_vec()]);
    assert_eq!(
        algorithms(HostKeys::KnownHosts(format!("[lab-1]:2222 {R}"))),
        [rsa.to_vec()]
    );
    assert_eq!(
        algorithms(HostKeys::Pinned(A.to_owned())),
        [vec![Algorithm::Ed25519]]
    );
    let by_fingerprint = algorithms(HostKeys::Pinned(A_FINGERPRINT.to_owned()));
    assert_eq!(by_fingerprint.len(), 3);
    assert!(
        by_fingerprint
            .concat()
            .iter()
            .all(|algorithm| *algorithm != Algorithm::Rsa { hash: None }),
        "no SHA-1 signatures"
    );
}
