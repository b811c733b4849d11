//! However an Exporter goes, its host is clean before it is gone.

use super::harness::{Lab, eventually, hosts_are_shared};
use super::manifests::Pool;
use kube::ResourceExt;

#[tokio::test(flavor = "multi_thread")]
async fn of_an_exporter() {
    let _shared = hosts_are_shared().await;
    let (lab, _) = Pool::in_lab("del-exp", 1, |_| {}).await;
    let _controller = lab.controller();
    let name = lab.running(1).await[0].name_any();
    lab.kubectl(&["delete", "exporter", &name, "--timeout=60s"], "");
    let script = format!("ls /etc/containers/systemd /etc/jumpstarter/exporters | grep {name}");
    assert_eq!(
        lab.testbed.try_ssh(1, &script).stdout,
        b"",
        "clean when the Exporter is gone"
    );
    assert_ne!(
        lab.running(1).await[0].name_any(),
        name,
        "another one takes its place"
    );
    lab.remove_all(1).await;
}

/// The Secret goes first, so nobody can get in: the exporter stays, and says why.
async fn delete_all_and_see_it_stay(lab: &Lab, pool: &Pool) -> String {
    let name = lab.running(1).await[0].name_any();
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: lab-ssh-key}\n";
    let all = format!("{}{secret}", pool.both(lab));
    lab.kubectl(&["delete", "--wait=false", "-f", "-"], &all);
    eventually("the reason", || async {
        let exporters = lab.exporters().await;
        let annotations = exporters
            .first()
            .map(|e| e.annotations().clone())
            .unwrap_or_default();
        let state = annotations
            .get("qemu-ssh.jumpstarter.dev/state")
            .cloned()
            .unwrap_or_default();
        let error = annotations
            .get("qemu-ssh.jumpstarter.dev/last-error")
            .cloned()
            .unwrap_or_default();
        let right = state == "Draining"
            && error.starts_with("QS201 CredentialsMissing: Secret lab-ssh-key does not exist");
        if right {
            Ok(())
        } else {
            Err(format!("{state}: {error}"))
        }
    })
    .await;
    let told = lab.events().await;
    assert!(told.iter().any(
        |event| event.reason.as_deref() == Some("CredentialsMissing")
            && event.involved_object.name.as_ref() == Some(&name)
    ));
    name
}

#[tokio::test(flavor = "multi_thread")]
async fn of_everything_at_once_ends_when_the_secret_is_back() {
    let _shared = hosts_are_shared().await;
    let (lab, pool) = Pool::in_lab("del-all", 2, |_| {}).await;
    let _controller = lab.controller();
    delete_all_and_see_it_stay(&lab, &pool).await;
    lab.secret("lab-ssh-key", "TESTBED_SSH_KEY");
    lab.clean(2).await;
    lab.gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_everything_at_once_ends_when_the_teardown_is_waived() {
    let _shared = hosts_are_shared().await;
    let (lab, pool) = Pool::in_lab("waive", 2, |_| {}).await;
    let mut controller = lab.controller();
    let name = delete_all_and_see_it_stay(&lab, &pool).await;
    let waiver = "qemu-ssh.jumpstarter.dev/waive-teardown=host scrapped";
    lab.kubectl(&["annotate", "exporter", &name, waiver], "");
    lab.gone().await;
    controller.stop().await;
    lab.sweep(2, &name);
}
