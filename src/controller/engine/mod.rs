//! The loop.

mod pass;
mod resume;
mod sets;
mod status;

use super::actor::Held;
use super::desired::{CaBundles, CaSource};
use super::ports::{Change, Clock, Cluster, ClusterError};
use super::world::World;
use super::{Fatal, millis};
use crate::api::{ExporterSetStatus, HOST_KEYS_SECRET};
use crate::instance::{Event, Failure, FailureClass, Instance, Retry, Site, Step};
use crate::pool;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How long after the last change everything is looked at again, whatever happens.
const RELIST: Duration = Duration::from_secs(30);
/// How long after a failure a CA bundle is read again.
const REREAD: Duration = Duration::from_secs(5);
/// How long running jobs may go on after we were told to stop.
const GRACE: Duration = Duration::from_secs(20);

/// What comes back from what was started.
enum Came {
    Job(String, Box<Result<Held, Fatal>>),
    /// A job of this instance panicked; it began with this step.
    Panic(String, Step),
    CaBundle(CaSource, Result<String, Failure>),
    /// It is time to read the bundle again.
    Forget(CaSource),
    Status(String),
}

/// What is known of one instance.
struct Slot {
    held: Held,
    /// Whether a job is under way.
    busy: bool,
    /// Whether something changed while it was busy that may mend what it failed at.
    hastened: bool,
    /// Whether the watch has shown its Exporter: if it is not there any more, it is gone.
    shown: bool,
}

/// What is remembered of one set.
#[derive(Default)]
struct SetMemory {
    clock: pool::Clock,
    /// The generations of the set and of its class that were acted on.
    generations: Option<(Option<i64>, Option<i64>)>,
    /// The status that was sent last, and when.
    sent: Option<(ExporterSetStatus, SystemTime)>,
    /// Whether a status is on its way.
    sending: bool,
}

/// The loop.
pub struct Engine<W: World> {
    world: Arc<W>,
    slots: BTreeMap<String, Slot>,
    sets: BTreeMap<String, SetMemory>,
    bundles: CaBundles,
    /// The bundles that are being read, and whether they have changed meanwhile.
    loading: BTreeMap<CaSource, bool>,
    sender: mpsc::UnboundedSender<Came>,
    came: mpsc::UnboundedReceiver<Came>,
    tasks: JoinSet<()>,
}

impl<W: World> Engine<W> {
    /// An engine that knows nothing yet.
    pub fn new(world: Arc<W>) -> Self {
        let (sender, came) = mpsc::unbounded_channel();
        Self {
            world,
            slots: BTreeMap::new(),
            sets: BTreeMap::new(),
            bundles: BTreeMap::new(),
            loading: BTreeMap::new(),
            sender,
            came,
            tasks: JoinSet::new(),
        }
    }

