//! The `export` section: which drivers an exporter loads, and whether it could.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::node::{ConfigError, Node};
use crate::yaml::Value;

const QEMU: &str = "jumpstarter_driver_qemu.driver.Qemu";
const TCP: &str = "jumpstarter_driver_network.driver.TcpNetwork";

/// Names of QEMU's disks and firmware that the driver knows.
const PARTITIONS: [&str; 4] = ["root", "bios", "OVMF_CODE.fd", "OVMF_VARS.fd"];

/// Children that the QEMU driver makes by itself, beside one for each forwarded port.
const QEMU_CHILDREN: [&str; 5] = ["power", "flasher", "console", "vnc", "ssh"];

/// Types that appear in samples but in no package, or that can't stand at the
/// top: the exporter fails when it loads them.
const UNLOADABLE: [(&str, &str); 4] = [
    (
        "jumpstarter_driver_power.driver.QemuPower",
        "no such class in that package",
    ),
    (
        "jumpstarter_driver_serial.",
        "no such package; it is jumpstarter_driver_pyserial",
    ),
    (
        "jumpstarter_driver_qemu.driver.QemuPower",
        "needs a parent: use a ref to the QEMU driver's",
    ),
    (
        "jumpstarter_driver_qemu.driver.QemuFlasher",
        "needs a parent: use a ref to the QEMU driver's",
    ),
];

/// One node of the device tree, as the exporter registers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Unique per session.
    pub uuid: String,
    /// The composite that it belongs to; absent for the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_uuid: Option<String>,
    /// `jumpstarter.dev/name`: the driver's name.
    pub labels: BTreeMap<String, String>,
}

/// The drivers of an exporter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drivers {
    children: BTreeMap<String, BTreeSet<String>>,
    /// `host:port` of the `tcp` driver, where the target answers.
    pub target: Option<String>,
}

impl Drivers {
    pub(super) fn read(root: &Node<'_>) -> Result<Self, ConfigError> {
        let Some(export) = root.optional("export")? else {
            return Ok(Self {
                children: BTreeMap::new(),
                target: None,
            });
        };
        let entries = export.entries()?;
        let mut drivers = Self {
            children: BTreeMap::new(),
            target: None,
        };
        for (name, node) in &entries {
            drivers.target = drivers.target.or(tcp_target(node)?);
            drivers.children.insert((*name).to_owned(), instance(node)?);
        }
        for (name, node) in &entries {
            if let Some(reference) = reference(node)? {
                drivers.check_reference(name, &reference)?;
            }
        }
        Ok(drivers)
    }

    /// A `ref` names a driver below the root by a path with dots.
    fn check_reference(&self, own_name: &str, node: &Node<'_>) -> Result<(), ConfigError> {
        let (first, rest) = match node.text()?.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (node.text()?, None),
        };
        if first == own_name {
            return Err(node.wrong("points to itself"));
        }
        let Some(children) = self.children.get(first) else {
            return Err(node.wrong(format!("there is no driver {first} in export")));
        };
        match rest.and_then(|rest| rest.split('.').next()) {
            Some(child) if !children.contains(child) => {
                Err(node.wrong(format!("the driver {first} has no child {child}")))
            }
            _ => Ok(()),
        }
    }

    /// The device tree; `uuid` delivers a fresh id for each node.
    pub fn devices(&self, mut uuid: impl FnMut() -> String) -> Vec<Device> {
        let root = uuid();
        let mut device = |name: Option<&str>, parent: Option<&str>| Device {
            uuid: if parent.is_none() {
                root.clone()
            } else {
                uuid()
            },
            parent_uuid: parent.map(str::to_owned),
            labels: name
                .map(|name| ("jumpstarter.dev/name".to_owned(), name.to_owned()))
                .into_iter()
                .collect(),
        };
        let mut devices = vec![device(None, None)];
        for (name, children) in &self.children {
            let parent = device(Some(name), Some(&root));
            let uuid = parent.uuid.clone();
            devices.push(parent);
            devices.extend(
                children
                    .iter()
                    .map(|child| device(Some(child), Some(&uuid))),
            );
        }
        devices
    }
}

fn reference<'value>(node: &Node<'value>) -> Result<Option<Node<'value>>, ConfigError> {
    if node.optional("type")?.is_some() {
        Ok(None)
    } else {
        node.optional("ref")
    }
}

