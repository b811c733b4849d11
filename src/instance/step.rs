//! The steps by which an instance comes and goes, in their order.

use serde::{Deserialize, Serialize};

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident $text:literal;)*) => {
        /// One step. The order is part of the journal's format: new steps go to the end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Step { $($(#[$doc])* $name,)* }

        impl Step {
            /// Every step.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// kebab-case name: in host reports, span names, metric labels and failpoints.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Self::$name => $text),* } }

            /// The step of that name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|step| step.name() == name)
            }
        }
    };
}

steps! {
    /// Create the Exporter, with our finalizer.
    Create "create";
    /// Wait for Jumpstarter's credential and endpoint; write the pending host on the Exporter.
    AwaitCredentials "await-credentials";
    /// Connect to the host; check Podman, devices and images.
    Connect "connect";
    /// Write the exporter's config.
    WriteConfig "write-config";
    /// Write the quadlets, once the generator accepts them.
    WriteQuadlets "write-quadlets";
    /// Make the shared volume and stage `jumpstarter-exec` into it.
    CreateVolume "create-volume";
    /// Reload systemd, start the units, see them active.
    Start "start";
    /// Write the host on the Exporter.
    Annotate "annotate";
    /// Disable the Exporter and wait until its lease is over.
    Disable "disable";
    /// Stop the units.
    Stop "stop";
    /// Remove quadlets and config.
    RemoveFiles "remove-files";
    /// Remove the volume.
    RemoveVolume "remove-volume";
    /// Reload systemd and see that nothing is left.
    Reload "reload";
    /// Remove the finalizer and delete the Exporter.
    Delete "delete";
}