    /// Goes on from where the journal ends, until `shutdown` resolves.
    ///
    /// # Errors
    /// [`Fatal`]: the process has to end; nothing is lost.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Fatal> {
        let mut changes = self.world.cluster().changes();
        self.resume()?;
        tokio::pin!(shutdown);
        loop {
            let wake = self.pass().await?;
            let world = Arc::clone(&self.world);
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(change) = changes.recv() => self.note(&change),
                Some(came) = self.came.recv() => self.absorb(came)?,
                () = world.clock().sleep(wake) => {}
            }
            while let Ok(change) = changes.try_recv() {
                self.note(&change);
            }
            while let Ok(came) = self.came.try_recv() {
                self.absorb(came)?;
            }
            while self.tasks.try_join_next().is_some() {}
        }
        self.wind_down().await
    }

    /// Lets running jobs come to their end; what does not is taken up by the next process.
    async fn wind_down(mut self) -> Result<(), Fatal> {
        let world = Arc::clone(&self.world);
        let deadline = world.clock().sleep(GRACE);
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                joined = self.tasks.join_next() => if joined.is_none() { break },
                () = &mut deadline => {
                    tracing::warn!(jobs = self.tasks.len(), "some steps did not end in time; they are resumed at the next start");
                    break;
                }
            }
        }
        Ok(())
    }

    /// What was waited out may be mended by this change.
    fn note(&mut self, change: &Change) {
        if let Change::ConfigMap(name) = change {
            self.bundles.retain(|source, _| source.config_map != *name);
            for (source, changed) in &mut self.loading {
                *changed |= source.config_map == *name;
            }
        }
        if let Change::Secret(name) = change {
            self.hasten(|instance| {
                let opens = |site: &Site| site.credentials_secret == *name;
                *name == HOST_KEYS_SECRET || instance.site().is_some_and(opens)
            });
        }
    }

    /// Tries at once what failed for want of somebody's help, for the instances that may have got it.
    fn hasten(&mut self, concerned: impl Fn(&Instance) -> bool) {
        let now = millis(self.world.clock().now());
        for slot in self.slots.values_mut() {
            if concerned(&slot.held.instance) {
                slot.held.instance.hasten(Retry::Seldom, now);
                slot.hastened = slot.busy;
            }
        }
    }

    fn absorb(&mut self, came: Came) -> Result<(), Fatal> {
        match came {
            Came::Job(name, held) => {
                let held = (*held)?;
                if let Some(slot) = self.slots.get_mut(&name) {
                    slot.held = held;
                    slot.busy = false;
                    if std::mem::take(&mut slot.hastened) {
                        let now = millis(self.world.clock().now());
                        slot.held.instance.hasten(Retry::Seldom, now);
                    }
                }
            }
            Came::CaBundle(source, bundle) => {
                if self.loading.remove(&source) == Some(false) {
                    self.keep(source, bundle);
                }
            }
            Came::Forget(source) => {
                self.bundles.remove(&source);
            }
            Came::Panic(name, step) => self.postpone(&name, step)?,
            Came::Status(uid) => {
                if let Some(memory) = self.sets.get_mut(&uid) {
                    memory.sending = false;
                }
            }
        }
        Ok(())
    }

    /// Tries again later what panicked. The journal may be ahead of what we hold: it is read anew.
    fn postpone(&mut self, name: &str, step: Step) -> Result<(), Fatal> {
        tracing::error!(
            exporter = name,
            step = step.name(),
            "a bug: the step panicked"
        );
        let held = self.reread(name)?;
        let Some(slot) = self.slots.get_mut(name) else {
            return Ok(());
        };
        let failure = Failure::new(FailureClass::HostScriptFailed, "a bug: the step panicked");
        let retry_at = millis(self.world.clock().now() + RELIST);
        let failed = Event::StepFailed {
            step,
            failure,
            attempt: 1,
            retry_at,
        };
        let instance = Instance::fold(Some(held.instance), &failed)?;
        slot.held = Held { instance, ..held };
        slot.busy = false;
        Ok(())
    }

    /// Keeps a CA bundle, or why there is none. What is not there is seen when it comes; any other
    /// failure is looked at again after a while.
    fn keep(&mut self, source: CaSource, bundle: Result<String, Failure>) {
        let passing =
            matches!(&bundle, Err(failure) if failure.class != FailureClass::CaBundleMissing);
        self.bundles.insert(source.clone(), bundle);
        if passing {
            let (world, sender) = (Arc::clone(&self.world), self.sender.clone());
            self.tasks.spawn(async move {
                world.clock().sleep(REREAD).await;
                // The receiver is gone only when the engine is.
                let _ = sender.send(Came::Forget(source));
            });
        }
    }

    /// Starts to read a CA bundle, if that is not under way.
    fn load(&mut self, source: CaSource) {
        if self.loading.contains_key(&source) {
            return;
        }
        self.loading.insert(source.clone(), false);
        let (world, sender) = (Arc::clone(&self.world), self.sender.clone());
        self.tasks.spawn(async move {
            let bundle = read_bundle(&*world, &source).await;
            // The receiver is gone only when the engine is.
            let _ = sender.send(Came::CaBundle(source, bundle));
        });
    }
}

async fn read_bundle<W: World>(world: &W, source: &CaSource) -> Result<String, Failure> {
    let CaSource { config_map, key } = source;
    let missing = |what: String| Failure::new(FailureClass::CaBundleMissing, what);
    match world.cluster().get_config_map(config_map).await {
        Ok(data) => data
            .get(key)
            .cloned()
            .ok_or_else(|| missing(format!("ConfigMap {config_map} has no key {key}"))),
        Err(ClusterError::NotFound(_)) => {
            Err(missing(format!("ConfigMap {config_map} does not exist")))
        }
        Err(error) => Err(error.into()),
    }
}

impl Slot {
    const fn new(held: Held) -> Self {
        Self {
            held,
            busy: false,
            hastened: false,
            shown: false,
        }
    }

    const fn instance(&self) -> &Instance {
        &self.held.instance
    }
}
