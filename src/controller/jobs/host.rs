//! The steps on the host's side: write, start, undo.

use super::super::Fatal;
use super::super::actor::{Actor, Done};
use super::super::desired::Desired;
use super::super::ports::{Clock, Cluster, ClusterError, Hosts, SecretData};
use super::super::world::World;
use crate::api::RecycleStrategy;
use crate::host::{Batch, HostKeys, Op, Outcome, Owner, PrivateKey, Report, Target};
use crate::instance::{
    Event, Failure, FailureClass, Instance, RunningUnits, Site, Step, Transition, WrittenFiles,
};
use crate::render::{Names, Rendered};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a batch may take on the host: image pulls, a start with its 120 s, a stop with its 30 s.
const PULL_LIMIT: Duration = Duration::from_secs(900);
const BATCH_LIMIT: Duration = Duration::from_secs(180);
/// How long the watch is given to show what a fresh read has shown.
const WATCH_LAG: Duration = Duration::from_secs(1);

impl<W: World> Actor<W> {
    /// Connects, looks at the host, writes config and quadlets, makes the volume.
    pub(super) async fn write(&mut self, desired: &Desired) -> Result<(), Fatal> {
        let Instance::Credentialed(instance) = self.instance() else {
            return Ok(());
        };
        let (grant, restart) = (instance.state.grant.clone(), instance.state.restart);
        // Whoever used the machine last must not meet the next one.
        let replaced = desired.set.spec.recycle_strategy == RecycleStrategy::ExitAndReplace;
        let wipe = replaced && instance.progress.served && instance.progress.lease.is_none();
        let about = instance.about.clone();
        if restart && self.is_leased(Step::Connect).await? {
            return Ok(());
        }

        let rendered = match self.token(&grant.credential).await {
            Ok(token) => desired.render(&about, &grant, &token),
            Err(failure) => Err(failure),
        };
        let rendered = match rendered {
            Ok(rendered) => rendered,
            Err(failure) => return self.file(Step::Connect, failure).await,
        };
        let Some(target) = self.reach(&grant.site, Step::Connect).await? else {
            return Ok(());
        };

        let (exporter_image, runtime_image) = (
            rendered.exporter_image.clone(),
            rendered.runtime_image.clone(),
        );
        let preflight = Op::Preflight {
            devices: desired
                .parameters
                .runtime
                .all_devices()
                .map(str::to_owned)
                .collect(),
            images: vec![exporter_image.clone(), runtime_image.clone()],
        };
        let Rendered {
            config,
            quadlets,
            revision,
            ..
        } = rendered;
        let look = self.left(vec![preflight], &revision);
        if !self
            .batch(&target, look, PULL_LIMIT, Some(&revision), None)
            .await?
        {
            return Ok(());
        }
        let ops = vec![
            Op::WriteConfig(config),
            Op::WriteQuadlets(quadlets),
            Op::CreateVolume {
                exporter_image: exporter_image.image.unwrap_or_default(),
                runtime_image: runtime_image.image.unwrap_or_default(),
                wipe,
            },
        ];
        let ops = self.left(ops, &revision);
        let then = Transition::Wrote(WrittenFiles {
            revision: revision.clone(),
        });
        self.batch(&target, ops, BATCH_LIMIT, Some(&revision), Some(then))
            .await
            .map(|_| ())
    }

    /// Reloads systemd, starts the units and sees them active.
    pub(super) async fn start(&mut self) -> Result<(), Fatal> {
        let Instance::Written(instance) = self.instance() else {
            return Ok(());
        };
        let (site, restart) = (instance.state.grant.site.clone(), instance.state.restart);
        if restart && self.is_leased(Step::Start).await? {
            return Ok(());
        }
        let names = Names::of(self.name());
        let units = [names.runtime(), names.exporter_unit()];
        let units = units.map(|unit| format!("{unit}.service")).to_vec();
        let Some(target) = self.reach(&site, Step::Start).await? else {
            return Ok(());
        };
        let then = Transition::Started(RunningUnits { units });
        self.batch(
            &target,
            vec![Op::Start { restart }],
            BATCH_LIMIT,
            None,
            Some(then),
        )
        .await
        .map(|_| ())
    }

