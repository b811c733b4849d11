//! No token and no key where somebody could read them.

use super::harness::{Lab, contents, hosts_are_shared, text};
use super::manifests::Pool;
use kube::ResourceExt;
use std::fs;
use std::process::{Command, Stdio};

fn holds(haystack: &[u8], needle: &str) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leaks() {
    let _shared = hosts_are_shared().await;
    let lab = Lab::new("secrets").await;
    let pool = Pool::on(&lab, 2);
    lab.secret("lab-ssh-key", "TESTBED_SSH_KEY");
    // What a process's arguments show is there for a moment only: look all the time.
    let watch =
        "for i in $(seq 2000); do cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; echo; done";
    let mut watcher = Command::new(lab.testbed.get("TESTBED_SCRIPT"))
        .args(["ssh", "2", watch])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = watcher.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut stdout, &mut all).unwrap();
        all
    });
    lab.apply(&pool.both(&lab));
    let mut controller = lab.controller_with(&[("RUST_LOG", "debug")]);
    let name = lab.running(1).await[0].name_any();
    let token = lab.token(&name).await;
    let _ = watcher.kill();
    let _ = watcher.wait();
    let arguments = reader.join().unwrap();
    lab.remove_all(2).await;
    assert_eq!(controller.stop().await, Some(0));

    let key = fs::read_to_string(lab.testbed.get("TESTBED_SSH_KEY")).unwrap();
    let key = key.lines().nth(2).unwrap();
    let signature = token.rsplit('.').next().unwrap();
    let events = format!("{:?}", lab.events().await);
    let exporters = lab.kubectl(&["get", "exporters,exportersets", "-o", "yaml"], "");
    let places = [
        ("the journal", contents(&lab.journal())),
        ("the logs", lab.logs().into_bytes()),
        ("processes' arguments", arguments),
        ("Events", events.into_bytes()),
        ("annotations and status", exporters.into_bytes()),
    ];
    for (place, content) in &places {
        assert!(!content.is_empty(), "{place} were not looked at");
        for (what, secret) in [
            ("token", &*token),
            ("token's signature", signature),
            ("key", key),
        ] {
            assert!(!holds(content, secret), "the {what} is in {place}");
        }
    }
    // The search finds what is there.
    let (arguments, journal) = (text(&places[2].1), &places[0].1);
    assert!(
        arguments.contains("systemctl") || arguments.contains("podman"),
        "nothing was seen"
    );
    assert!(holds(journal, &name));
}
