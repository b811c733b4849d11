//! The `export` part of an exporter's config: the set's drivers, each QEMU driver completed by what
//! the parameters say and by what the containers need.

use crate::api::{DriverConfig, Parameters, clean};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const QEMU: &str = "jumpstarter_driver_qemu.driver.Qemu";
const TCP: &str = "jumpstarter_driver_network.driver.TcpNetwork";
/// Made by the QEMU driver itself, of which they need the inside; the names of its children.
const CHILDREN: [(&str, &str); 2] = [
    ("jumpstarter_driver_qemu.driver.QemuPower", "power"),
    ("jumpstarter_driver_qemu.driver.QemuFlasher", "flasher"),
];

/// Where `jumpstarter-exec` listens, in both containers.
const LAUNCHER_SOCKET: &str = "/shared/launcher.sock";
/// The guest's SSH port, as the exporter's container sees it.
const SSH_PORT: u16 = 2222;

/// Builds the `export` map.
///
/// What a driver's own config says wins over the parameters, these win over defaults; only
/// `launcher_socket` is forced, for there is one launcher and it is ours. Two drivers are added if
/// the set doesn't have their like: `power`, a reference to the (last) QEMU driver's child, and
/// `tcp`, which reaches that machine's SSH port. A `tcp` of another type keeps its name: then none
/// is added.
///
/// # Errors
/// One line for each driver that can't be exported.
pub(super) fn export(
    drivers: &[DriverConfig],
    parameters: &Parameters,
) -> Result<Map<String, Value>, Vec<String>> {
    let errors = check(drivers);
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut export = Map::new();
    let mut errors = Vec::new();
    let mut ports = Ports::taken_by(drivers);
    let mut last: Option<(&str, u16)> = None;
    for driver in drivers {
        let entry = match (&driver.type_, &driver.ref_) {
            (Some(class), _) if class == QEMU => match qemu(driver, parameters, &mut ports) {
                Ok((entry, ssh_port)) => {
                    last = Some((&driver.name, ssh_port));
                    entry
                }
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            },
            (Some(class), _) => match &driver.config {
                Some(config) => json!({ "type": class, "config": config }),
                None => json!({ "type": class }),
            },
            (None, target) => json!({ "ref": target }),
        };
        export.insert(driver.name.clone(), entry);
    }
    if let Some((name, _)) = last
        && !export.contains_key("power")
    {
        export.insert("power".into(), json!({ "ref": format!("{name}.power") }));
    }
    if !export.contains_key("tcp") && !drivers.iter().any(|d| d.type_.as_deref() == Some(TCP)) {
        let port = last.map_or(SSH_PORT, |(_, port)| port);
        let config = json!({ "host": "127.0.0.1", "port": port });
        export.insert("tcp".into(), json!({ "type": TCP, "config": config }));
    }
    if errors.is_empty() {
        Ok(export)
    } else {
        Err(errors)
    }
}

/// What can be said against the drivers before any is looked into.
fn check(drivers: &[DriverConfig]) -> Vec<String> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for driver in drivers {
        let name = clean(&driver.name);
        if name.is_empty() {
            errors.push("a driver has no name; give each one a name of its own".to_owned());
        } else if !seen.insert(&driver.name) {
            errors.push(format!(
                "two drivers are named \"{name}\"; give each one a name of its own"
            ));
        }
        if driver.type_.is_some() == driver.ref_.is_some() {
            errors.push(format!(
                "driver \"{name}\" must have either a type or a ref; set one of them"
            ));
        }
        let child = CHILDREN
            .iter()
            .find(|(class, _)| driver.type_.as_deref() == Some(class));
        if let Some((class, child)) = child {
            errors.push(format!(
                "driver \"{name}\": {class} can't stand by itself, the QEMU driver makes it; write {{name: {name}, ref: qemu.{child}}} with the QEMU driver's name for qemu"
            ));
        }
    }
    errors
}

/// Ports of the containers' loopback that guests' ports are forwarded to.
struct Ports(BTreeSet<u64>);

impl Ports {
    fn taken_by(drivers: &[DriverConfig]) -> Self {
        let forwards = drivers
            .iter()
            .filter(|driver| driver.type_.as_deref() == Some(QEMU))
            .filter_map(|driver| driver.config.as_ref()?.get("hostfwd")?.as_object());
        Self(
            forwards
                .flat_map(Map::values)
                .filter_map(|forward| forward.get("hostport")?.as_u64())
                .collect(),
        )
    }

    /// The first port from [`SSH_PORT`] on that nobody has.
    fn next(&mut self) -> u16 {
        let free = (SSH_PORT..=u16::MAX)
            .find(|port| !self.0.contains(&u64::from(*port)))
            .unwrap_or(SSH_PORT);
        self.0.insert(u64::from(free));
        free
    }
}

/// The entry of a QEMU driver, and the port at which its guest's SSH is reached.
fn qemu(
    driver: &DriverConfig,
    parameters: &Parameters,
    ports: &mut Ports,
) -> Result<(Value, u16), String> {
    let mut config = driver.config.clone().unwrap_or_default();
    config.insert("launcher_socket".into(), json!(LAUNCHER_SOCKET));
    let from_parameters = [
        ("arch", parameters.arch.as_ref().map(|arch| json!(arch))),
        ("smp", parameters.resources.cpu.map(|cpu| json!(cpu))),
        (
            "mem",
            parameters.resources.memory.as_ref().map(|m| json!(m)),
        ),
        ("disk_size", parameters.disk_size.as_ref().map(|s| json!(s))),
    ];
    for (key, value) in from_parameters {
        if let Some(value) = value {
            config.entry(key).or_insert(value);
        }
    }
    if !config.contains_key("default_partitions") {
        let firmware = firmware(config.get("arch").and_then(Value::as_str));
        config.insert("default_partitions".into(), firmware);
    }
    let ssh_port = forward_ssh(&mut config, ports)
        .map_err(|problem| format!("driver \"{}\": {problem}", clean(&driver.name)))?;
    Ok((json!({ "type": QEMU, "config": config }), ssh_port))
}

/// Where the runtime image has the UEFI firmware for an architecture.
fn firmware(arch: Option<&str>) -> Value {
    match arch {
        Some("aarch64") => json!({
            "OVMF_CODE.fd": "/usr/share/AAVMF/AAVMF_CODE.fd",
            "OVMF_VARS.fd": "/usr/share/AAVMF/AAVMF_VARS.fd",
        }),
        _ => json!({
            "OVMF_CODE.fd": "/usr/share/edk2/ovmf/OVMF_CODE.fd",
            "OVMF_VARS.fd": "/usr/share/edk2/ovmf/OVMF_VARS.fd",
        }),
    }
}

/// Sees to it that the guest's SSH port is forwarded; gives the port on the containers' loopback.
fn forward_ssh(config: &mut Map<String, Value>, ports: &mut Ports) -> Result<u16, &'static str> {
    let Value::Object(forwards) = config.entry("hostfwd").or_insert_with(|| json!({})) else {
        return Err("config.hostfwd must be a map of names to forwarded ports");
    };
    let Some(ssh) = forwards.get("ssh") else {
        let port = ports.next();
        forwards.insert(
            "ssh".into(),
            json!({ "hostaddr": "127.0.0.1", "hostport": port, "guestport": 22 }),
        );
        return Ok(port);
    };
    ssh.get("hostport")
        .and_then(Value::as_u64)
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0)
        .ok_or("config.hostfwd.ssh.hostport must be a number from 1 to 65535; leave config.hostfwd.ssh out to have it filled in")
}

#[cfg(test)]
mod tests;
