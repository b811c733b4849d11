#![allow(clippy::unwrap_used)]

use super::super::SshHosts;
use super::super::connections::Connections;
use super::super::known_hosts::host_pattern;
use crate::controller::ports::Hosts as _;
use crate::host::{HostKeys, PrivateKey, Target};
use crate::instance::{Failure, FailureClass};
use std::process::Command;
use std::time::Duration;
use tokio::net::TcpListener;

fn private_key() -> PrivateKey {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&path)
        .status()
        .unwrap();
    assert!(status.success());
    PrivateKey::new(std::fs::read_to_string(path).unwrap())
}

fn target(name: &str, port: u16) -> Target {
    Target {
        name: name.to_owned(),
        user: "root".to_owned(),
        port,
        key: private_key(),
        host_keys: HostKeys::FirstUse,
    }
}

async fn connect(name: &str, port: u16) -> Failure {
    let hosts = SshHosts::new();
    hosts.connect(&target(name, port)).await.unwrap_err()
}

/// A port on `address` that was free a moment ago.
async fn free_port(address: &str) -> u16 {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn a_closed_port_is_refused() {
    let port = free_port("127.0.0.1").await;
    let failure = connect("127.0.0.1", port).await;
    assert_eq!(failure.class, FailureClass::ConnectionRefused, "{failure}");
    assert!(
        failure
            .message
            .starts_with(&format!("root@127.0.0.1:{port}: ")),
        "{failure}"
    );
}

#[tokio::test]
async fn ipv6_literals_work_with_and_without_brackets() {
    let port = free_port("::1").await;
    for name in ["::1", "[::1]"] {
        let failure = connect(name, port).await;
        assert_eq!(failure.class, FailureClass::ConnectionRefused, "{failure}");
        assert!(
            failure.message.contains(&format!("root@[::1]:{port}")),
            "{failure}"
        );
        assert_eq!(host_pattern(name, port), format!("[::1]:{port}"));
    }
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_unreachable() {
    let failure = connect("no-such-host.invalid", 22).await;
    assert_eq!(failure.class, FailureClass::HostUnreachable, "{failure}");
    assert!(
        failure.message.contains("root@no-such-host.invalid:22"),
        "{failure}"
    );
}

#[tokio::test]
async fn a_peer_that_hangs_up_or_speaks_something_else_is_unreachable() {
    for greeting in ["", "HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stream, greeting.as_bytes())
                .await
                .unwrap();
        });
        let failure = connect("127.0.0.1", port).await;
        assert_eq!(failure.class, FailureClass::HostUnreachable, "{failure}");
        assert!(failure.message.contains("handshake"), "{failure}");
        server.await.unwrap();
    }
}

#[tokio::test]
async fn a_peer_that_never_speaks_is_given_up() {
    // Accepted by the kernel, never answered by anybody.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = target("127.0.0.1", listener.local_addr().unwrap().port());
    let connections = Connections::new(Duration::from_millis(50));
    let failure = connections.get(&target).await.err().unwrap();
    assert_eq!(failure.class, FailureClass::HostUnreachable, "{failure}");
    assert!(
        failure.message.contains("no answer within 50ms"),
        "{failure}"
    );
}

#[tokio::test]
async fn those_who_ask_at_the_same_time_share_one_attempt_and_later_ones_make_another() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = target("127.0.0.1", listener.local_addr().unwrap().port());
    let connections = Connections::new(Duration::from_secs(60));
    let accepted = async {
        // Until both have asked nobody is answered.
        let (first, _) = listener.accept().await.unwrap();
        drop(first);
    };
    let (one, two, ()) = tokio::join!(connections.get(&target), connections.get(&target), accepted);
    assert_eq!(one.err().unwrap(), two.err().unwrap());
    let (third, accepted) = tokio::join!(connections.get(&target), async {
        drop(listener.accept().await.unwrap());
        true
    });
    assert!(third.is_err() && accepted);
}