/// Checks one entry, and its children, and returns the children's names.
fn instance(node: &Node<'_>) -> Result<BTreeSet<String>, ConfigError> {
    let mut children = BTreeSet::new();
    if let Some(declared) = node.optional("children")? {
        for (name, child) in declared.entries()? {
            instance(&child)?;
            children.insert(name.to_owned());
        }
    }
    if let Some(class) = node.optional("type")? {
        check_class(&class)?;
        let config = node.optional("config")?;
        if let Some(config) = &config {
            config.entries()?;
        }
        match class.text()? {
            QEMU => {
                children.extend(QEMU_CHILDREN.map(str::to_owned));
                children.extend(config.as_ref().map_or(Ok(Vec::new()), qemu)?);
            }
            TCP => tcp(&config.map_or_else(|| node.field("config"), Ok)?)?,
            _ => {}
        }
        return Ok(children);
    }
    if let Some(reference) = node.optional("ref")? {
        let text = reference.text()?;
        if text.is_empty() || text.split('.').any(str::is_empty) {
            return Err(reference.wrong("must be names joined by dots, such as qemu.power"));
        }
        if node.optional("config")?.is_some() {
            return Err(node.wrong("a ref has no config: the driver that it names has"));
        }
        return Ok(children);
    }
    match node.optional("children")? {
        Some(_) => Ok(children),
        None => Err(node.wrong("needs a type, a ref or children")),
    }
}

fn check_class(class: &Node<'_>) -> Result<(), ConfigError> {
    let text = class.text()?;
    let mut parts = text.split('.');
    if parts.clone().count() < 2 || parts.any(str::is_empty) {
        return Err(class.wrong("must be a class's path, such as package.module.Class"));
    }
    match UNLOADABLE
        .iter()
        .find(|(prefix, _)| text == *prefix || (prefix.ends_with('.') && text.starts_with(prefix)))
    {
        Some((_, reason)) => Err(class.wrong(format!("can't be loaded: {reason}"))),
        None => Ok(()),
    }
}

/// Checks the QEMU driver's config; returns the forwarded ports' names.
fn qemu(config: &Node<'_>) -> Result<Vec<String>, ConfigError> {
    for name in [
        "arch",
        "launcher_socket",
        "hostname",
        "username",
        "password",
    ] {
        config
            .optional(name)?
            .map(|node| node.text().map(drop))
            .transpose()?;
    }
    config
        .optional("smp")?
        .map(|node| node.integer(1..=4096))
        .transpose()?;
    config
        .optional("mem")?
        .map(|node| size(&node))
        .transpose()?;
    if let Some(disk_size) = config.optional("disk_size")?
        && *disk_size.value() != Value::Null
    {
        size(&disk_size)?;
    }
    if let Some(partitions) = config.optional("default_partitions")? {
        for (name, path) in partitions.entries()? {
            path.text()?;
            if !PARTITIONS.contains(&name) {
                let known = PARTITIONS.join(", ");
                return Err(path.wrong(format!("no such partition; known are {known}")));
            }
        }
    }
    let mut names = Vec::new();
    if let Some(forwards) = config.optional("hostfwd")? {
        for (name, forward) in forwards.entries()? {
            forward
                .optional("protocol")?
                .map(|node| node.literal("tcp"))
                .transpose()?;
            forward
                .optional("hostaddr")?
                .map(|node| node.text().map(drop))
                .transpose()?;
            forward.field("hostport")?.integer(1..=65_535)?;
            forward.field("guestport")?.integer(1..=65_535)?;
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// A size as QEMU's command line takes it: a string, the unit one letter.
fn size(node: &Node<'_>) -> Result<(), ConfigError> {
    let text = node.text()?;
    let digits = text.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T']);
    let is_size = !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && text.len() - digits.len() <= 1;
    if is_size {
        Ok(())
    } else {
        Err(node.wrong("must be a size such as 512M or 4G"))
    }
}

fn tcp(config: &Node<'_>) -> Result<(), ConfigError> {
    config.field("host")?.text()?;
    config.field("port")?.integer(1..=65_535).map(drop)
}

fn tcp_target(node: &Node<'_>) -> Result<Option<String>, ConfigError> {
    if !node
        .optional("type")?
        .is_some_and(|class| class.text().is_ok_and(|text| text == TCP))
    {
        return Ok(None);
    }
    let config = node.field("config")?;
    tcp(&config)?;
    let (host, port) = (config.field("host")?, config.field("port")?);
    Ok(Some(format!(
        "{}:{}",
        host.text()?,
        port.integer(1..=65_535)?
    )))
}
