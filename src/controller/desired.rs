//! What a set asks for: the set and its class, merged, validated and with what they refer to.

use crate::api::{
    CaBundleReference, ExporterSet, Images, Parameters, RecycleStrategy, VirtualTargetClass,
    merge_images, parse_go_duration,
};
use crate::instance::{About, Failure, FailureClass, Grant, Site, Wanted};
use crate::pool::{Demand, Verdict, exporter_labels, selects};
use crate::render::{self, Inputs, Rendered};
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The cooldown of a set that says none.
const DEFAULT_COOLDOWN: Duration = Duration::from_secs(300);

/// Where the CA bundle of a class is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CaSource {
    /// The ConfigMap.
    pub(crate) config_map: String,
    /// The key in it.
    pub(crate) key: String,
}

impl CaSource {
    fn of(class: &VirtualTargetClass) -> Self {
        match &class.spec.ca_bundle_config_map_ref {
            Some(CaBundleReference { name, key }) => Self {
                config_map: name.clone(),
                key: key.clone(),
            },
            None => Self {
                config_map: "jumpstarter-service-ca-cert".to_owned(),
                key: "ca.crt".to_owned(),
            },
        }
    }
}

/// The CA bundles that have been read.
pub(crate) type CaBundles = BTreeMap<CaSource, Result<String, Failure>>;

/// What a set asks of each of its exporters.
#[derive(Debug)]
pub(crate) struct Desired {
    /// The set.
    pub(crate) set: Arc<ExporterSet>,
    /// The merged parameters.
    pub(crate) parameters: Parameters,
    /// The merged images.
    pub(crate) images: Images,
    /// PEM bundle of the Jumpstarter service's CA.
    pub(crate) ca_pem: String,
    /// The Secret with the SSH key.
    pub(crate) credentials_secret: String,
}

/// How it stands with a set.
#[derive(Debug)]
pub(crate) enum Resolution {
    /// It can be served.
    Ready(Arc<Desired>),
    /// Its class names another provisioner.
    NotOurs,
    /// Something is missing or wrong.
    Refused(Failure, Verdict),
    /// This CA bundle has to be read first.
    Needs(CaSource),
}

fn refused(class: FailureClass, reason: &str, message: String) -> Resolution {
    let verdict = Verdict {
        reason: reason.to_owned(),
        message: message.clone(),
    };
    Resolution::Refused(Failure::new(class, message), verdict)
}

/// What `set` asks for, by the classes and CA bundles that are known.
#[must_use]
pub(crate) fn resolve(
    set: &Arc<ExporterSet>,
    classes: &[Arc<VirtualTargetClass>],
    bundles: &CaBundles,
) -> Resolution {
    let class_name = &set.spec.virtual_target_class_name;
    let Some(class) = classes.iter().find(|class| class.name_any() == *class_name) else {
        return refused(
            FailureClass::ClassMissing,
            "VirtualTargetClassNotFound",
            format!("VirtualTargetClass \"{class_name}\" not found"),
        );
    };
    if class.spec.provisioner != crate::api::PROVISIONER {
        return Resolution::NotOurs;
    }
    let labels = exporter_labels(
        &set.spec.template.metadata.labels,
        &set.name_any(),
        class_name,
    );
    if !selects(&set.spec.selector, &labels) {
        return refused(
            FailureClass::InvalidParameters,
            "SelectorMismatch",
            "spec.selector does not match the labels that the set's exporters get; correct spec.selector or spec.template.metadata.labels".to_owned(),
        );
    }
    let invalid = |message| {
        let class = FailureClass::InvalidParameters;
        refused(class, class.reason(), message)
    };
    let parameters =
        match Parameters::resolve(class.spec.parameters.as_ref(), set.spec.parameters.as_ref()) {
            Ok(parameters) => parameters,
            Err(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                return invalid(errors.join("; "));
            }
        };
    if let Err(message) = cooldown(set) {
        return invalid(message);
    }
    let secret = class
        .spec
        .credentials_secret_ref
        .as_ref()
        .map(|secret| secret.name.clone());
    let Some(credentials_secret) = secret.filter(|name| !name.is_empty()) else {
        return refused(
            FailureClass::CredentialsMissing,
            FailureClass::CredentialsMissing.reason(),
            format!(
                "VirtualTargetClass {class_name}: spec.credentialsSecretRef.name is empty; name the Secret that holds ssh-privatekey"
            ),
        );
    };
    let source = CaSource::of(class);
    let ca_pem = match bundles.get(&source) {
        None => return Resolution::Needs(source),
        Some(Err(failure)) => {
            return refused(failure.class, failure.class.reason(), failure.to_string());
        }
        Some(Ok(pem)) => pem.clone(),
    };
    let desired = Desired {
        set: Arc::clone(set),
        parameters,
        images: merge_images(class.spec.images.as_ref(), set.spec.images.as_ref()),
        ca_pem,
        credentials_secret,
    };
    match desired.trial() {
        Ok(()) => Resolution::Ready(Arc::new(desired)),
        Err(failure) => refused(failure.class, failure.class.reason(), failure.message),
    }
}

