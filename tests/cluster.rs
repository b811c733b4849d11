//! The cluster side against a real API server, under exactly the Role that the operator gives.
//!
//! Needs the testbed: `tests/testbed/testbed up`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod lab;

use exporter_set_controller::api::{
    Exporter, ExporterSet, ExporterSetStatus, ExporterSpec, FINALIZER, Lease as ExporterLease,
    VirtualTargetClass,
};
use exporter_set_controller::cluster::{Election, KubeCluster, Timing};
use exporter_set_controller::controller::ports::{
    Change, Cluster, ClusterError, ExporterPatch, Leadership, Notice, NoticeKind,
};
use k8s_openapi::api::coordination::v1::Lease as LeaderLease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use lab::{Lab, client, eventually, in_time};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

async fn make_set(lab: &Lab, name: &str) -> ExporterSet {
    lab.make(json!({
        "apiVersion": "virtualtarget.jumpstarter.dev/v1alpha1", "kind": "ExporterSet",
        "metadata": {"name": name},
        "spec": {"virtualTargetClassName": "class", "selector": {"matchLabels": {"board": "qemu"}},
            "template": {"metadata": {"labels": {"board": "qemu"}}, "spec": {"drivers": []}}},
    }))
    .await
}

/// A cluster whose first lists are in.
async fn watching(client: Client, lab: &Lab) -> Arc<KubeCluster> {
    let cluster = KubeCluster::start(client, &lab.name);
    in_time("the first lists", cluster.ready()).await;
    Arc::new(cluster)
}

fn exporter(name: &str) -> Exporter {
    let spec = ExporterSpec {
        enabled: Some(true),
        ..ExporterSpec::default()
    };
    let mut exporter = Exporter::new(name, spec);
    exporter.finalizers_mut().push(FINALIZER.to_owned());
    exporter
}

#[tokio::test]
async fn every_change_in_the_namespace_is_seen() {
    let lab = Lab::new("watch").await;
    let cluster = watching(lab.controller.clone(), &lab).await;
    let mut changes = cluster.changes();
    make_set(&lab, "set").await;
    lab.make::<VirtualTargetClass>(json!({
        "apiVersion": "virtualtarget.jumpstarter.dev/v1alpha1", "kind": "VirtualTargetClass",
        "metadata": {"name": "class"}, "spec": {"provisioner": "qemu-ssh.jumpstarter.dev"},
    }))
    .await;
    lab.make::<ExporterLease>(json!({
        "apiVersion": "jumpstarter.dev/v1alpha1", "kind": "Lease", "metadata": {"name": "lease"},
        "spec": {"clientRef": {"name": "me"}, "duration": "1h", "selector": {"matchLabels": {"board": "qemu"}}},
    }))
    .await;
    lab.make::<Secret>(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"}, "stringData": {"k": "v"},
    }))
    .await;
    lab.make::<ConfigMap>(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"k": "v"},
    }))
    .await;
    cluster
        .create_exporter(&exporter("exporter"))
        .await
        .unwrap();
    let deleted = DeleteParams::default();
    lab.admin::<VirtualTargetClass>()
        .delete("class", &deleted)
        .await
        .unwrap();
    lab.admin::<Secret>()
        .delete("secret", &deleted)
        .await
        .unwrap();

    let name = String::from;
    let mut expected = [
        (Change::Set(name("set")), 1),
        (Change::Class(name("class")), 2),
        (Change::Lease(name("lease")), 1),
        (Change::Secret(name("secret")), 2),
        (Change::ConfigMap(name("map")), 1),
        (Change::Exporter(name("exporter")), 1),
    ];
    in_time("all changes", async {
        while expected.iter().any(|(_, times)| *times > 0) {
            let change = changes.recv().await.unwrap();
            if let Some((_, times)) = expected.iter_mut().find(|(c, _)| *c == change) {
                *times -= 1;
            }
        }
    })
    .await;
    assert_eq!(cluster.sets()[0].spec.virtual_target_class_name, "class");
    assert_eq!(cluster.leases()[0].name_any(), "lease");
    assert_eq!(cluster.exporters()[0].spec.enabled, Some(true));
    assert!(cluster.classes().is_empty());
    assert_eq!(cluster.get_config_map("map").await.unwrap()["k"], "v");
}

/// What somebody else does to the Exporter `e`.
async fn merge(api: &Api<Exporter>, body: Value) {
    let params = PatchParams::default();
    api.patch("e", &params, &Patch::Merge(body)).await.unwrap();
}

