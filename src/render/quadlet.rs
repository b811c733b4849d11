//! The three quadlets of an instance.
//!
//! `NAME-net` holds the network namespace that the other two join: the guest's forwarded ports,
//! which QEMU opens on the runtime's loopback, are on the exporter's loopback too, other instances
//! on the host have theirs, and neither container takes the network away when it ends. Runtime and
//! exporter start side by side; each is restarted by systemd whatever it ends with, for `jmp run`
//! ends with 0 also when it could not register.

use super::unit::Unit;
use super::{Inputs, Names};
use crate::api::RecycleStrategy;

/// What the three have in common.
pub(super) struct Quadlets<'a> {
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) names: &'a Names,
    pub(super) exporter_image: &'a str,
    pub(super) runtime_image: &'a str,
}

impl Quadlets<'_> {
    /// Container name and text of each, in the order in which they start.
    pub(super) fn render(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        if !self.inputs.parameters.runtime.host_network {
            all.push((self.names.net(), self.net()));
        }
        all.push((self.names.runtime(), self.runtime()));
        all.push((self.names.exporter_unit(), self.exporter()));
        all
    }

    fn net(&self) -> String {
        let name = self.names.net();
        let mut unit = Unit::default();
        unit.section("Unit")
            .set(
                "Description",
                &format!("Jumpstarter network namespace for {}", self.inputs.exporter),
            )
            // It is started by those that need it and goes with the last of them.
            .set("StopWhenUnneeded", "true")
            .set("StartLimitIntervalSec", "0");
        unit.section("Container").set("ContainerName", &name);
        // The exporter's image, since it has a shell's tools; the runtime's may have none.
        self.image(&mut unit, self.exporter_image)
            .set("RunInit", "true");
        self.labels(&mut unit)
            .set("PodmanArgs", "--stop-timeout=2")
            .set("Exec", "sleep infinity");
        unit.section("Service")
            // After a power loss Podman 4.9 refuses to replace a container that others join.
            .set(
                "ExecStartPre",
                &format!("-/usr/bin/podman rm --force --ignore --depend --time 2 {name}"),
            )
            .set("Restart", "always")
            .set("RestartSec", "1")
            .set("SuccessExitStatus", "143")
            .set("TimeoutStartSec", "120");
        unit.finish()
    }

    fn runtime(&self) -> String {
        let (inputs, name) = (self.inputs, self.names.runtime());
        let mut unit = Unit::default();
        unit.section("Unit").set(
            "Description",
            &format!("Jumpstarter QEMU Runtime for {}", inputs.exporter),
        );
        self.needs_network(&mut unit)
            .set("StartLimitIntervalSec", "0");
        unit.section("Container").set("ContainerName", &name);
        self.image(&mut unit, self.runtime_image)
            // The launcher's socket and QEMU's files are on a volume that belongs to root.
            .set("User", "0")
            // As first process the launcher would not hear SIGTERM.
            .set("RunInit", "true");
        self.network(&mut unit);
        self.volumes(&mut unit);
        self.devices(&mut unit).set(
            "Environment",
            &format!(
                "JUMPSTARTER_EXEC_LOG_FIELDS=component=exporter,exporter={},namespace={}",
                inputs.exporter, inputs.namespace
            ),
        );
        self.labels(&mut unit).set("PodmanArgs", "--stop-timeout=5");
        unit.section("Service")
            // With an init in front a missing launcher would pass for a start that succeeded.
            .set(
                "ExecStartPre",
                &format!(
                    "/usr/bin/test -x {}/jumpstarter-exec",
                    self.names.volume_data()
                ),
            )
            .set("Restart", "always")
            .set("RestartSec", "1")
            .set("SuccessExitStatus", "143")
            // One guest out of memory doesn't take the launcher along.
            .set("OOMPolicy", "continue")
            .set("TimeoutStartSec", "120")
            .set("TimeoutStopSec", "30");
        unit.section("Install").set("WantedBy", "multi-user.target");
        unit.finish()
    }

    fn exporter(&self) -> String {
        let (inputs, name) = (self.inputs, self.names.exporter_unit());
        let config = self.names.config_path();
        let mut unit = Unit::default();
        unit.section("Unit").set(
            "Description",
            &format!("Jumpstarter Exporter for {}", inputs.exporter),
        );
        self.needs_network(&mut unit)
            .set("Wants", &format!("{}.service", self.names.runtime()))
            .set("StartLimitIntervalSec", "0");
        unit.section("Container").set("ContainerName", &name);
        self.image(&mut unit, self.exporter_image);
        self.network(&mut unit);
        self.volumes(&mut unit)
            .set("Volume", &format!("{config}:{config}:ro,z"));
        self.devices(&mut unit);
        self.labels(&mut unit)
            .set("PodmanArgs", "--stop-timeout=15")
            .set("Exec", &format!("jmp run --exporter-config {config}"));
        unit.section("Service");
        if inputs.recycle == RecycleStrategy::ExitAndReplace {
            unit.raw("ExecCondition", &clean_machine(self.names));
        }
        unit.set("Restart", "always")
            .set("RestartSec", "5")
            .set("SuccessExitStatus", "143")
            .set("TimeoutStartSec", "120")
            .set("TimeoutStopSec", "30");
        unit.section("Install").set("WantedBy", "multi-user.target");
        unit.finish()
    }

    /// Images are pulled beforehand, so that a start takes no longer than a start.
    fn image<'u>(&self, unit: &'u mut Unit, image: &str) -> &'u mut Unit {
        unit.set("Image", image).set("Pull", "never")
    }

    fn needs_network<'u>(&self, unit: &'u mut Unit) -> &'u mut Unit {
        if self.inputs.parameters.runtime.host_network {
            return unit;
        }
        let net = format!("{}.service", self.names.net());
        unit.set("Requires", &net).set("After", &net)
    }

    fn network<'u>(&self, unit: &'u mut Unit) -> &'u mut Unit {
        if self.inputs.parameters.runtime.host_network {
            unit.set("Network", "host")
        } else {
            unit.set("Network", &format!("container:{}", self.names.net()))
        }
    }

    /// The launcher and QEMU's sockets are looked for in `/shared`, disks in `/shared` by older and
    /// in `/disk` by newer drivers.
    fn volumes<'u>(&self, unit: &'u mut Unit) -> &'u mut Unit {
        let volume = self.names.volume();
        unit.set("Volume", &format!("{volume}:/shared:z"))
            .set("Volume", &format!("{volume}:/disk:z"))
    }

    /// Also for the exporter, for it is there that the driver looks whether it may use them.
    fn devices<'u>(&self, unit: &'u mut Unit) -> &'u mut Unit {
        for device in self.inputs.parameters.runtime.all_devices() {
            unit.set("AddDevice", device);
        }
        unit
    }

    /// By these a host's containers are found, and told from other people's.
    fn labels<'u>(&self, unit: &'u mut Unit) -> &'u mut Unit {
        let inputs = self.inputs;
        unit.set("LogDriver", "journald")
            .set("Label", "jumpstarter.dev/managed-by=qemu-ssh")
            .set(
                "Label",
                &format!("jumpstarter.dev/exporter={}", inputs.exporter),
            )
            .set(
                "Label",
                &format!("jumpstarter.dev/namespace={}", inputs.namespace),
            )
            .set(
                "Label",
                &format!("jumpstarter.dev/exporterset={}", inputs.set),
            )
            .set(
                "Label",
                &format!("jumpstarter.dev/exporter-uid={}", inputs.exporter_uid),
            )
    }
}

/// Whether an exporter may start: on our word for this one start, which it uses up, or on a machine
/// that nobody has used, whose volume holds what was staged and nothing else.
///
/// Otherwise the next client would be given the last one's disk whenever an exporter ends, or the
/// host boots, while we are away. Only what the shell itself can do decides, so that nothing that a
/// host lacks can pass for a clean machine. Names with a dot in front are our own files on their way.
fn clean_machine(names: &Names) -> String {
    let (word, data) = (names.start_word(), names.volume_data());
    // For systemd: $$ is a dollar; words in single quotes would end at the ones inside.
    format!(
        "/bin/sh -c \"rm {word} 2>/dev/null && exit 0; \
         cd {data} && test -x jumpstarter-exec || exit 1; \
         for f in * .*; do case $$f in \
         .|..|'.*'|jumpstarter-exec|launcher.sock|OVMF_CODE.fd|OVMF_VARS.fd|\
         .jumpstarter-exec.*|.OVMF_CODE.fd.*|.OVMF_VARS.fd.*) ;; \
         *) exit 1;; esac; done\""
    )
}

#[cfg(test)]
mod tests;
