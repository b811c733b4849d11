//! `jumpstarter-controller` and `jmp`, the programs, on a real API server.
//!
//! Needs the testbed's control plane: `TESTBED_KUBECONFIG` names its admin
//! kubeconfig. Run with `--ignored`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::fmt::Debug;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed_standins::controller::objects::{Exporter, Lease, NameRef, is_true};
use testbed_standins::report::Report;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A namespace with a controller of its own.
struct Lab {
    client: Client,
    namespace: String,
    folder: tempfile::TempDir,
    control: u16,
    controller: Option<Process>,
    listen: u16,
}

/// A free port below those that outgoing connections get.
fn port() -> u16 {
    let start = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    (start..32_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

impl Lab {
    async fn new() -> Self {
        let kubeconfig = std::env::var("TESTBED_KUBECONFIG").expect("TESTBED_KUBECONFIG is set");
        let kubeconfig = kube::config::Kubeconfig::read_from(&kubeconfig).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .unwrap();
        let client = Client::try_from(config).unwrap();
        let namespace = format!("standins-{}", std::process::id());
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        let listen = port();
        let mut lab = Self {
            client,
            namespace,
            folder: tempfile::tempdir().unwrap(),
            listen,
            control: (listen + 1..32_000)
                .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
                .unwrap(),
            controller: None,
        };
        lab.start_controller().await;
        lab
    }

    async fn start_controller(&mut self) {
        let ready = self.folder.path().join("ready");
        let child = Command::new(env!("CARGO_BIN_EXE_jumpstarter-controller"))
            .env("KUBECONFIG", std::env::var("TESTBED_KUBECONFIG").unwrap())
            .args([
                "--namespace",
                &self.namespace,
                "--tick",
                "200ms",
                "--offline-after",
                "3s",
            ])
            .args(["--endpoint", &format!("127.0.0.1:{}", self.listen)])
            .args(["--listen", &format!("127.0.0.1:{}", self.listen)])
            .args(["--control", &format!("127.0.0.1:{}", self.control)])
            .arg("--ready-file")
            .arg(&ready)
            .spawn()
            .unwrap();
        self.controller = Some(Process(child));
        until("the controller serves", async || {
            ready.exists().then_some(())
        })
        .await;
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits until an object is as it should be.
    async fn wait<K>(&self, what: &str, name: &str, is_so: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let api = self.api::<K>();
        until(what, async || {
            api.get_opt(name)
                .await
                .unwrap()
                .filter(|object| is_so(object))
        })
        .await
    }

    async fn create<K>(&self, name: &str, mut manifest: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        manifest["apiVersion"] = K::api_version(&()).into();
        manifest["kind"] = K::kind(&()).into();
        manifest["metadata"]["name"] = name.into();
        let resource = kube::core::ApiResource::erase::<K>(&());
        let api: Api<kube::core::DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let object = serde_json::from_value(manifest).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn create_exporter(&self, name: &str) {
        let labels = json!({ "board": "a", "jumpstarter.dev/stale": "x" });
        self.create::<Exporter>(
            name,
            json!({ "metadata": { "labels": labels }, "spec": {} }),
        )
        .await;
    }

    async fn create_lease(&self, name: &str, board: &str) {
        let spec = json!({
            "clientRef": { "name": "client" },
            "selector": { "matchLabels": { "board": board } },
            "duration": "10m",
        });
        self.create::<Lease>(name, json!({ "spec": spec })).await;
    }

    async fn token(&self, exporter: &str) -> String {
        let name = format!("{exporter}-exporter");
        let has_token = |secret: &Secret| secret.data.as_ref().is_some_and(|data| !data.is_empty());
        let secret = self.wait("a credential", &name, has_token).await;
        String::from_utf8(secret.data.unwrap()["token"].0.clone()).unwrap()
    }

    fn write_config(&self, name: &str, token: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{name}.yaml"));
        let config = json!({
            "apiVersion": "jumpstarter.dev/v1alpha1", "kind": "ExporterConfig",
            "metadata": { "namespace": self.namespace, "name": name },
            "endpoint": format!("127.0.0.1:{}", self.listen), "token": token,
            "exitOnLeaseEnd": true,
        });
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    fn start_exporter(&self, config: &PathBuf) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_jmp"));
        command
            .args(["run", "--exporter-config"])
            .arg(config)
            .stderr(Stdio::null());
        Process(command.spawn().unwrap())
    }

    /// A GET on the control endpoint: status line and body.
    async fn get(&self, path: &str) -> (String, String) {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.control))
            .await
            .unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Reason of a lease's condition that is True.
fn reason<'lease>(lease: &'lease Lease, kind: &str) -> Option<&'lease str> {
    let condition = lease
        .status
        .conditions
        .iter()
        .find(|condition| condition.type_ == kind)?;
    (condition.status == "True").then_some(condition.reason.as_str())
}

fn online(exporter: &Exporter) -> (&str, &str) {
    let condition = exporter
        .status
        .conditions
        .iter()
        .find(|found| found.type_ == "Online");
    condition.map_or(("", ""), |online| {
        (online.status.as_str(), online.reason.as_str())
    })
}

/// Credentials, registration, leases one after the other, and an end, in the order of a life.
#[tokio::test]
#[ignore = "needs the testbed's control plane"]
async fn a_whole_life() {
    let mut lab = Lab::new().await;
    let config = lab.is_credentialed().await;
    let jmp = lab.serves_the_first_lease(&config).await;
    lab.leaves_after_it(jmp).await;
    lab.resumes_the_second_lease(&config).await;

    // Its leases go with it.
    lab.api::<Exporter>()
        .delete("x1", &DeleteParams::default())
        .await
        .unwrap();
    let leases: Api<Lease> = lab.api();
    until("the lease is gone", async || {
        leases
            .get_opt("second")
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await;
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    namespaces
        .delete(&lab.namespace, &DeleteParams::default())
        .await
        .unwrap();
}

impl Lab {
    /// A new Exporter gets what it needs; returns the path of a config with its first token.
    async fn is_credentialed(&self) -> PathBuf {
        self.create_exporter("x1").await;
        let old_token = self.token("x1").await;
        let exporter: Exporter = self
            .wait("endpoint", "x1", |x: &Exporter| x.status.endpoint.is_some())
            .await;
        assert_eq!(
            exporter.status.credential,
            Some(NameRef {
                name: "x1-exporter".into()
            })
        );
        assert_eq!(online(&exporter), ("False", "Seen"));

        // A token that was deleted comes anew; the old one is still good, as its use shows.
        let secrets: Api<Secret> = self.api();
        secrets
            .delete("x1-exporter", &DeleteParams::default())
            .await
            .unwrap();
        until("a new token", async || {
            (self.token("x1").await != old_token).then_some(())
        })
        .await;
        self.write_config("x1", &old_token)
    }

    /// A lease that matches nothing ends; one whose exporter is away waits, and is served.
    async fn serves_the_first_lease(&self, config: &PathBuf) -> Process {
        self.create_lease("nothing", "z").await;
        let ended = |lease: &Lease| lease.is_ended() && lease.metadata.labels.is_some();
        let nothing: Lease = self.wait("an ended lease", "nothing", ended).await;
        assert_eq!(reason(&nothing, "Unsatisfiable"), Some("NoAccess"));
        self.create_lease("first", "a").await;
        let waits = |lease: &Lease| reason(lease, "Pending") == Some("Offline");
        self.wait("a waiting lease", "first", waits).await;

        let jmp = self.start_exporter(config);
        let exporter: Exporter = self
            .wait("the first lease", "x1", |x: &Exporter| serves(x, "first"))
            .await;
        assert!(exporter.has("Online") && exporter.has("Registered"));
        let labels = exporter.metadata.labels.clone().unwrap();
        assert_eq!(
            labels.get("jumpstarter.dev/name").map(String::as_str),
            Some("x1")
        );
        assert_eq!(labels.len(), 2, "the stale label is gone: {labels:?}");
        let first: Lease = self.api().get("first").await.unwrap();
        assert!(is_true(&first.status.conditions, "Ready"));
        assert_eq!(
            first.metadata.owner_references,
            Some(vec![exporter.owner()])
        );

        let path = format!("/exporters/{}/x1/report?fresh", self.namespace);
        let (status, body) = self.get(&path).await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        let report: Report = serde_json::from_str(&body).unwrap();
        assert!(report.network_namespace.starts_with("net:["));
        assert_eq!(
            self.get("/exporters/none/x9/report").await.0,
            "HTTP/1.1 404 Not Found"
        );
        jmp
    }

    /// While a second lease waits the first one is released, and the process ends.
    async fn leaves_after_it(&self, mut jmp: Process) {
        self.create_lease("second", "a").await;
        let waits = |lease: &Lease| reason(lease, "Pending") == Some("NotAvailable");
        self.wait("the second lease waits", "second", waits).await;
        let release = Patch::Merge(json!({ "spec": { "release": true } }));
        let leases: Api<Lease> = self.api();
        leases
            .patch("first", &PatchParams::default(), &release)
            .await
            .unwrap();
        self.wait("the first lease ended", "first", Lease::is_ended)
            .await;
        let exit = until("the exporter ends", async || jmp.0.try_wait().unwrap()).await;
        assert_eq!(exit.code(), Some(0));
        let left = |x: &Exporter| !x.has("Registered") && !x.has("Online");
        let exporter: Exporter = self.wait("the leave", "x1", left).await;
        assert!(exporter.status.devices.is_none());
    }

    /// Started again it serves the second lease, also through a restart of the
    /// controller. Killed, it is lost, and keeps its lease.
    async fn resumes_the_second_lease(&mut self, config: &PathBuf) {
        let mut jmp = self.start_exporter(config);
        let before: Exporter = self
            .wait("the second lease", "x1", |x: &Exporter| serves(x, "second"))
            .await;
        self.controller = None;
        std::fs::remove_file(self.folder.path().join("ready")).unwrap();
        self.start_controller().await;
        let is_back =
            |x: &Exporter| serves(x, "second") && x.status.last_seen > before.status.last_seen;
        self.wait("the exporter is back", "x1", is_back).await;
        assert!(jmp.0.try_wait().unwrap().is_none(), "the exporter ended");

        drop(jmp);
        let lost = |x: &Exporter| online(x) == ("False", "Seen") && holds(x, "second");
        let exporter: Exporter = self.wait("the loss", "x1", lost).await;
        assert!(
            exporter
                .status
                .status_message
                .unwrap()
                .starts_with("Connection lost")
        );
    }
}

fn holds(exporter: &Exporter, lease: &str) -> bool {
    exporter.status.lease_ref == Some(NameRef { name: lease.into() })
}

fn serves(exporter: &Exporter, lease: &str) -> bool {
    holds(exporter, lease) && exporter.status.exporter_status.as_deref() == Some("LeaseReady")
}