fn cooldown(set: &ExporterSet) -> Result<Duration, String> {
    set.spec
        .scale_down_cooldown
        .as_deref()
        .map_or(Ok(DEFAULT_COOLDOWN), |text| {
            parse_go_duration(text)
                .map_err(|error| format!("ExporterSet spec.scaleDownCooldown: {error}"))
        })
}

/// What `set` asks of the number of its exporters, with `waiting_leases` waiting for one.
#[must_use]
pub(crate) fn demand(set: &ExporterSet, waiting_leases: i32) -> Demand {
    Demand {
        min: set.spec.min_replicas,
        max: set.spec.max_replicas,
        min_available: set.spec.min_available_replicas,
        waiting_leases,
        cooldown: cooldown(set).unwrap_or(DEFAULT_COOLDOWN),
    }
}

impl Desired {
    /// The host, as it stands in the parameters.
    #[must_use]
    pub(crate) fn site(&self) -> Site {
        let host = &self.parameters.host;
        Site {
            host: host.name.clone(),
            user: host.user.clone(),
            port: host.port,
            credentials_secret: self.credentials_secret.clone(),
            host_key: host.host_key.clone(),
        }
    }

    /// The files of one instance. Without its token they have the same revision.
    ///
    /// # Errors
    /// If the drivers or parameters can't be rendered.
    pub(crate) fn render(
        &self,
        about: &About,
        grant: &Grant,
        token: &str,
    ) -> Result<Rendered, Failure> {
        render::render(&Inputs {
            namespace: &about.namespace,
            exporter: &about.name,
            exporter_uid: about.uid.as_deref().unwrap_or_default(),
            set: &about.set,
            endpoint: &grant.endpoint,
            ca_pem: &self.ca_pem,
            token,
            drivers: &self.set.spec.template.spec.drivers,
            parameters: &self.parameters,
            images: &self.images,
            recycle: self.set.spec.recycle_strategy,
        })
    }

    /// Renders an instance that could be, to see whether any can.
    fn trial(&self) -> Result<(), Failure> {
        let about = About {
            namespace: self.set.namespace().unwrap_or_default(),
            name: format!("{}-xxxxx", self.set.name_any()),
            uid: Some("trial".to_owned()),
            set: self.set.name_any(),
            set_uid: String::new(),
        };
        let grant = Grant {
            endpoint: "localhost:8082".to_owned(),
            credential: String::new(),
            site: self.site(),
        };
        self.render(&about, &grant, "").map(|_| ())
    }

    /// What is wanted of an instance whose endpoint is `endpoint`; empty, if it has none yet.
    #[must_use]
    pub(crate) fn wanted(&self, about: &About, endpoint: &str) -> Wanted {
        let site = self.site();
        let grant = Grant {
            endpoint: endpoint.to_owned(),
            credential: String::new(),
            site: site.clone(),
        };
        let revision = match endpoint {
            "" => Ok(String::new()),
            _ => self
                .render(about, &grant, "")
                .map(|rendered| rendered.revision),
        };
        match revision {
            Ok(revision) => Wanted::Run {
                site,
                revision,
                endpoint: endpoint.to_owned(),
                replace_after_lease: self.set.spec.recycle_strategy
                    == RecycleStrategy::ExitAndReplace,
            },
            Err(failure) => Wanted::Blocked(failure),
        }
    }
}
