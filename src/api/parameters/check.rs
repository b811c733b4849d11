//! What each parameter may hold.

use super::reader::{Checked, wrong};
use super::size::normalise;
use super::text::{clean, kind};
use serde_json::Value;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What neither a host nor a user can have in its name, for it would be read as something else in
/// `user@host:port`, in a shell or in a log.
fn misleading(c: char) -> bool {
    c.is_control() || c.is_whitespace() || matches!(c, '@' | '/' | '\'' | '"' | '`')
}

fn text<'v>(value: &'v Value, example: &str) -> Checked<&'v str> {
    match value {
        Value::String(text) if !text.is_empty() => Ok(text),
        Value::String(_) => wrong("is empty", format!("write a text like {example}")),
        other => wrong(
            format!("is {}, must be a text", kind(other)),
            format!("write a text like {example}"),
        ),
    }
}

pub(super) fn boolean(value: &Value) -> Checked<bool> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(_) => wrong(
            "is a text, must be true or false",
            "write true or false without quotes",
        ),
        other => wrong(
            format!("is {}, must be true or false", kind(other)),
            "write true or false",
        ),
    }
}

pub(super) fn port(value: &Value) -> Checked<u16> {
    match value {
        Value::Number(number) => match number.as_u64().map(u16::try_from) {
            Some(Ok(port)) if port > 0 => Ok(port),
            _ => wrong("is no port", "write a number from 1 to 65535"),
        },
        Value::String(text) if text.parse::<u16>().is_ok() => wrong(
            "is a text, must be a number",
            format!("write {text} without quotes"),
        ),
        other => wrong(
            format!("is {}, must be a number", kind(other)),
            "write a number from 1 to 65535",
        ),
    }
}

pub(super) fn user(value: &Value) -> Checked<String> {
    let name = text(value, "root")?;
    if name.starts_with('-') || name.contains(|c| misleading(c) || c == ':') {
        return wrong(
            "is no login name: it has a blank, a quote or one of @ / : in it, or begins with -",
            "write the bare name, e.g. root",
        );
    }
    Ok(name.to_owned())
}

/// A DNS name, an IPv4 address or an IPv6 address, with or without brackets or a zone.
pub(super) fn host_name(value: &Value) -> Checked<String> {
    const HOW: &str = "write a DNS name or an address, e.g. lab-01.example.com or 2001:db8::7";
    let given = text(value, "lab-01.example.com")?;
    let name = given
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'))
        .unwrap_or(given);
    if given.contains('@') {
        return wrong(
            "has a user in it",
            "put what is before the @ into host.user",
        );
    }
    if name.contains(misleading) || name.starts_with('-') {
        return wrong("is no host name", HOW);
    }
    if is_ipv6(name) || name.parse::<Ipv4Addr>().is_ok() {
        return Ok(name.to_owned());
    }
    if name.contains(':') {
        return wrong(
            "is neither a DNS name nor an IPv6 address",
            "put a port into host.port, and write an IPv6 address in full",
        );
    }
    if !is_dns_name(name) || name != given {
        return wrong("is no host name", HOW);
    }
    Ok(name.to_owned())
}

fn is_ipv6(name: &str) -> bool {
    let (address, zone) = name
        .split_once('%')
        .map_or((name, None), |(a, z)| (a, Some(z)));
    let zone_is_fine = zone.is_none_or(|zone| {
        !zone.is_empty()
            && zone.len() <= 15
            && zone
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    });
    zone_is_fine && address.parse::<Ipv6Addr>().is_ok()
}

/// Letters, digits, `-` and `_` in labels of up to 63, up to 253 in all; the resolver says the rest.
fn is_dns_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.len() <= 253
        && name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        })
}

/// `SHA256:…` as `ssh-keygen -l` prints it, or a public key line.
pub(super) fn host_key(value: &Value) -> Checked<String> {
    let given = text(value, "SHA256:… or a line of a .pub file")?.trim();
    let base64 = |text: &str| {
        text.trim_end_matches('=')
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+/".contains(&b))
    };
    let mut fields = given.split(' ');
    let fits = match (fields.next(), fields.next()) {
        (Some(print), None) => print
            .strip_prefix("SHA256:")
            .is_some_and(|digest| digest.trim_end_matches('=').len() == 43 && base64(digest)),
        (Some(algorithm), Some(key)) => {
            ["ssh-", "ecdsa-sha2-", "sk-"]
                .iter()
                .any(|prefix| algorithm.starts_with(prefix))
                // The key repeats its type, behind a length of four bytes: AAAA in base64.
                && key.starts_with("AAAA")
                && base64(key)
        }
        _ => false,
    };
    if !fits || given.contains(char::is_control) {
        return wrong(
            "is no host key",
            "write SHA256:… as shown by ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub on the host, or the line in that file",
        );
    }
    Ok(given.to_owned())
}

pub(super) fn arch(value: &Value) -> Checked<String> {
    let name = text(value, "aarch64")?;
    let fits = name.len() <= 32
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if !fits {
        return wrong(
            "is no architecture of QEMU",
            "write what follows qemu-system- in its program's name, e.g. aarch64 or x86_64",
        );
    }
    Ok(name.to_owned())
}

pub(super) fn cpu(value: &Value) -> Checked<u32> {
    const HOW: &str = "write a whole number of CPUs, e.g. 4";
    let count = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) if text.ends_with('m') => {
            return wrong("is a share of CPUs; a machine has whole ones", HOW);
        }
        Value::String(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    };
    match count.map(u32::try_from) {
        Some(Ok(count)) if count > 0 => Ok(count),
        _ => wrong("is no number of CPUs", HOW),
    }
}

pub(super) fn size(value: &Value) -> Checked<String> {
    normalise(value).or_else(|refused| wrong(refused.problem, refused.remedy))
}

/// Absolute paths under `/dev/`, each once, in the order given.
pub(super) fn devices(value: &Value) -> Checked<Vec<String>> {
    let Value::Array(entries) = value else {
        return wrong(
            format!("is {}, must be a list", kind(value)),
            "write a list of paths, e.g. [/dev/vhost-vsock]",
        );
    };
    let mut devices: Vec<String> = Vec::new();
    for (n, entry) in entries.iter().enumerate() {
        let path = device(entry).or_else(|(problem, remedy)| {
            let shown = entry.as_str().map_or(kind(entry).to_owned(), clean);
            wrong(format!("has an entry {n} ({shown}) that {problem}"), remedy)
        })?;
        if !devices.contains(&path) {
            devices.push(path);
        }
    }
    Ok(devices)
}

fn device(value: &Value) -> Checked<String> {
    let path = text(value, "/dev/vhost-vsock")?;
    if path.contains(':') {
        return wrong(
            "has a colon in it",
            "write the path only; a device has the same path and all permissions in the containers",
        );
    }
    let segments_fit = path.strip_prefix("/dev/").is_some_and(|below| {
        below.split('/').all(|segment| {
            !matches!(segment, "" | "." | "..")
                && segment
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._+-=@,".contains(&b))
        })
    });
    if !segments_fit || path.len() > 255 {
        return wrong(
            "is no path of a device",
            "write a plain path under /dev/, e.g. /dev/vhost-vsock",
        );
    }
    Ok(path.to_owned())
}
