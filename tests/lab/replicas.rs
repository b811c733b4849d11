//! Two replicas: one leads, the other takes over.

use super::harness::{Lab, eventually, hosts_are_shared};
use super::manifests::Pool;
use kube::ResourceExt;

#[tokio::test(flavor = "multi_thread")]
async fn the_second_takes_over_what_the_first_did() {
    let _shared = hosts_are_shared().await;
    let lab = Lab::new("replicas").await;
    let pool = Pool {
        min_available: 1,
        ..Pool::on(&lab, 2)
    };
    lab.secret("lab-ssh-key", "TESTBED_SSH_KEY");
    lab.apply(&pool.both(&lab));
    let mut first = lab.controller();
    let name = lab.running(1).await[0].name_any();
    // The operator's Deployment gives no volume: the second one has a journal of its own.
    let second = lab.controller_with(&[("JOURNAL_DIR", "")]);
    assert_eq!(first.stop().await, Some(0));
    eventually("the second one's lead", || async {
        if second.log().contains("resumed from the journal") {
            Ok(())
        } else {
            Err(second.log())
        }
    })
    .await;
    lab.patch_set(&pool.set, r#"{"spec":{"minAvailableReplicas":2}}"#);
    let names: Vec<String> = lab
        .running(2)
        .await
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert!(names.contains(&name), "{name} among {names:?}");
    lab.remove_all(2).await;
}