    /// Stops the units, removes files and volume, reloads, sees that nothing is left.
    pub(super) async fn undo(&mut self) -> Result<(), Fatal> {
        let Some(site) = self.instance().site().cloned() else {
            return Ok(());
        };
        if self.is_leased(Step::Stop).await? {
            return Ok(());
        }
        let Some(target) = self.reach(&site, Step::Stop).await? else {
            return Ok(());
        };
        // All of them at each try: a host that was rebooted meanwhile has started the units again.
        let ops = vec![Op::Stop, Op::RemoveFiles, Op::RemoveVolume, Op::Reload];
        self.batch(&target, ops, BATCH_LIMIT, None, None)
            .await
            .map(|_| ())
    }

    /// Those of `ops` that are not done for `revision`.
    fn left(&self, mut ops: Vec<Op>, revision: &str) -> Vec<Op> {
        let progress = self.instance().progress();
        ops.retain(|op| !progress.has_done_for(op.step(), Some(revision)));
        ops
    }

    /// Whether a lease holds the Exporter right now, which the watch may not have shown yet; a
    /// disabled one can still be leased by its name. If that can't be learned, it counts as leased.
    async fn is_leased(&mut self, step: Step) -> Result<bool, Fatal> {
        let leased = match self.world.cluster().get_exporter(&self.name()).await {
            Ok(exporter) => {
                let ours = exporter.metadata.uid == self.instance().about().uid;
                ours && exporter
                    .status
                    .is_some_and(|status| status.lease_ref.is_some())
            }
            Err(ClusterError::NotFound(_)) => false,
            Err(error) => {
                self.file(step, error.into()).await?;
                return Ok(true);
            }
        };
        if leased {
            self.world.clock().sleep(WATCH_LAG).await;
        }
        Ok(leased)
    }

    /// Runs `ops`, recording each report as it comes, and `then` with
    /// the last one. Returns whether all are done.
    async fn batch(
        &mut self,
        target: &Target,
        ops: Vec<Op>,
        time_limit: Duration,
        revision: Option<&str>,
        mut then: Option<Transition>,
    ) -> Result<bool, Fatal> {
        let steps: Vec<Step> = ops.iter().map(Op::step).collect();
        let Some(mut current) = steps.first().copied() else {
            if let Some(then) = then {
                self.record(vec![Event::Moved(then)]).await?;
            }
            return Ok(true);
        };
        self.begin_for(&steps, revision).await?;
        let batch = Batch {
            names: Names::of(self.name()),
            owner: self.owner(),
            fence: self.fence()?,
            ops,
            time_limit,
        };
        let (sender, mut reports) = mpsc::unbounded_channel();
        let world = std::sync::Arc::clone(&self.world);
        let run = world.hosts().run(target, &batch, sender);
        tokio::pin!(run);
        let mut ran = None;
        let mut left = steps.len();
        loop {
            let report = tokio::select! {
                biased;
                report = reports.recv() => report,
                outcome = &mut run, if ran.is_none() => {
                    ran = Some(outcome);
                    continue;
                }
            };
            let Some(Report {
                step,
                outcome,
                detail,
            }) = report
            else {
                break;
            };
            current = step;
            let changed = match outcome {
                Outcome::Changed => true,
                Outcome::Unchanged => false,
                Outcome::Failed(failure) => {
                    self.file(step, failure).await?;
                    return Ok(false);
                }
            };
            left = left.saturating_sub(1);
            let moved = if left == 0 { then.take() } else { None };
            self.succeed(step, Done { changed, detail }, moved).await?;
        }
        let outcome = match ran {
            Some(outcome) => outcome,
            None => run.await,
        };
        if left == 0 {
            return Ok(true);
        }
        let unknown = || {
            let message = format!("{}: the batch ended before {}", target.name, current.name());
            Failure::new(FailureClass::OutcomeUnknown, message)
        };
        self.file(current, outcome.err().unwrap_or_else(unknown))
            .await?;
        Ok(false)
    }

    /// Records a failure and, if it is news, tells people of it.
    async fn file(&mut self, step: Step, failure: Failure) -> Result<(), Fatal> {
        let before = self.instance().progress().failed.clone();
        self.fail(step, failure.clone()).await?;
        if before.is_none_or(|before| before.failure != failure) {
            self.tell_failure(&failure).await;
        }
        Ok(())
    }

