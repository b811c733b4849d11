//! As many exporters as asked for, and back.

use super::harness::{eventually, hosts_are_shared};
use super::manifests::Pool;

#[tokio::test(flavor = "multi_thread")]
async fn two_then_none() {
    let _shared = hosts_are_shared().await;
    let (lab, pool) = Pool::in_lab("scale", 2, |pool| {
        pool.min_available = 2;
        pool.cooldown = "1s".into();
    })
    .await;
    let _controller = lab.controller();
    lab.running(2).await;

    lab.patch_set(&pool.set, r#"{"spec":{"minAvailableReplicas":0}}"#);
    eventually("no exporters", || async {
        let left = lab.exporters().await.len();
        if left == 0 {
            Ok(())
        } else {
            Err(format!("{left} are left"))
        }
    })
    .await;
    lab.clean(2).await;
    eventually("an empty status", || async {
        let status = lab.set(&pool.set).await.status.unwrap_or_default();
        let counts = (
            status.replicas,
            status.exporters_disabled,
            status.pods_running,
        );
        if counts == (0, 0, 0) {
            Ok(())
        } else {
            Err(format!("{counts:?}"))
        }
    })
    .await;
    let available = lab.condition(&pool.set, "Available").await;
    assert_eq!(
        available,
        "True NoReplicasRequired No minimum replicas configured"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exporter_that_served_a_lease_is_replaced() {
    let _shared = hosts_are_shared().await;
    let (lab, _) = Pool::in_lab("lease", 2, |_| {}).await;
    let _controller = lab.controller();
    let first = lab.running(1).await.remove(0).metadata.name.unwrap();
    lab.apply(
        r#"
apiVersion: jumpstarter.dev/v1alpha1
kind: Lease
metadata: {name: job}
spec: {clientRef: {name: ci}, duration: 1h, selector: {matchLabels: {board: aarch64-qemu}}}
"#,
    );
    let leased = |status: &str| format!("jsonpath={{.status.{status}}}");
    eventually("the lease", || async {
        let got = lab.kubectl(
            &[
                "get",
                "leases.jumpstarter.dev",
                "job",
                "-o",
                &leased("exporterRef.name"),
            ],
            "",
        );
        if got == first { Ok(()) } else { Err(got) }
    })
    .await;
    // The warm buffer is filled again beside the leased one.
    eventually("a second exporter", || async {
        let count = lab.exporters().await.len();
        if count == 2 {
            Ok(())
        } else {
            Err(format!("{count} exporters"))
        }
    })
    .await;
    lab.kubectl(
        &[
            "patch",
            "leases.jumpstarter.dev",
            "job",
            "--type=merge",
            "-p",
            r#"{"spec":{"release":true}}"#,
        ],
        "",
    );
    eventually("the first one's end", || async {
        let left = lab
            .exporters()
            .await
            .iter()
            .filter(|e| e.metadata.name.as_ref() == Some(&first))
            .count();
        if left == 0 {
            Ok(())
        } else {
            Err("still there".to_owned())
        }
    })
    .await;
    lab.running(1).await;
    lab.remove_all(2).await;
}
