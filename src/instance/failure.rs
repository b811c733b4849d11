//! Why a step did not succeed: the classes that people, retries and metrics tell apart.

use serde::{Deserialize, Serialize};
use std::fmt;

/// When a failed step is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It may pass by itself: exponential backoff from seconds to a minute.
    Soon,
    /// Somebody has to act; looked at again every few minutes, and at once when what it depends on changes.
    Seldom,
}

macro_rules! failure_classes {
    ($($(#[$doc:meta])* $name:ident $code:literal $retry:ident $remedy:literal;)*) => {
        /// What went wrong. The order is part of the journal's format: new classes go to the end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum FailureClass { $($(#[$doc])* $name,)* }

        impl FailureClass {
            /// Every class, in the order of their codes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The stable code; `docs/errors/<code>.md` explains it.
            #[must_use]
            pub const fn code(self) -> &'static str { match self { $(Self::$name => $code),* } }

            /// CamelCase reason for conditions and Events.
            #[must_use]
            pub const fn reason(self) -> &'static str { match self { $(Self::$name => stringify!($name)),* } }

            /// When to try again.
            #[must_use]
            pub const fn retry(self) -> Retry { match self { $(Self::$name => Retry::$retry),* } }

            /// What a person does about it, in one sentence.
            #[must_use]
            pub const fn remedy(self) -> &'static str { match self { $(Self::$name => $remedy),* } }
        }
    };
}

failure_classes! {
    /// No route, no answer, or the name does not resolve.
    HostUnreachable "QS101" Soon "check parameters.host.name and that the controller's network reaches the host's SSH port";
    /// The host answers, but nothing listens on the port.
    ConnectionRefused "QS102" Soon "check parameters.host.port and that sshd runs on the host";
    /// The host does not accept the key for this user.
    AuthenticationRejected "QS103" Seldom "add the public half of the key to the user's authorized_keys on the host, or correct the Secret or parameters.host.user";
    /// The host showed another key than the pinned one.
    HostKeyMismatch "QS104" Seldom "make sure that the host is the right one, then correct parameters.host.hostKey or known_hosts, or remove the host's line from the Secret of pinned keys";
    /// The private key can't be read: encrypted, or not a private key.
    BadPrivateKey "QS105" Seldom "put an unencrypted OpenSSH or PEM private key under ssh-privatekey in the Secret";
    /// Neither root nor passwordless sudo.
    PermissionDenied "QS106" Seldom "log in as root or allow the user sudo without a password";
    /// No Podman, or one without quadlets.
    PodmanUnsuitable "QS107" Seldom "install Podman 4.9 or newer with its systemd generator on the host";
    /// The quadlet generator does not accept a unit.
    QuadletRejected "QS108" Seldom "read the generator's message; it names the line";
    /// A device that the instance needs is not on the host.
    DeviceMissing "QS109" Seldom "load the device's module on the host or remove the device from the parameters";
    /// An image can't be pulled, or must not be and is not there.
    ImageUnavailable "QS110" Soon "check the image reference and the host's access to its registry, or load the image on the host";
    /// A unit does not reach the active state.
    UnitFailed "QS111" Soon "read the unit's last lines of log in the message, or journalctl -u UNIT on the host";
    /// The host's disk is full.
    DiskFull "QS112" Soon "free space under /var/lib/containers or /etc on the host";
    /// A step took longer than it may.
    Timeout "QS113" Soon "look at the host's load";
    /// The file, unit or container belongs to somebody else.
    NameConflict "QS114" Seldom "remove the foreign object from the host or delete this Exporter";
    /// The connection ended before the outcome was known; the step is run again.
    OutcomeUnknown "QS115" Soon "nothing to do: the step is repeated, which is safe";
    /// The host has seen a younger leader.
    Fenced "QS116" Soon "nothing to do: another replica has taken over";
    /// The host does something that we do not understand.
    HostScriptFailed "QS117" Soon "read the message; report it if it is not the host's fault";
    /// The Secret with the SSH key is missing, or has no ssh-privatekey.
    CredentialsMissing "QS201" Seldom "create the Secret that credentialsSecretRef names, with the key ssh-privatekey";
    /// The Exporter's token is missing.
    TokenMissing "QS202" Soon "check jumpstarter-controller, which makes the Exporter's Secret";
    /// The ConfigMap with the CA bundle, or its key, is missing.
    CaBundleMissing "QS203" Seldom "create the ConfigMap that caBundleConfigMapRef names, or jumpstarter-service-ca-cert with the key ca.crt";
    /// A parameter can't be used.
    InvalidParameters "QS204" Seldom "correct the parameter that the message names";
    /// The drivers can't be turned into an exporter's config.
    InvalidDrivers "QS205" Seldom "correct the driver that the message names";
    /// The VirtualTargetClass is missing.
    ClassMissing "QS206" Seldom "create the class or correct virtualTargetClassName";
    /// The API server refused or failed.
    ClusterError "QS301" Soon "check the API server and the controller's Role";
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code(), self.reason())
    }
}

/// A failed step: its class and what was seen. Never carries a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The class.
    pub class: FailureClass,
    /// What was seen, with the host or object that it concerns; up to about 2 KiB.
    pub message: String,
}

impl Failure {
    /// A failure of `class` in which `message` was seen.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}; {}",
            self.class,
            self.message,
            self.class.remedy()
        )
    }
}

impl std::error::Error for Failure {}
