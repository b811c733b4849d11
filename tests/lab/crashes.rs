//! SIGKILL between any two effects, then a new start: the same end, one Exporter, and nothing done
//! again that was done and verified.

use super::harness::{Lab, hosts_are_shared};
use super::manifests::Pool;
use kube::ResourceExt;
use std::collections::BTreeMap;

const UP: [&str; 8] = [
    "create",
    "await-credentials",
    "connect",
    "write-config",
    "write-quadlets",
    "create-volume",
    "start",
    "annotate",
];
const DOWN: [&str; 6] = [
    "disable",
    "stop",
    "remove-files",
    "remove-volume",
    "reload",
    "delete",
];
/// Journaled as started; done, but not journaled; journaled as done. What the Exporter shows to be
/// done is not done again, and so never journaled as a step: it has to be another Exporter's.
fn places(step: &str) -> &'static [&'static str] {
    match step {
        "create" | "disable" => &["started", "acted"],
        _ => &["started", "acted", "recorded"],
    }
}

/// Starts the controller, to be killed at one place.
async fn killed_at(lab: &Lab, point: &str) {
    let mut controller = lab.controller_with(&[("FAILPOINT", point)]);
    let code = controller.ended().await;
    let log = controller.log();
    assert_eq!(code, None, "{point}: it ended by itself\n{log}");
    assert!(
        log.contains(&format!("\"failpoint\":\"{point}\"")),
        "{point}\n{log}"
    );
}

/// Starts the controller again and again, to be killed at one place after the other.
async fn killed_at_each(lab: &Lab, steps: &[&str], mut after: impl AsyncFnMut(&str)) {
    for step in steps {
        for place in places(step) {
            let point = format!("{place}:{step}");
            killed_at(lab, &point).await;
            after(&point).await;
        }
    }
}

/// What is on the host of an exporter, by what would change if it were made again.
fn made(lab: &Lab, host: u8, name: &str) -> BTreeMap<String, String> {
    let script = format!(
        "cd /etc/containers/systemd; \
         stat -c '%n %i %Z' {name}-*.container /etc/jumpstarter/exporters/{name}.yaml 2>/dev/null; \
         podman volume inspect --format 'volume {{{{.CreatedAt}}}}' jumpstarter-{name}-shared 2>/dev/null; \
         stat -c '%n %i %Y' /var/lib/containers/storage/volumes/jumpstarter-{name}-shared/_data/jumpstarter-exec 2>/dev/null; \
         for unit in net runtime exporter; do \
           echo \"$unit $(systemctl show -P InvocationID {name}-$unit)\"; \
         done"
    );
    let text = lab.testbed.ssh(host, &script);
    let parts = text.lines().filter_map(|line| line.split_once(' '));
    parts
        .filter(|(_, value)| !value.is_empty())
        .map(|(part, value)| (part.to_owned(), value.to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_way_up() {
    let _shared = hosts_are_shared().await;
    let (lab, _) = Pool::in_lab("crash-up", 1, |_| {}).await;
    let mut name = None;
    let mut once: BTreeMap<String, String> = BTreeMap::new();
    killed_at_each(&lab, &UP, async |point| {
        let exporters = lab.exporters().await;
        assert!(exporters.len() <= 1, "{point}: a second Exporter");
        let Some(exporter) = exporters.first() else {
            return;
        };
        let known = name.get_or_insert_with(|| exporter.name_any());
        assert_eq!(*known, exporter.name_any(), "{point}");
        for (part, value) in made(&lab, 1, known) {
            let first = once.entry(part.clone()).or_insert_with(|| value.clone());
            assert_eq!(*first, value, "{point}: {part} was made again");
        }
    })
    .await;
    let mut controller = lab.controller();
    let name = name.unwrap();
    assert_eq!(lab.running(1).await[0].name_any(), name);
    assert_eq!(made(&lab, 1, &name), once, "all of it was made, once");
    assert_eq!(controller.stop().await, Some(0));
    lab.kubectl(&["delete", "exportersets", "--all", "--wait=false"], "");
    killed_at(&lab, "recorded:disable").await;
    let _controller = lab.controller();
    lab.remove_all(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_way_down() {
    let _shared = hosts_are_shared().await;
    let (lab, pool) = Pool::in_lab("crash-down", 2, |pool| {
        pool.cooldown = "1s".into();
    })
    .await;
    killed_at(&lab, "recorded:create").await;
    let mut controller = lab.controller();
    lab.running(1).await;
    assert_eq!(controller.stop().await, Some(0));
    lab.patch_set(&pool.set, r#"{"spec":{"minAvailableReplicas":0}}"#);
    killed_at_each(&lab, &DOWN, async |point| {
        assert!(
            lab.exporters().await.len() <= 1,
            "{point}: a second Exporter"
        );
    })
    .await;
    let _controller = lab.controller();
    lab.gone().await;
    lab.clean(2).await;
}