    /// The host, connected; or `None`, with the failure filed under `step`.
    async fn reach(&mut self, site: &Site, step: Step) -> Result<Option<Target>, Fatal> {
        let connected = match self.target(site).await {
            Ok(target) => self.connect(target).await,
            Err(failure) => Err(failure),
        };
        match connected {
            Ok(target) => Ok(Some(target)),
            Err(failure) => {
                self.file(step, failure).await?;
                Ok(None)
            }
        }
    }

    async fn target(&self, site: &Site) -> Result<Target, Failure> {
        let (key, known_hosts) = self.credentials(&site.credentials_secret).await?;
        let host_keys = match (&site.host_key, known_hosts) {
            (Some(pinned), _) => HostKeys::Pinned(pinned.clone()),
            (None, Some(lines)) => HostKeys::KnownHosts(lines),
            (None, None) => {
                let pinned = self.world.cluster().pinned_host_keys().await?;
                let line = format!("{} ", known_hosts_name(site));
                // Only its own lines: they are part of what tells one connection from another.
                let own: String = lines_of(&pinned, &line);
                if own.is_empty() {
                    HostKeys::FirstUse
                } else {
                    HostKeys::KnownHosts(own)
                }
            }
        };
        Ok(Target {
            name: site.host.clone(),
            user: site.user.clone(),
            port: site.port,
            key,
            host_keys,
        })
    }

    /// Connects; a host that is met for the first time is known by its key from then on.
    async fn connect(&self, mut target: Target) -> Result<Target, Failure> {
        let greeting = self.world.hosts().connect(&target).await?;
        if target.host_keys == HostKeys::FirstUse {
            tracing::warn!(
                host = target.name,
                key = greeting.known_hosts_line,
                "the host's key is accepted on first use and pinned"
            );
            let lines = self
                .world
                .cluster()
                .pin_host_key(&greeting.known_hosts_line)
                .await?;
            let name = greeting
                .known_hosts_line
                .split(' ')
                .next()
                .unwrap_or_default();
            target.host_keys = HostKeys::KnownHosts(lines_of(&lines, &format!("{name} ")));
        }
        Ok(target)
    }

    /// The SSH key, and the known hosts if the Secret has them.
    async fn credentials(&self, secret: &str) -> Result<(PrivateKey, Option<String>), Failure> {
        let missing = |what: &str| Failure::new(FailureClass::CredentialsMissing, what.to_owned());
        let data = match self.world.cluster().get_secret(secret).await {
            Ok(data) => data,
            Err(ClusterError::NotFound(_)) => {
                return Err(missing(&format!("Secret {secret} does not exist")));
            }
            Err(error) => return Err(error.into()),
        };
        let text = |key: &str| text_of(&data, key);
        let key = text("ssh-privatekey").filter(|key| !key.trim().is_empty());
        let key =
            key.ok_or_else(|| missing(&format!("Secret {secret} has no key ssh-privatekey")))?;
        Ok((PrivateKey::new(key), text("known_hosts")))
    }

    async fn token(&self, secret: &str) -> Result<zeroize::Zeroizing<String>, Failure> {
        let missing = |what: &str| {
            let message = format!("Secret {secret} {what}");
            Failure::new(FailureClass::TokenMissing, message)
        };
        match self.world.cluster().get_secret(secret).await {
            Ok(data) => text_of(&data, "token")
                .filter(|token| !token.is_empty())
                .map(zeroize::Zeroizing::new)
                .ok_or_else(|| missing("has no key token")),
            Err(ClusterError::NotFound(_)) => Err(missing("does not exist")),
            Err(error) => Err(error.into()),
        }
    }

    fn owner(&self) -> Owner {
        let about = self.instance().about();
        Owner {
            namespace: about.namespace.clone(),
            uid: about.uid.clone().unwrap_or_default(),
        }
    }
}

fn text_of(data: &SecretData, key: &str) -> Option<String> {
    data.get(key)
        .and_then(|value| String::from_utf8(value.to_vec()).ok())
}

/// Those of `lines` that begin with `name`.
fn lines_of(lines: &str, name: &str) -> String {
    let own = lines.lines().filter(|line| line.starts_with(name));
    own.fold(String::new(), |own, line| own + line + "\n")
}

fn known_hosts_name(site: &Site) -> String {
    match site.port {
        22 => site.host.clone(),
        port => format!("[{}]:{port}", site.host),
    }
}
