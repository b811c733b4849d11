//! The Kubernetes types: ExporterSet, VirtualTargetClass, Exporter and Lease, as Jumpstarter's
//! API groups define them, and the typed [`Parameters`] of a set.

mod crds;
mod duration;
mod exporter;
mod exporter_set;
mod lease;
mod parameters;
mod schema;
mod virtual_target_class;

pub use crds::{crds, crds_yaml};
pub use duration::{InvalidDuration, parse_go_duration};
pub use exporter::{Exporter, ExporterSpec, ExporterStatus};
pub use exporter_set::{
    DriverConfig, ExporterSet, ExporterSetSpec, ExporterSetStatus, ExporterTemplate, ImageSpec,
    Images, PullPolicy, RecycleStrategy, TemplateMetadata, TemplateSpec, merge_images,
};
pub(crate) use parameters::clean;

pub use lease::{Lease, LeaseSpec, LeaseStatus};
pub use parameters::{HostParameters, ParameterError, Parameters, Resources, RuntimeParameters};
pub use virtual_target_class::{
    BindingMode, CaBundleReference, ReclaimPolicy, VirtualTargetClass, VirtualTargetClassSpec,
};

/// The name under which a VirtualTargetClass asks for us.
pub const PROVISIONER: &str = "qemu-ssh.jumpstarter.dev";
/// The finalizer that keeps an Exporter until its host is clean.
pub const FINALIZER: &str = "qemu-ssh.jumpstarter.dev/teardown";
/// Annotation: the lab host that carries the instance, written when it runs.
pub const ANNOTATION_HOST: &str = "qemu-ssh.jumpstarter.dev/host";
/// Annotation: the Secret whose key opens the lab host.
pub const ANNOTATION_CREDENTIALS_SECRET: &str = "qemu-ssh.jumpstarter.dev/credentials-secret";
/// Annotation: `user@name:port` of the lab host, written before anything is done there.
pub const ANNOTATION_PENDING_HOST: &str = "qemu-ssh.jumpstarter.dev/pending-host";
/// Annotation: the state of the instance, for people.
pub const ANNOTATION_STATE: &str = "qemu-ssh.jumpstarter.dev/state";
/// Annotation: the revision of the files on the host.
pub const ANNOTATION_REVISION: &str = "qemu-ssh.jumpstarter.dev/revision";
/// Annotation: why the last step failed; absent when it did not.
pub const ANNOTATION_LAST_ERROR: &str = "qemu-ssh.jumpstarter.dev/last-error";
/// Annotation: an administrator's word that what is left on a lost host is of no concern;
/// its value is the reason, kept in the journal.
pub const ANNOTATION_WAIVE_TEARDOWN: &str = "qemu-ssh.jumpstarter.dev/waive-teardown";
/// The Secret in which the keys of hosts are pinned that were met for the first time.
pub const HOST_KEYS_SECRET: &str = "exporter-set-controller-known-hosts";
/// Label: the ExporterSet that an Exporter belongs to.
pub const LABEL_SET: &str = "exporterset.jumpstarter.dev/name";
/// Label: the VirtualTargetClass of that set.
pub const LABEL_CLASS: &str = "exporterset.jumpstarter.dev/class";
/// Label: the provisioner of that class.
pub const LABEL_PROVISIONER: &str = "exporterset.jumpstarter.dev/provisioner";
/// Label on a Lease that is over; its value is `true`.
pub const LABEL_LEASE_ENDED: &str = "jumpstarter.dev/lease-ended";
