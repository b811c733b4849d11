//! `run`: the controller, from start to end.
//!
//! Order of the start: settings, logs, API server, probes, caches, leadership, work. The end goes
//! backwards: the work ends (or is given up after a while: the journal knows how to go on), the
//! leader Lease is released, the last traces are sent. When the leadership is lost nothing is
//! finished: from then on every effect belongs to another process.

use super::args::RunFlags;
use super::signals::Signals;
use super::{CliError, EXIT_FAILURE, EXIT_OK, SystemClock, journal_dir};
use crate::api::PROVISIONER;
use crate::cluster::{COMPONENT, Election, KubeCluster};
use crate::controller::ports::Clock;
use crate::controller::{self, Engine, Store};
use crate::host::SshHosts;
use crate::telemetry::{BindAddress, Probes, Settings, Telemetry};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{error, info, warn};

/// How long running steps may take to end; the kubelet kills us after 30 s.
const GRACE: Duration = Duration::from_secs(20);
/// How long a connection to the API server may take: less than a leader's term.
const CONNECT_LIMIT: Duration = Duration::from_secs(4);

/// What the controller is made of.
pub struct Parts {
    /// The cluster, with its first lists.
    pub cluster: KubeCluster,
    /// Our leadership, as it was won.
    pub leadership: Election,
    /// Time and chance.
    pub clock: SystemClock,
    /// A folder that we can write.
    pub journal_dir: PathBuf,
    /// Becomes `true` when no new work shall begin; what runs has 20 s to end.
    pub shutdown: watch::Receiver<bool>,
}

/// Runs the controller until a signal, a failure or the loss of the leadership. Returns the exit code.
///
/// # Errors
/// What goes wrong before there are logs; what comes later is logged.
pub(super) fn run(flags: &RunFlags) -> Result<u8, CliError> {
    check_provisioner(flags)?;
    let namespace = flags.namespace.clone().filter(|name| !name.is_empty());
    let namespace = namespace.ok_or(CliError::NoNamespace)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(CliError::Runtime)?;
    let code = runtime.block_on(async {
        let telemetry = Telemetry::start(&Settings {
            format: flags.format(),
            level: flags.level(),
            component: COMPONENT.to_owned(),
            namespace: namespace.clone(),
        })?;
        let code = match serve(flags, &namespace).await {
            Ok(()) => EXIT_OK,
            Err(error) => {
                error!("{error}");
                EXIT_FAILURE
            }
        };
        telemetry.flush().await;
        Ok(code)
    });
    // A blocking call that hangs must not keep a process that has nothing left to do.
    runtime.shutdown_background();
    code
}

fn check_provisioner(flags: &RunFlags) -> Result<(), CliError> {
    match flags.provisioner.as_deref() {
        None | Some("") => Err(CliError::NoProvisioner),
        Some(PROVISIONER) => Ok(()),
        Some(other) => Err(CliError::UnknownProvisioner(other.to_owned())),
    }
}

async fn serve(flags: &RunFlags, namespace: &str) -> Result<(), CliError> {
    let mut signals = Signals::new().map_err(CliError::Runtime)?;
    let journal_dir = journal_dir::choose(flags.journal_dir.clone())?;
    let client = client(flags.kubeconfig.as_deref()).await?;
    let probes = Probes::start(&flags.health_probe_bind_address).await?;
    say_hello(flags, namespace, probes.as_ref());

    // Also while another replica leads: a successor with warm caches acts sooner.
    let cluster = KubeCluster::start(client.clone(), namespace);
    let lease = format!("{COMPONENT}-{PROVISIONER}");
    let election = Election::start(client, namespace, &lease, &identity(), flags.timing()?);
    let (stop, shutdown) = watch::channel(false);
    let parts = Parts {
        cluster,
        leadership: election.clone(),
        clock: SystemClock,
        journal_dir,
        shutdown,
    };
    let work = lead_then_work(parts);
    let result = supervise(work, &election, &stop, &mut signals).await;
    election.release().await;
    result
}

/// Waits until we lead and know the cluster, then works.
async fn lead_then_work(parts: Parts) -> Result<(), CliError> {
    let elected = parts.leadership.elected().await;
    elected.map_err(|_| CliError::LeadershipLost)?;
    let mut shutdown = parts.shutdown.clone();
    tokio::select! {
        () = parts.cluster.ready() => work(parts).await,
        _ = shutdown.wait_for(|stop| *stop) => Ok(()),
    }
}

/// Opens the journal and works until `parts.shutdown` is set and the running work has ended.
async fn work(parts: Parts) -> Result<(), CliError> {
    let Parts {
        cluster,
        leadership,
        clock,
        journal_dir,
        mut shutdown,
    } = parts;
    let journal = Store::open(journal_dir, clock.now())
        .await
        .map_err(|error| CliError::Work(error.into()))?;
    let engine = Engine::new(Arc::new(controller::Parts {
        cluster,
        hosts: SshHosts::new(),
        journal: journal.clone(),
        clock,
        leadership,
    }));
    let result = engine
        .run(async move {
            // A sender that is gone is the end, too.
            let _ = shutdown.wait_for(|stop| *stop).await;
        })
        .await;
    journal.close().await;
    result.map_err(CliError::Work)
}

/// Lets the work go on until it ends, a signal comes or the leadership is lost.
async fn supervise(
    work: impl Future<Output = Result<(), CliError>>,
    election: &Election,
    stop: &watch::Sender<bool>,
    signals: &mut Signals,
) -> Result<(), CliError> {
    let mut work = pin!(work);
    let signal = tokio::select! {
        result = &mut work => return result,
        () = election.lost() => return Err(CliError::LeadershipLost),
        signal = signals.next() => signal,
    };
    info!("{signal}: ending");
    let _ = stop.send(true);
    if !election.has_led() {
        return Ok(());
    }
    tokio::select! {
        ended = timeout(GRACE, work) => match ended {
            Ok(result) => result,
            Err(_) => Err(CliError::NotEnded(GRACE.as_secs())),
        },
        () = election.lost() => Err(CliError::LeadershipLost),
        _ = signals.next() => Err(CliError::Interrupted),
    }
}

async fn client(kubeconfig: Option<&Path>) -> Result<Client, CliError> {
    let failed = |error: &dyn std::error::Error| CliError::Kubernetes(error.to_string());
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(|error| failed(&error))?;
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(file, &options).await;
            config.map_err(|error| failed(&error))?
        }
        None => Config::infer().await.map_err(|error| failed(&error))?,
    };
    config.connect_timeout = Some(CONNECT_LIMIT);
    Client::try_from(config).map_err(|error| failed(&error))
}

/// Who we are in the leader Lease: the host (a Pod's name), and chance, so that no two processes
/// ever share it.
fn identity() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = match name.trim() {
        "" => COMPONENT,
        name => name,
    };
    let chance = SystemClock.random();
    format!("{name}_{chance:016x}")
}

fn say_hello(flags: &RunFlags, namespace: &str, probes: Option<&Probes>) {
    let version = env!("CARGO_PKG_VERSION");
    info!("{COMPONENT} {version}: provisioner {PROVISIONER} in namespace {namespace}");
    if let Some(probes) = probes {
        info!("probes on {}", probes.address());
    }
    if !flags.leader_elect {
        info!("without --leader-elect a leader is elected all the same: lab hosts obey only one");
    }
    if flags.metrics_bind_address != BindAddress::Off {
        warn!("--metrics-bind-address: this version has no metrics; nothing listens there");
    }
}
