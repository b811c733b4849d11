//! The script that carries out a batch: fragments of POSIX shell, and the values they work on.
//!
//! The script goes to the host on stdin and is read whole before it starts, so that nothing of it
//! shows in a process list and no command inside can eat the rest. Values reach it only as quoted
//! words; secrets are written by the shell's own `printf`.

use super::quote::quote;
use super::{Batch, Op};
use crate::api::{ImageSpec, PullPolicy};
use crate::instance::{Failure, FailureClass};
use crate::render::HostFile;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::time::Duration;
use zeroize::Zeroizing;

const PRELUDE: &str = include_str!("prelude.sh");
const PREFLIGHT: &str = include_str!("preflight.sh");
const WRITE: &str = include_str!("write.sh");
const VOLUME: &str = include_str!("volume.sh");
const UNITS: &str = include_str!("units.sh");
const TEARDOWN: &str = include_str!("teardown.sh");

/// The command line that reads a script from stdin and runs it as root, within `limit`.
/// The login shell may be any that knows single quotes.
pub(super) fn bootstrap(limit: Duration) -> String {
    let limit = limit.as_secs().max(1);
    let run = format!(r#"timeout -k 5 {limit} sh -c "eval \"\$(cat)\"""#);
    format!(r#"sh -c 'if [ "$(id -u)" = 0 ]; then exec {run}; else exec sudo -n {run}; fi'"#)
}

/// Composes the script of `batch`.
///
/// # Errors
/// `InvalidParameters`, naming the value, if one can't stand in a script or as a name on a host.
pub(super) fn compose(batch: &Batch) -> Result<Zeroizing<String>, Failure> {
    compose_below(batch, "")
}

/// Composes a script that works below `root` instead of `/`.
fn compose_below(batch: &Batch, root: &str) -> Result<Zeroizing<String>, Failure> {
    let exporter = name("the Exporter's name", batch.names.exporter())?;
    let uid = name("the Exporter's UID", &batch.owner.uid)?;
    let namespace = name("the namespace", &batch.owner.namespace)?;
    let lease_uid = name("the leader Lease's UID", &batch.fence.lease_uid)?;
    let mut script = Zeroizing::new(String::new());
    for (key, value) in [
        ("root", quote("the root", root)?),
        ("exporter", exporter),
        ("uid", uid),
        ("namespace", namespace),
        ("lease_uid", lease_uid),
        ("epoch", batch.fence.epoch.to_string()),
        ("stripe", stripe(batch.names.exporter())),
    ] {
        line(&mut script, format_args!("{key}={value}"));
    }
    script.push_str(PRELUDE);
    for fragment in [PREFLIGHT, WRITE, VOLUME, UNITS, TEARDOWN] {
        script.push_str(fragment);
    }
    line(&mut script, format_args!("open_batch"));
    let mut locked = false;
    for op in &batch.ops {
        // Pulls may take long and are safe side by side: the lock is taken after them.
        if !locked && !matches!(op, Op::Preflight { .. }) {
            line(&mut script, format_args!("lock"));
            locked = true;
        }
        line(&mut script, format_args!("begin {}", op.step().name()));
        add_op(&mut script, op)?;
        line(&mut script, format_args!("finish"));
    }
    line(&mut script, format_args!("close_batch"));
    Ok(script)
}

fn add_op(script: &mut String, op: &Op) -> Result<(), Failure> {
    match op {
        Op::Preflight { devices, images } => {
            line(script, format_args!("preflight_host"));
            for device in devices {
                let device = quote("a device", device)?;
                line(script, format_args!("preflight_device {device}"));
            }
            if !images.is_empty() {
                let images = images.iter().map(image).collect::<Result<Vec<_>, _>>()?;
                line(
                    script,
                    format_args!("preflight_images {}", images.join(" ")),
                );
            }
        }
        Op::WriteConfig(file) => add_file(script, "write_config", file)?,
        Op::WriteQuadlets(files) => {
            for file in files {
                add_file(script, "stage_quadlet", file)?;
            }
            line(script, format_args!("install_quadlets"));
        }
        Op::CreateVolume {
            exporter_image,
            runtime_image,
            wipe,
        } => {
            let exporter_image = reference("the exporter's image", exporter_image)?;
            let runtime_image = reference("the runtime's image", runtime_image)?;
            let wipe = if *wipe { "wipe" } else { "keep" };
            line(
                script,
                format_args!("create_volume {exporter_image} {runtime_image} {wipe}"),
            );
        }
        Op::Start { restart } => {
            let restart = if *restart { "restart" } else { "keep" };
            line(script, format_args!("start_units {restart}"));
        }
        Op::Stop => line(script, format_args!("stop_instance")),
        Op::RemoveFiles => line(script, format_args!("remove_files")),
        Op::RemoveVolume => line(script, format_args!("remove_volume")),
        Op::Reload => line(script, format_args!("reload_and_prove")),
    }
    Ok(())
}

/// An image's reference, pull policy, and the unit that pulls it.
fn image(spec: &ImageSpec) -> Result<String, Failure> {
    let reference = reference("an image", spec.image.as_deref().unwrap_or_default())?;
    let policy = match spec.image_pull_policy.unwrap_or_default() {
        PullPolicy::Always => "Always",
        PullPolicy::Never => "Never",
        PullPolicy::IfNotPresent => "IfNotPresent",
    };
    let unit = short_hex(&reference, 16);
    Ok(format!("{reference} {policy} exporter-set-pull-{unit}"))
}

/// An image reference: no option, no blank.
fn reference(what: &str, text: &str) -> Result<String, Failure> {
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '*' | '?' | '[');
    if text.is_empty() || text.starts_with('-') || text.contains(odd) {
        return Err(invalid(what, text, "give an image reference"));
    }
    quote(what, text)
}

/// One call with a file's path, mode, digest and content.
fn add_file(script: &mut String, function: &str, file: &HostFile) -> Result<(), Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '@');
    if !file.path.starts_with('/') || !file.path.chars().all(plain) || file.path.contains("/.") {
        return Err(invalid(
            "the path of a file",
            &file.path,
            "use an absolute path of letters, digits, '.', '-', '_' and '@'",
        ));
    }
    let digest = hex(&Sha256::digest(file.content.as_bytes()));
    let content = Zeroizing::new(quote(&file.path, &file.content)?);
    line(
        script,
        format_args!(
            "{function} \"$root\"{} {:o} {digest} {}",
            file.path,
            file.mode,
            content.as_str()
        ),
    );
    Ok(())
}

/// What may be part of a file's and a unit's name as it stands.
fn name(what: &str, value: &str) -> Result<String, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let starts_well = value.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !starts_well || value.len() > 253 || !value.chars().all(plain) {
        return Err(invalid(
            what,
            value,
            "it must be letters, digits, '.' and '-', and start with a letter or digit",
        ));
    }
    quote(what, value)
}

fn invalid(what: &str, value: &str, remedy: &str) -> Failure {
    Failure::new(
        FailureClass::InvalidParameters,
        format!("{what} can't be used on a host: {value:?}; {remedy}"),
    )
}

/// Which of 256 lock files the instance shares.
fn stripe(exporter: &str) -> String {
    short_hex(exporter, 2)
}

fn short_hex(text: &str, length: usize) -> String {
    hex(&Sha256::digest(text.as_bytes()))
        .chars()
        .take(length)
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn line(script: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(script, "{text}");
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
