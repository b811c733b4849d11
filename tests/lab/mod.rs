//! A namespace of the testbed for one test: what the tests that need a control plane share.
#![allow(dead_code)] // no test uses all of it

use k8s_openapi::NamespaceResourceScope;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace of its own, with the operator's ServiceAccount and Role in it.
pub(crate) struct Lab {
    script: String,
    /// The namespace.
    pub(crate) name: String,
    /// Path of the controller's kubeconfig.
    pub(crate) kubeconfig: String,
    admin: Client,
    /// A client with the operator's Role.
    pub(crate) controller: Client,
}

impl Lab {
    /// Makes one whose name begins with `name`.
    pub(crate) async fn new(name: &str) -> Self {
        let env = testbed_env();
        let script = env["TESTBED_SCRIPT"].clone();
        let name = format!("test-{name}-{}", std::process::id());
        let made = Command::new(&script)
            .args(["namespace", &name])
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let kubeconfig = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        Self {
            script,
            admin: client(&env["TESTBED_KUBECONFIG"]).await,
            controller: client(&kubeconfig).await,
            kubeconfig,
            name,
        }
    }

    /// Objects in this namespace, as the cluster's admin sees them.
    pub(crate) fn admin<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.admin.clone(), &self.name)
    }

    /// Makes an object, as the admin.
    pub(crate) async fn make<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
        K::DynamicType: Default,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.admin()
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = Command::new(&self.script)
            .args(["namespace-delete", &self.name])
            .output();
    }
}

fn testbed_env() -> BTreeMap<String, String> {
    let usual = "/var/tmp/exporter-set-controller-testbed/env";
    let path = std::env::var("TESTBED_ENV").unwrap_or_else(|_| usual.to_owned());
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| {
        panic!("{path}: {e}; boot the testbed first: tests/testbed/testbed up")
    });
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// A client by a kubeconfig.
pub(crate) async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(Path::new(kubeconfig)).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

/// Waits for `future`, or fails naming `what`.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let answer = timeout(PATIENCE, future).await;
    answer.unwrap_or_else(|_| panic!("waited {PATIENCE:?} for {what}"))
}

/// Waits until `look` finds something.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    look: impl Fn() -> F,
) -> T {
    let poll = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    in_time(what, poll).await
}
