//! Names and paths on a host: functions of the Exporter's name and nothing else.

/// Where the generator looks for quadlets.
pub const QUADLET_DIR: &str = "/etc/containers/systemd";
/// Where the exporters' configs are.
pub const CONFIG_DIR: &str = "/etc/jumpstarter/exporters";

/// The names of everything that one Exporter has on its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    exporter: String,
}

impl Names {
    /// The names for the Exporter called `exporter`.
    pub fn of(exporter: impl Into<String>) -> Self {
        Self {
            exporter: exporter.into(),
        }
    }

    /// The Exporter's own name.
    #[must_use]
    pub fn exporter(&self) -> &str {
        &self.exporter
    }

    /// Container and unit of the network holder, without suffix.
    #[must_use]
    pub fn net(&self) -> String {
        format!("{}-net", self.exporter)
    }

    /// Container and unit of the QEMU runtime, without suffix.
    #[must_use]
    pub fn runtime(&self) -> String {
        format!("{}-runtime", self.exporter)
    }

    /// Container and unit of the exporter, without suffix.
    #[must_use]
    pub fn exporter_unit(&self) -> String {
        format!("{}-exporter", self.exporter)
    }

    /// The Podman volume that both containers share.
    #[must_use]
    pub fn volume(&self) -> String {
        format!("jumpstarter-{}-shared", self.exporter)
    }

    /// Where Podman keeps what is in the volume.
    #[must_use]
    pub fn volume_data(&self) -> String {
        format!(
            "/var/lib/containers/storage/volumes/{}/_data",
            self.volume()
        )
    }

    /// The exporter's config.
    #[must_use]
    pub fn config_path(&self) -> String {
        format!("{CONFIG_DIR}/{}.yaml", self.exporter)
    }

    /// The quadlet of the container `container` (one of [`net`](Self::net), [`runtime`](Self::runtime), [`exporter_unit`](Self::exporter_unit)).
    #[must_use]
    pub fn quadlet_path(&self, container: &str) -> String {
        format!("{QUADLET_DIR}/{container}.container")
    }

    /// The flag file by which we allow one start on a used machine.
    #[must_use]
    pub fn start_word(&self) -> String {
        format!("/run/exporter-set-controller/{}.start", self.exporter)
    }
}
