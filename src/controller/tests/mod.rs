//! The whole loop against an outside in memory, on a clock that does not wait.

mod fakes;

use super::{Engine, Parts};
use crate::api::*;
use crate::instance::{Failure, FailureClass, Step};
use fakes::*;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const HOST: &str = "lab-host-01.example.com";

/// The outside, which outlives the controller.
struct Outside {
    crash: Arc<Crash>,
    cluster: Arc<FakeCluster>,
    hosts: Arc<FakeHosts>,
    journal: Arc<FakeJournal>,
    clock: FakeClock,
}

impl Outside {
    fn new() -> Self {
        let crash = Arc::new(Crash::default());
        let cluster = Arc::new(FakeCluster::new(&crash));
        let hosts = Arc::new(FakeHosts::new(&cluster, &crash));
        let journal = Arc::new(FakeJournal::new(&crash));
        cluster.change(|objects| {
            let manifests = include_str!("manifests.yaml");
            let mut documents = serde_yaml::Deserializer::from_str(manifests);
            let mut next = || documents.next().unwrap();
            let class: VirtualTargetClass = serde::Deserialize::deserialize(next()).unwrap();
            let set: ExporterSet = serde::Deserialize::deserialize(next()).unwrap();
            objects.classes.insert(class.name_any(), class);
            objects.sets.insert(set.name_any(), set);
            let key = BTreeMap::from([("ssh-privatekey".to_owned(), "key".to_owned())]);
            objects.secrets.insert("lab-ssh-key".into(), key);
            let ca = BTreeMap::from([("ca.crt".to_owned(), String::new())]);
            objects
                .config_maps
                .insert("jumpstarter-service-ca-cert".into(), ca);
        });
        Self {
            crash,
            cluster,
            hosts,
            journal,
            clock: FakeClock::new(),
        }
    }

    fn engine(&self) -> Engine<impl super::World + use<>> {
        Engine::new(Arc::new(Parts {
            cluster: Arc::clone(&self.cluster),
            hosts: Arc::clone(&self.hosts),
            journal: Arc::clone(&self.journal),
            clock: self.clock.clone(),
            leadership: FakeLeadership,
        }))
    }

    /// Runs the controller for so long, with a new start wherever it crashes.
    async fn run(&self, time: Duration) {
        let end = tokio::time::sleep(time);
        tokio::pin!(end);
        loop {
            tokio::select! {
                result = self.engine().run(std::future::pending()) => panic!("{result:?}"),
                () = self.crash.hit.notified() => {}
                () = &mut end => return,
            }
        }
    }

    fn ask(&self, change: impl FnOnce(&mut ExporterSetSpec)) {
        self.cluster.change(|objects| {
            change(&mut objects.sets.get_mut("aarch64-ssh-pool").unwrap().spec);
        });
    }

    fn exporters(&self) -> Vec<Exporter> {
        self.cluster
            .look(|objects| objects.exporters.values().cloned().collect())
    }

    fn assert_one_runs(&self) {
        let exporters = self.exporters();
        assert_eq!(exporters.len(), 1);
        let annotations = exporters[0].annotations();
        assert_eq!(
            annotations.get(ANNOTATION_HOST).map(String::as_str),
            Some(HOST)
        );
        let on_host = self.hosts.instances(HOST);
        assert_eq!(
            on_host.keys().collect::<Vec<_>>(),
            [&exporters[0].name_any()]
        );
        let made = [
            Step::WriteConfig,
            Step::WriteQuadlets,
            Step::CreateVolume,
            Step::Start,
        ];
        assert_eq!(on_host.values().next().unwrap().made, made);
    }

