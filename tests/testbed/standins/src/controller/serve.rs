//! The command line, and the tasks around the brain.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::brain::{Brain, Input, Settings};
use super::credentials::Signer;
use super::objects::{Exporter, Lease, Namespaced};
use super::{control, duration, peers};
use crate::log::log;

/// Plays jumpstarter-controller: credentials exporters, watches over them, hands out leases.
///
/// Uses the cluster of KUBECONFIG, in all namespaces. Stops on SIGTERM.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Options {
    /// What exporters are told to connect to, HOST:PORT
    #[arg(long)]
    endpoint: String,
    /// Where to listen for exporters
    #[arg(long, default_value = "0.0.0.0:18082")]
    listen: SocketAddr,
    /// Where to answer tests; not at all if absent
    #[arg(long)]
    control: Option<SocketAddr>,
    /// How often a connected exporter's lastSeen moves
    #[arg(long, default_value = "10s", value_parser = duration::parse)]
    tick: Duration,
    /// After this long without a sign of life an exporter counts as lost
    #[arg(long, default_value = "60s", value_parser = duration::parse)]
    offline_after: Duration,
    /// After this long without a message a connection counts as gone; at least some ticks
    #[arg(long, default_value = "146s", value_parser = duration::parse)]
    keepalive: Duration,
    /// Key for tokens; the same key accepts the same tokens after a restart
    #[arg(long, default_value = "testbed")]
    signing_key: String,
    /// Written when everything is served
    #[arg(long)]
    ready_file: Option<PathBuf>,
    /// End, with an error, when the API server has been away for ten seconds
    #[arg(long)]
    exit_without_api_server: bool,
    /// Only this namespace; all if absent
    #[arg(long, conflicts_with = "except")]
    namespace: Option<String>,
    /// Without --namespace: leave those alone that begin with this, they have their own controller
    #[arg(long, default_value = "standins-")]
    except: String,
}

/// Why the program ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The cluster's address or credentials are missing or wrong.
    #[error("no cluster: {0} (set KUBECONFIG)")]
    Cluster(#[from] kube::Error),
    /// As the real one does, if asked to.
    #[error("the API server has been away for ten seconds")]
    ApiServerLost,
    /// An address is taken or not ours.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The ready file can't be written, or signals can't be handled.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// [`ServeError`] when it can't begin.
pub async fn serve(options: Options) -> Result<(), ServeError> {
    let system = |what: &str| {
        let what = what.to_owned();
        move |source| ServeError::System { what, source }
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(system("can't handle SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("can't handle SIGINT"))?;
    let client = Client::try_default().await?;
    let (feed, inputs) = mpsc::channel(1024);
    watch::<Exporter>(
        &client,
        &options,
        watcher::Config::default(),
        &feed,
        Input::Exporter,
    );
    watch::<Lease>(
        &client,
        &options,
        watcher::Config::default(),
        &feed,
        Input::Lease,
    );
    let opaque = watcher::Config::default().fields("type=Opaque");
    watch::<Secret>(&client, &options, opaque, &feed, Input::Secret);

    let (lose, lost) = oneshot::channel();
    tokio::spawn(mind_api_server(client.clone(), feed.clone(), lose));
    let settings = Settings {
        endpoint: options.endpoint,
        tick: options.tick,
        offline_after: options.offline_after,
        except: options.namespace.is_none().then_some(options.except),
        signer: Signer::new(options.signing_key),
    };
    let (synced, is_synced) = oneshot::channel();
    let brain = tokio::spawn(Brain::new(client, settings).run(inputs, synced));
    tokio::select! {
        _ = is_synced => {}
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    }
    // Only now: an exporter that isn't known yet would be refused, and end.
    let listener = bind(options.listen).await?;
    let (events, peer_events) = mpsc::channel(1024);
    tokio::spawn(peers::accept(listener, options.keepalive, events));
    forward(peer_events, feed.clone(), Input::Peer);
    if let Some(address) = options.control {
        let (questions, asked) = mpsc::channel(16);
        tokio::spawn(control::serve(bind(address).await?, questions));
        forward(asked, feed.clone(), Input::Question);
    }

    log(&format!("serving exporters on {}", options.listen));
    if let Some(path) = &options.ready_file {
        tokio::fs::write(path, "ready\n")
            .await
            .map_err(system(&format!("can't write {}", path.display())))?;
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = brain => log("the brain ended"),
        _ = lost, if options.exit_without_api_server => return Err(ServeError::ApiServerLost),
    }
    log("stopping");
    Ok(())
}

/// Asks the API server each half second whether it is there, and tells the brain
/// when it has been away for five seconds, and `lost` when it has been for ten.
async fn mind_api_server(client: Client, feed: mpsc::Sender<Input>, lost: oneshot::Sender<()>) {
    let (mut seen, mut told, mut lost) = (Instant::now(), true, Some(lost));
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let answer = timeout(Duration::from_secs(2), client.apiserver_version()).await;
        if matches!(answer, Ok(Ok(_))) {
            seen = Instant::now();
        }
        let is_there = seen.elapsed() < Duration::from_secs(5);
        if is_there != told && feed.send(Input::ApiServer(is_there)).await.is_err() {
            return;
        }
        told = is_there;
        if seen.elapsed() > Duration::from_secs(10) {
            // Nobody listens when the program isn't to end.
            let _ = lost.take().map(|lost| lost.send(()));
        }
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ServeError::Listen { address, source })
}

/// Watches one kind for ever.
fn watch<K: Namespaced>(
    client: &Client,
    options: &Options,
    config: watcher::Config,
    feed: &mpsc::Sender<Input>,
    wrap: fn(watcher::Event<K>) -> Input,
) {
    let api: Api<K> = match &options.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let events = watcher(api, config).default_backoff();
    tokio::spawn(pass_on(events, feed.clone(), wrap));
}

async fn pass_on<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    feed: mpsc::Sender<Input>,
    wrap: fn(watcher::Event<K>) -> Input,
) {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if feed.send(wrap(event)).await.is_err() {
                    return;
                }
            }
            Err(error) => log(&format!("watch: {error}")),
        }
    }
}

fn forward<T: Send + 'static>(
    mut from: mpsc::Receiver<T>,
    to: mpsc::Sender<Input>,
    wrap: fn(T) -> Input,
) {
    tokio::spawn(async move {
        while let Some(item) = from.recv().await {
            if to.send(wrap(item)).await.is_err() {
                return;
            }
        }
    });
}
