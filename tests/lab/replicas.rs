//! Two replicas: one leads, the other takes over.

use super::harness::{eventually, hosts_are_shared};
use super::manifests::Pool;
use kube::ResourceExt;

#[tokio::test(flavor = "multi_thread")]
async fn the_second_takes_over_what_the_first_did() {
    let _shared = hosts_are_shared().await;
    let (lab, pool) = Pool::in_lab("replicas", 2, |_| {}).await;
    let mut first = lab.controller();
    let name = lab.running(1).await[0].name_any();
    // The operator's Deployment gives no volume: the second one has a journal of its own.
    let second = lab.controller_at(&lab.dir.path().join("another-journal"), &[]);
    assert_eq!(first.stop().await, Some(0));
    eventually("the second one's lead", || async {
        if second
            .log()
            .contains("adopted: the journal did not know it")
        {
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