#[tokio::test]
async fn an_exporter_is_written_beside_others() {
    let lab = Lab::new("exporter").await;
    let cluster = watching(lab.controller.clone(), &lab).await;
    let uid = cluster
        .create_exporter(&exporter("e"))
        .await
        .unwrap()
        .uid()
        .unwrap();
    let again = cluster.create_exporter(&exporter("e")).await;
    assert!(
        matches!(again, Err(ClusterError::AlreadyExists(_))),
        "{again:?}"
    );

    let api: Api<Exporter> = lab.admin();
    merge(
        &api,
        json!({"metadata": {"finalizers": [FINALIZER, "example.com/other"]}}),
    )
    .await;
    let others = tokio::spawn(async move {
        for turn in 0..20 {
            merge(
                &api,
                json!({"metadata": {"annotations": {"turn": turn.to_string()}}}),
            )
            .await;
        }
    });
    for turn in 0..6 {
        let patch = ExporterPatch {
            uid: uid.clone(),
            labels: [("board".to_owned(), Some("qemu".to_owned()))].into(),
            annotations: [("ours".to_owned(), Some(turn.to_string()))].into(),
            enabled: Some(turn % 2 == 0),
            finalizer: Some(turn % 2 == 0),
        };
        let patched = cluster.patch_exporter("e", &patch).await.unwrap();
        assert_eq!(patched.spec.enabled, Some(turn % 2 == 0));
        assert_eq!(
            patched.finalizers().iter().any(|f| f == FINALIZER),
            turn % 2 == 0
        );
        assert!(
            patched
                .finalizers()
                .iter()
                .any(|f| f == "example.com/other")
        );
    }
    others.await.unwrap();
    let now = cluster.get_exporter("e").await.unwrap();
    let (theirs, ours) = (&now.annotations()["turn"], &now.annotations()["ours"]);
    assert_eq!((theirs.as_str(), ours.as_str()), ("19", "5"));
    merge(&lab.admin(), json!({"metadata": {"finalizers": null}})).await;
}

#[tokio::test]
async fn an_exporter_is_changed_and_deleted_only_if_it_is_the_one_meant() {
    let lab = Lab::new("uid").await;
    let cluster = watching(lab.controller.clone(), &lab).await;
    let uid = cluster
        .create_exporter(&exporter("e"))
        .await
        .unwrap()
        .uid()
        .unwrap();
    merge(
        &lab.admin(),
        json!({"metadata": {"annotations": {"ours": "1"}}}),
    )
    .await;
    let remove = |uid: &str, finalizer| ExporterPatch {
        uid: uid.to_owned(),
        annotations: [("ours".to_owned(), None)].into(),
        finalizer,
        ..ExporterPatch::default()
    };
    for finalizer in [None, Some(false)] {
        let refused = cluster
            .patch_exporter("e", &remove("another", finalizer))
            .await;
        assert!(
            matches!(refused, Err(ClusterError::Conflict(_))),
            "{refused:?}"
        );
    }
    let refused = cluster.delete_exporter("e", "another").await;
    assert!(
        matches!(refused, Err(ClusterError::Conflict(_))),
        "{refused:?}"
    );
    let untouched = cluster.get_exporter("e").await.unwrap();
    assert!(untouched.metadata.deletion_timestamp.is_none());
    assert_eq!(untouched.annotations()["ours"], "1");

    cluster.delete_exporter("e", &uid).await.unwrap();
    let again = cluster.delete_exporter("e", &uid).await;
    assert!(again.is_ok(), "a second delete changes nothing: {again:?}");
    let held = cluster.get_exporter("e").await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    let last = cluster
        .patch_exporter("e", &remove(&uid, Some(false)))
        .await
        .unwrap();
    assert!(!last.annotations().contains_key("ours"));
    let gone = cluster.get_exporter("e").await;
    assert!(matches!(gone, Err(ClusterError::NotFound(_))), "{gone:?}");
    let gone = cluster.delete_exporter("e", &uid).await;
    assert!(matches!(gone, Err(ClusterError::NotFound(_))), "{gone:?}");
}

