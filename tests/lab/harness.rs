//! What every test here stands on: the testbed, a namespace of one's own in it, the controller as a
//! process, and waiting for conditions with a deadline.

use exporter_set_controller::api::{Exporter, ExporterSet};
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How long the slowest thing may take on a machine that has much else to do.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// Tests that only add to the hosts share them; one that pulls a plug has them alone.
static HOSTS: RwLock<()> = RwLock::const_new(());

pub(crate) async fn hosts_are_shared() -> RwLockReadGuard<'static, ()> {
    HOSTS.read().await
}

pub(crate) async fn hosts_are_mine() -> RwLockWriteGuard<'static, ()> {
    HOSTS.write().await
}

/// The testbed that `make testbed-up` boots.
pub(crate) struct Testbed(BTreeMap<String, String>);

impl Testbed {
    pub(crate) fn find() -> Self {
        let path = std::env::var("TESTBED_ENV")
            .unwrap_or_else(|_| "/var/tmp/exporter-set-controller-testbed/env".to_owned());
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{path}: {error}; run `make testbed-up` first"));
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Self(pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    pub(crate) fn get(&self, key: &str) -> &str {
        self.0
            .get(key)
            .unwrap_or_else(|| panic!("{key} is not in the testbed's env file"))
    }

    pub(crate) fn host(&self, number: u8) -> &str {
        self.get(&format!("TESTBED_HOST_{number}"))
    }

    /// Runs a verb of the testbed's script.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new(self.get("TESTBED_SCRIPT"))
            .args(arguments)
            .output()
            .unwrap();
        text_of(&format!("testbed {arguments:?}"), &output)
    }

    /// Runs a script as root on a lab host.
    pub(crate) fn ssh(&self, number: u8, script: &str) -> String {
        text_of(script, &self.try_ssh(number, script))
    }

    pub(crate) fn try_ssh(&self, number: u8, script: &str) -> Output {
        let number = number.to_string();
        let mut command = Command::new(self.get("TESTBED_SCRIPT"));
        command
            .args(["ssh", &number, script])
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

fn text_of(what: &str, output: &Output) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{what}: {}\n{out}\n{err}",
        output.status
    );
    out
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A namespace with what the operator makes in it, and the admin's way in. Gone when dropped.
pub(crate) struct Lab {
    pub(crate) testbed: Testbed,
    pub(crate) namespace: String,
    pub(crate) client: Client,
    pub(crate) dir: tempfile::TempDir,
    kubeconfig: String,
}

impl Lab {
    pub(crate) async fn new(name: &str) -> Self {
        let testbed = Testbed::find();
        let namespace = format!("t-{name}-{}", std::process::id());
        let kubeconfig = testbed.run(&["namespace", &namespace]).trim().to_owned();
        let admin = Kubeconfig::read_from(testbed.get("TESTBED_KUBECONFIG")).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(admin, &options)
            .await
            .unwrap();
        let client = Client::try_from(config).unwrap();
        Self {
            testbed,
            namespace,
            client,
            dir: tempfile::tempdir().unwrap(),
            kubeconfig,
        }
    }

    /// A name that no other test uses on the shared hosts.
    pub(crate) fn unique(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    /// The Secret of the mission's manifests, made the way its user makes it.
    pub(crate) fn secret(&self, name: &str, key: &str) {
        let from = format!("--from-file=ssh-privatekey={}", self.testbed.get(key));
        self.kubectl(&["create", "secret", "generic", name, &from], "");
    }

    pub(crate) fn apply(&self, manifests: &str) {
        self.kubectl(&["apply", "-f", "-"], manifests);
    }

    pub(crate) fn kubectl(&self, arguments: &[&str], stdin: &str) -> String {
        text_of(
            &format!("kubectl {arguments:?}\n{stdin}"),
            &self.try_kubectl(arguments, stdin),
        )
    }

    pub(crate) fn try_kubectl(&self, arguments: &[&str], stdin: &str) -> Output {
        let mut child = Command::new(self.testbed.get("TESTBED_KUBECTL"))
            .args(["--kubeconfig", self.testbed.get("TESTBED_KUBECONFIG")])
            .args(["--namespace", &self.namespace])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(stdin.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    }

    pub(crate) fn patch_set(&self, set: &str, patch: &str) {
        self.kubectl(
            &["patch", "exporterset", set, "--type=merge", "-p", patch],
            "",
        );
    }

    pub(crate) async fn exporters(&self) -> Vec<Exporter> {
        let api: Api<Exporter> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut list = api.list(&ListParams::default()).await.unwrap().items;
        list.sort_by_key(ResourceExt::name_any);
        list
    }

    pub(crate) async fn set(&self, name: &str) -> ExporterSet {
        Api::namespaced(self.client.clone(), &self.namespace)
            .get(name)
            .await
            .unwrap()
    }

    /// `status reason message` of a condition of a set.
    pub(crate) async fn condition(&self, set: &str, type_: &str) -> String {
        let set = self.set(set).await;
        let conditions = set
            .status
            .map(|status| status.conditions)
            .unwrap_or_default();
        conditions
            .iter()
            .find(|condition| condition.type_ == type_)
            .map(|c| format!("{} {} {}", c.status, c.reason, c.message))
            .unwrap_or_default()
    }

    pub(crate) async fn events(&self) -> Vec<Event> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        api.list(&ListParams::default()).await.unwrap().items
    }

    /// Waits until `count` Exporters are there and online with their host noted, and no others.
    pub(crate) async fn running(&self, count: usize) -> Vec<Exporter> {
        eventually(&format!("{count} exporter(s) online"), || async {
            let exporters = self.exporters().await;
            let up = exporters.iter().filter(|exporter| is_up(exporter)).count();
            if up == count && exporters.len() == count {
                Ok(exporters)
            } else {
                Err(format!("{up} of {} are up", exporters.len()))
            }
        })
        .await
    }

    /// Starts the controller with the rights of its ServiceAccount.
    pub(crate) fn controller(&self) -> Controller {
        self.controller_with(&[])
    }

    pub(crate) fn controller_with(&self, variables: &[(&str, &str)]) -> Controller {
        self.controller_at(&self.journal(), variables)
    }

    /// Starts it with a journal that only it has.
    pub(crate) fn controller_at(&self, journal: &Path, variables: &[(&str, &str)]) -> Controller {
        let log = self
            .dir
            .path()
            .join(format!("controller-{}.log", random_suffix()));
        let file = File::create(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_exporter-set-controller"))
            .args(["--provisioner=qemu-ssh.jumpstarter.dev", "--leader-elect"])
            .args(["--health-probe-bind-address=0", "--metrics-bind-address=0"])
            .args([
                "--leader-elect-lease-duration=3s",
                "--leader-elect-renew-deadline=2s",
            ])
            .arg("--leader-elect-retry-period=300ms")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--journal-dir")
            .arg(journal)
            .env("NAMESPACE", &self.namespace)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Controller { child, log }
    }

    /// The token in the Secret that Jumpstarter made for an Exporter.
    pub(crate) async fn token(&self, exporter: &str) -> String {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let data = api
            .get(&format!("{exporter}-exporter"))
            .await
            .unwrap()
            .data
            .unwrap();
        text(&data["token"].0)
    }

    /// Waits until no Exporter is left.
    pub(crate) async fn gone(&self) {
        eventually("no exporters", || async {
            let left: Vec<String> = self
                .exporters()
                .await
                .iter()
                .map(ResourceExt::name_any)
                .collect();
            if left.is_empty() {
                Ok(())
            } else {
                Err(format!("{left:?} are left"))
            }
        })
        .await;
    }

    /// Deletes all sets and waits until no Exporter and nothing on the host is left.
    pub(crate) async fn remove_all(&self, host: u8) {
        self.kubectl(&["delete", "exportersets", "--all", "--timeout=60s"], "");
        self.gone().await;
        self.clean(host).await;
    }

    /// Waits until nothing of this lab is on a host: no file, unit, generated unit, container, volume.
    pub(crate) async fn clean(&self, host: u8) {
        let script = format!(
            "{{ ls -A /etc/containers/systemd /etc/jumpstarter/exporters /run/systemd/generator; \
             podman ps -a --format '{{{{.Names}}}} {{{{.Labels}}}}'; podman volume ls -q; \
             systemctl list-units --all --plain --no-legend; }} | grep -e '{}-' || true",
            self.namespace
        );
        eventually(&format!("host {host} clean"), || async {
            let left = self.testbed.ssh(host, &script);
            if left.trim().is_empty() {
                Ok(())
            } else {
                Err(left)
            }
        })
        .await;
    }

    /// Removes from a host what a test has left there on purpose.
    pub(crate) fn sweep(&self, host: u8, exporter: &str) {
        let script = format!(
            "systemctl stop {exporter}-exporter {exporter}-runtime {exporter}-net; \
             rm -f /etc/containers/systemd/{exporter}-*.container /etc/jumpstarter/exporters/{exporter}.yaml; \
             systemctl daemon-reload; podman volume rm -f jumpstarter-{exporter}-shared"
        );
        self.testbed.ssh(host, &script);
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    /// Whatever any of this lab's controllers logged.
    pub(crate) fn logs(&self) -> String {
        let logs = fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let logs = logs.filter(|path| path.extension().is_some_and(|ext| ext == "log"));
        logs.map(|path| fs::read_to_string(path).unwrap()).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        let script = self.testbed.get("TESTBED_SCRIPT");
        let _ = Command::new(script)
            .args(["namespace-delete", &self.namespace])
            .output();
    }
}

/// The controller as a process. Killed when dropped.
pub(crate) struct Controller {
    child: Child,
    log: PathBuf,
}

impl Controller {
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// SIGTERM; returns the exit code.
    pub(crate) async fn stop(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        self.ended().await
    }

    /// Waits for its end; returns the exit code, `None` if a signal ended it.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(
                Instant::now() < deadline,
                "the controller does not end\n{}",
                self.log()
            );
            pause().await;
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Looks again and again until `look` is satisfied; fails with its last complaint at the deadline.
pub(crate) async fn eventually<T, F, Fut>(what: &str, mut look: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, String>>,
{
    let deadline = Instant::now() + DEADLINE;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(complaint) if Instant::now() > deadline => panic!("{what}: {complaint}"),
            Err(_) => pause().await,
        }
    }
}

pub(crate) fn is_up(exporter: &Exporter) -> bool {
    let noted = exporter
        .annotations()
        .contains_key("qemu-ssh.jumpstarter.dev/host");
    let conditions = exporter.status.iter().flat_map(|status| &status.conditions);
    noted
        && conditions
            .into_iter()
            .any(|c| c.type_ == "Online" && c.status == "True")
}

fn random_suffix() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

/// Every file below `dir`, read whole.
pub(crate) fn contents(dir: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            all.extend(fs::read(&path).unwrap());
        }
    }
    all
}