    fn assert_nothing_is_left(&self) {
        assert!(self.exporters().is_empty());
        assert_eq!(self.hosts.instances(HOST), BTreeMap::new());
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn up_and_down() {
    let outside = Outside::new();
    outside.run(MINUTE).await;
    outside.assert_one_runs();
    let status = outside
        .cluster
        .look(|objects| objects.sets["aarch64-ssh-pool"].status.clone());
    let status = status.unwrap();
    assert_eq!(
        (
            status.replicas,
            status.available_replicas,
            status.pods_running
        ),
        (1, 1, 1)
    );
    outside.ask(|spec| spec.min_available_replicas = 0);
    outside.run(10 * MINUTE).await;
    outside.assert_nothing_is_left();
}

/// Killed at any of its effects, before and after each, the controller goes on to the same end:
/// one exporter, nothing made twice; then nothing left.
#[tokio::test(start_paused = true)]
async fn a_crash_at_every_effect_leads_to_the_same_end() {
    let mut places = 0;
    for at in 1.. {
        let outside = Outside::new();
        outside.crash.set(at);
        outside.run(2 * MINUTE).await;
        outside.assert_one_runs();
        outside.ask(|spec| spec.min_available_replicas = 0);
        outside.run(10 * MINUTE).await;
        outside.assert_nothing_is_left();
        let created = outside.cluster.look(|objects| objects.created.len());
        assert_eq!(created, 1, "crash at {at}");
        if outside.crash.is_due() {
            places = at - 1;
            break;
        }
    }
    assert!(
        places > 60,
        "only {places} places: the crash is not where the effects are"
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_that_fails_is_tried_again_and_said_to_be_stuck() {
    let outside = Outside::new();
    let failure = Failure::new(
        FailureClass::DiskFull,
        "no space left on /var/lib/containers",
    );
    outside
        .hosts
        .failing
        .lock()
        .unwrap()
        .insert(Step::CreateVolume, failure.clone());
    outside.run(10 * MINUTE).await;
    let status = outside
        .cluster
        .look(|objects| objects.sets["aarch64-ssh-pool"].status.clone());
    let conditions = status.unwrap().conditions;
    let degraded = conditions.iter().find(|c| c.type_ == "Degraded").unwrap();
    assert_eq!(
        (degraded.status.as_str(), degraded.reason.as_str()),
        ("True", "DiskFull")
    );
    assert!(
        degraded
            .message
            .contains("no space left on /var/lib/containers")
    );
    let told = outside.cluster.look(|objects| {
        objects
            .notices
            .iter()
            .filter(|notice| notice.reason == "DiskFull")
            .count()
    });
    assert_eq!(told, 1, "one Event for one fault");
    let entries = outside.journal.entries.lock().unwrap().len();
    assert!(entries < 60, "{entries} records for ten minutes of retries");

    outside.hosts.failing.lock().unwrap().clear();
    outside.run(5 * MINUTE).await;
    outside.assert_one_runs();
}

#[tokio::test(start_paused = true)]
async fn a_lost_journal_is_made_up_for_by_the_cluster() {
    let outside = Outside::new();
    outside.run(MINUTE).await;
    outside.journal.entries.lock().unwrap().clear();
    outside.run(MINUTE).await;
    outside.assert_one_runs();
    outside.journal.entries.lock().unwrap().clear();
    outside.cluster.change(|objects| objects.delete_sets());
    outside.run(MINUTE).await;
    outside.assert_nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn a_teardown_waits_for_its_secret_or_a_waiver() {
    let outside = Outside::new();
    outside.run(MINUTE).await;
    let name = outside.exporters()[0].name_any();
    outside.cluster.change(|objects| {
        objects.delete_sets();
        objects.secrets.remove("lab-ssh-key");
    });
    outside.run(MINUTE).await;
    let exporters = outside.exporters();
    let annotations = exporters[0].annotations();
    assert_eq!(
        annotations.get(ANNOTATION_STATE).map(String::as_str),
        Some("Draining")
    );
    let error = annotations.get(ANNOTATION_LAST_ERROR).unwrap();
    assert!(
        error.contains("Secret lab-ssh-key does not exist"),
        "{error}"
    );
    assert_eq!(exporters[0].spec.enabled, Some(false));

    outside.cluster.change(|objects| {
        let exporter = objects.exporters.get_mut(&name).unwrap();
        let waiver = (
            ANNOTATION_WAIVE_TEARDOWN.to_owned(),
            "the host is scrap".to_owned(),
        );
        exporter.annotations_mut().extend([waiver]);
    });
    outside.run(MINUTE).await;
    assert!(outside.exporters().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_leased_exporter_is_not_torn_down_under_its_user() {
    let outside = Outside::new();
    outside.run(MINUTE).await;
    let name = outside.exporters()[0].name_any();
    let lease = |lease: Option<&str>| {
        outside.cluster.change(|objects| {
            let status = objects
                .exporters
                .get_mut(&name)
                .unwrap()
                .status
                .as_mut()
                .unwrap();
            status.lease_ref = lease.map(|name| k8s_openapi::api::core::v1::LocalObjectReference {
                name: name.to_owned(),
            });
        });
    };
    lease(Some("l1"));
    outside.cluster.change(|objects| objects.delete_sets());
    outside.run(10 * MINUTE).await;
    assert!(outside.hosts.instances(HOST)[&name].running);
    assert_eq!(outside.exporters()[0].spec.enabled, Some(false));
    lease(None);
    outside.run(MINUTE).await;
    outside.assert_nothing_is_left();
}

/// Deleted in the midst of coming up, whatever was just being done when the process died.
#[tokio::test(start_paused = true)]
async fn a_set_deleted_at_any_crash_leaves_nothing() {
    for at in 1.. {
        let outside = Outside::new();
        outside.crash.set(at);
        tokio::select! {
            result = outside.engine().run(std::future::pending()) => panic!("{result:?}"),
            () = outside.crash.hit.notified() => {}
            () = tokio::time::sleep(2 * MINUTE) => {}
        }
        let due = outside.crash.is_due();
        outside.crash.set(0);
        outside.cluster.change(Objects::delete_sets);
        outside.run(10 * MINUTE).await;
        outside.assert_nothing_is_left();
        if due {
            assert!(at > 30, "only {at} places");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_endpoint_is_written_once() {
    let outside = Outside::new();
    outside.run(MINUTE).await;
    let before = outside.journal.entries.lock().unwrap().len();
    outside.cluster.change(|objects| {
        let exporter = objects.exporters.values_mut().next().unwrap();
        exporter.status.as_mut().unwrap().endpoint = Some("other:8082".into());
    });
    outside.run(10 * MINUTE).await;
    let written = outside.journal.entries.lock().unwrap().len() - before;
    assert!(
        (5..30).contains(&written),
        "{written} records for one change"
    );
    assert_eq!(outside.exporters().len(), 1);
    assert!(
        outside.exporters()[0]
            .annotations()
            .contains_key(ANNOTATION_HOST)
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_planned_for_a_set_that_cannot_be_served_waits() {
    use super::ports::Entry;
    use super::record::{Record, instance_stream};
    let outside = Outside::new();
    let about = crate::instance::About {
        namespace: "lab".into(),
        name: "aarch64-ssh-pool-zzzzz".into(),
        uid: None,
        set: "aarch64-ssh-pool".into(),
        set_uid: "uid-set".into(),
    };
    let entry = Entry {
        stream: instance_stream(&about.name),
        version: 1,
        at: std::time::SystemTime::UNIX_EPOCH,
        record: Record::Instance(Box::new(crate::instance::Event::Planned(about))),
    };
    outside.journal.entries.lock().unwrap().push(entry);
    let class = outside.cluster.look(|objects| objects.classes.clone());
    outside.cluster.change(|objects| objects.classes.clear());
    outside.run(MINUTE).await;
    assert!(outside.exporters().is_empty());
    outside.cluster.change(|objects| objects.classes = class);
    outside.run(MINUTE).await;
    assert_eq!(outside.exporters()[0].name_any(), "aarch64-ssh-pool-zzzzz");
    outside.assert_one_runs();
}

#[tokio::test(start_paused = true)]
async fn a_set_that_cannot_be_read_takes_nothing_away() {
    let outside = Outside::new();
    outside.run(MINUTE).await;
    outside.cluster.change(|objects| objects.sets.clear());
    outside.run(10 * MINUTE).await;
    outside.assert_one_runs();
}

#[tokio::test(start_paused = true)]
async fn a_teardown_begins_anew_on_a_host_that_was_rebooted_in_its_midst() {
    let outside = Outside::new();
    outside.run(MINUTE).await;
    let name = outside.exporters()[0].name_any();
    let failure = Failure::new(FailureClass::OutcomeUnknown, "power loss");
    outside
        .hosts
        .failing
        .lock()
        .unwrap()
        .insert(Step::RemoveFiles, failure);
    outside.cluster.change(Objects::delete_sets);
    outside.run(Duration::from_secs(5)).await;
    outside.hosts.reboot(HOST, &name);
    outside.hosts.failing.lock().unwrap().clear();
    outside.run(10 * MINUTE).await;
    outside.assert_nothing_is_left();
}

#[tokio::test(start_paused = true)]
async fn a_ca_bundle_that_could_not_be_read_is_read_again() {
    let outside = Outside::new();
    let maps = outside.cluster.look(|objects| objects.config_maps.clone());
    outside
        .cluster
        .change(|objects| objects.config_maps.clear());
    outside.run(MINUTE).await;
    let status = outside
        .cluster
        .look(|objects| objects.sets["aarch64-ssh-pool"].status.clone());
    let reasons: Vec<String> = status
        .unwrap()
        .conditions
        .into_iter()
        .map(|c| c.reason)
        .collect();
    assert!(
        reasons.contains(&"CaBundleMissing".to_owned()),
        "{reasons:?}"
    );
    outside.cluster.change_map(maps);
    outside.run(MINUTE).await;
    outside.assert_one_runs();
}

#[tokio::test(start_paused = true)]
async fn our_own_status_does_not_hurry_a_retry_but_a_changed_set_does() {
    let outside = Outside::new();
    let failure = Failure::new(FailureClass::DeviceMissing, "/dev/kvm is not there");
    outside
        .hosts
        .failing
        .lock()
        .unwrap()
        .insert(Step::Connect, failure);
    outside.run(2 * MINUTE).await;
    // After 5, 10, 20 and 40 s, give or take a fifth.
    let runs = outside.hosts.runs();
    assert!((4..=6).contains(&runs), "{runs} tries in two minutes");
    let set = "aarch64-ssh-pool";
    let change = |objects: &mut Objects| {
        objects.sets.get_mut(set).unwrap().metadata.generation = Some(2);
    };
    let running = outside.run(Duration::from_secs(2));
    tokio::join!(running, async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        outside.cluster.change(change);
    });
    assert_eq!(
        outside.hosts.runs(),
        runs + 2,
        "at the new start, and at the change"
    );
}