#[tokio::test]
async fn a_status_carries_every_counter() {
    let lab = Lab::new("status").await;
    let cluster = watching(lab.controller.clone(), &lab).await;
    make_set(&lab, "pool").await;
    let status = ExporterSetStatus {
        replicas: 3,
        leased_replicas: 1,
        conditions: vec![
            serde_json::from_value(json!({
                "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
                "message": "3/1 replicas ready", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }))
            .unwrap(),
        ],
        ..ExporterSetStatus::default()
    };
    cluster.patch_set_status("pool", &status).await.unwrap();
    let set = lab.admin::<ExporterSet>().get("pool").await.unwrap();
    assert_eq!(set.status.unwrap(), status);
    let missing = cluster.patch_set_status("nobody", &status).await;
    assert!(
        matches!(missing, Err(ClusterError::NotFound(_))),
        "{missing:?}"
    );
}

#[tokio::test]
async fn repeated_events_are_counted_not_written_again() {
    let lab = Lab::new("events").await;
    let cluster = watching(lab.controller.clone(), &lab).await;
    let set = make_set(&lab, "pool").await;
    let notice = Notice {
        kind: NoticeKind::Set,
        name: "pool".to_owned(),
        uid: set.uid().unwrap(),
        warning: true,
        reason: "ExporterSetDegraded".to_owned(),
        message: "ä".repeat(2000),
    };
    for _ in 0..3 {
        cluster.notify(&notice).await;
    }
    let other = Notice {
        message: "another host".to_owned(),
        ..notice
    };
    cluster.notify(&other).await;
    let api: Api<Event> = lab.admin();
    let events = api
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .items;
    let mut counts: Vec<_> = events.iter().map(|e| e.count.unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 3]);
    for event in events {
        assert_eq!(event.involved_object.uid, set.uid());
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(
            event.source.unwrap().component.as_deref(),
            Some("exporter-set-controller")
        );
    }
}

#[tokio::test]
async fn host_keys_are_pinned_once_by_whoever_comes_first() {
    let lab = Lab::new("pins").await;
    let cluster = watching(lab.controller.clone(), &lab).await;
    assert_eq!(cluster.pinned_host_keys().await.unwrap(), "");
    let pins = (0..5).map(|n| {
        let cluster = Arc::clone(&cluster);
        async move {
            let line = format!("lab{} ssh-ed25519 KEY{n}", n / 2);
            let lines = cluster.pin_host_key(&line).await.unwrap();
            assert!(lines.contains(&format!("lab{} ", n / 2)), "{lines}");
        }
    });
    futures::future::join_all(pins).await;
    let text = cluster.pinned_host_keys().await.unwrap();
    let mut hosts: Vec<_> = text.lines().filter_map(|l| l.split(' ').next()).collect();
    hosts.sort_unstable();
    assert_eq!(hosts, ["lab0", "lab1", "lab2"], "{text}");
    assert_eq!(
        cluster
            .pin_host_key("lab0 ssh-ed25519 FORGED")
            .await
            .unwrap(),
        text
    );
    let secret = cluster
        .get_secret("exporter-set-controller-known-hosts")
        .await
        .unwrap();
    assert_eq!(secret["known_hosts"].as_slice(), text.as_bytes());
    let missing = cluster.get_secret("nobody").await;
    assert!(
        matches!(missing, Err(ClusterError::NotFound(_))),
        "{missing:?}"
    );
}

#[tokio::test]
async fn what_the_role_forbids_is_said_and_waited_for() {
    let lab = Lab::new("forbidden").await;
    let cluster = KubeCluster::start(lab.controller.clone(), "default");
    let refused = cluster.get_exporter("e").await;
    assert!(
        matches!(refused, Err(ClusterError::Forbidden(_))),
        "{refused:?}"
    );
    let ready = timeout(Duration::from_secs(2), cluster.ready()).await;
    assert!(ready.is_err(), "nothing could be listed");
}

/// A wire to the API server that can be pulled out.
async fn wire(lab: &Lab) -> (Client, watch::Sender<bool>) {
    let kubeconfig = Kubeconfig::read_from(&lab.kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let server = config.cluster_url.authority().unwrap().to_string();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    config.cluster_url = format!("https://{address}").parse().unwrap();
    let (plug, plugged) = watch::channel(true);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (mut plugged, server) = (plugged.clone(), server.clone());
            tokio::spawn(async move {
                if !*plugged.borrow() {
                    return;
                }
                let mut far = TcpStream::connect(server).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    _ = plugged.wait_for(|plugged| !plugged) => {}
                }
            });
        }
    });
    (Client::try_from(config).unwrap(), plug)
}

#[tokio::test]
async fn what_happened_during_an_outage_is_seen_afterwards() {
    let lab = Lab::new("outage").await;
    let (client, plug) = wire(&lab).await;
    make_set(&lab, "kept").await;
    make_set(&lab, "deleted").await;
    let cluster = watching(client, &lab).await;
    let mut changes = cluster.changes();
    plug.send_replace(false);
    let sets: Api<ExporterSet> = lab.admin();
    sets.delete("deleted", &DeleteParams::default())
        .await
        .unwrap();
    make_set(&lab, "new").await;
    let cut_off = timeout(Duration::from_millis(300), changes.recv()).await;
    assert!(cut_off.is_err(), "the wire is not cut: {cut_off:?}");
    assert_eq!(cluster.sets().len(), 2, "what was seen last holds");

    plug.send_replace(true);
    let mut missing = vec!["deleted", "new"];
    in_time("both changes", async {
        while !missing.is_empty() {
            let change = changes.recv().await.unwrap();
            missing.retain(|name| Change::Set((*name).to_owned()) != change);
        }
    })
    .await;
    let names: Vec<_> = cluster.sets().iter().map(|set| set.name_any()).collect();
    assert_eq!(names, ["kept", "new"]);
}

/// A candidate with a runtime and connections of its own, which can be stopped dead.
async fn candidate(lab: &Lab, identity: &str) -> (Election, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let timing = Timing {
        lease_duration: Duration::from_secs(4),
        renew_deadline: Duration::from_secs(3),
        retry_period: Duration::from_millis(300),
    };
    let (kubeconfig, namespace) = (lab.kubeconfig.clone(), lab.name.clone());
    let identity = identity.to_owned();
    let started = runtime.spawn(async move {
        let client = client(&kubeconfig).await;
        Election::start(client, &namespace, "leader", &identity, timing)
    });
    let election = started.await.unwrap();
    (election, runtime)
}

/// The one that leads; two are a failure.
fn leader(candidates: &[(Election, tokio::runtime::Runtime)]) -> Option<usize> {
    let leads = |c: &(Election, _)| c.0.fence().is_some();
    let first = candidates.iter().position(leads)?;
    // Asked again: by now the first one's term may be over.
    let second = candidates.iter().skip(first + 1).any(leads);
    assert!(
        !second || candidates[first].0.fence().is_none(),
        "two leaders"
    );
    Some(first)
}

async fn elect(candidates: &[(Election, tokio::runtime::Runtime)], but: Option<usize>) -> usize {
    let look = || async { leader(candidates).filter(|now| Some(*now) != but) };
    eventually("a leader", look).await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_three_one_leads_until_it_ends_or_lets_go() {
    let lab = Lab::new("leader").await;
    let mut candidates = Vec::new();
    for identity in ["a", "b", "c"] {
        candidates.push(candidate(&lab, identity).await);
    }
    let first = elect(&candidates, None).await;
    let fence = candidates[first].0.fence().unwrap();
    let leases: Api<LeaderLease> = lab.admin();
    let renewals = || async {
        let spec = leases.get("leader").await.unwrap().spec.unwrap();
        (spec.holder_identity.unwrap(), spec.renew_time.unwrap())
    };

    // Alive for longer than the others would wait: nothing is stolen.
    let (holder, begun) = renewals().await;
    eventually("six seconds of renewals", || async {
        assert_eq!(leader(&candidates), Some(first));
        let (now, renewed) = renewals().await;
        assert_eq!(now, holder);
        (renewed.0.duration_since(begun.0).as_secs() >= 6).then_some(())
    })
    .await;
    assert_eq!(candidates[first].0.fence(), Some(fence.clone()));

    candidates[first].0.release().await;
    assert_eq!(candidates[first].0.fence(), None);
    let second = elect(&candidates, Some(first)).await;
    assert_eq!(candidates[second].0.fence().unwrap().epoch, fence.epoch + 1);

    // A crash: the Lease must run out before the last one leads.
    let (_, renewed) = renewals().await;
    let dead = candidates.remove(second);
    let stopped = Instant::now();
    dead.1.shutdown_background();
    in_time("the dead one's term", dead.0.lost()).await;
    let third = elect(&candidates, None).await;
    let epoch = candidates[third].0.fence().unwrap().epoch;
    assert_eq!(epoch, fence.epoch + 2);
    let taken = leases
        .get("leader")
        .await
        .unwrap()
        .spec
        .unwrap()
        .acquire_time
        .unwrap();
    let silent = taken.0.duration_since(renewed.0).as_secs_f64();
    assert!(
        silent >= 4.0,
        "taken after {silent} s, {:?} after the crash",
        stopped.elapsed()
    );
    for (_, runtime) in candidates {
        runtime.shutdown_background();
    }
}
