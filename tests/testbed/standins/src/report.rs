//! What an exporter sees of its surroundings, for tests to compare.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::ExporterConfig;

/// Limit on connecting to the target, and on waiting for what it says.
const TARGET_LIMIT: Duration = Duration::from_millis(500);

/// A snapshot. Unreadable things are absent or empty: the absence is the finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// SHA-256 of the token, in hexadecimal.
    pub token_sha256: String,
    /// The configuration file.
    pub config: Option<FileFacts>,
    /// Names in the configuration file's folder: others' files must not be seen.
    pub config_folder: Vec<String>,
    /// The container's host name.
    pub hostname: String,
    /// The process's user id.
    pub uid: u32,
    /// Identity of the network namespace, such as `net:[4026531840]`.
    pub network_namespace: String,
    /// The target behind the `tcp` driver.
    pub target: Target,
    /// Names in `/dev`.
    pub devices: Vec<String>,
    /// Whether `/dev/kvm` can be opened for reading and writing.
    pub kvm_usable: bool,
    /// `/shared`, if it is there.
    pub shared: Option<MountFacts>,
    /// `/disk`, if it is there.
    pub disk: Option<MountFacts>,
    /// The variable `JUMPSTARTER_LAUNCHER_SOCKET`.
    pub launcher_socket: Option<String>,
}

/// A file's metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    /// Its path.
    pub path: String,
    /// Permission bits in octal, such as `0400`.
    pub mode: String,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A mounted folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFacts {
    /// Device number.
    pub device: u64,
    /// Inode of the folder: with the device, equal for two mounts of one folder.
    pub inode: u64,
    /// Whether something is mounted exactly there.
    pub is_mount_point: bool,
    /// Names in it.
    pub entries: Vec<String>,
}

/// Whether something answers where the guest's port is forwarded to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// `host:port`.
    pub address: String,
    /// A connection was accepted.
    pub answers: bool,
    /// What was sent on it in the first half second.
    pub text: String,
}

impl Report {
    /// Looks around.
    #[must_use]
    pub fn take(config: &ExporterConfig, path: &Path) -> Self {
        let target = config.drivers.target.as_deref().unwrap_or("127.0.0.1:2222");
        Self {
            token_sha256: hexadecimal(&Sha256::digest(&config.token)),
            config: file_facts(path),
            config_folder: path.parent().map(entries).unwrap_or_default(),
            hostname: read_line("/proc/sys/kernel/hostname"),
            uid: rustix::process::getuid().as_raw(),
            network_namespace: fs::read_link("/proc/self/ns/net")
                .map(|link| link.display().to_string())
                .unwrap_or_default(),
            target: probe(target),
            devices: entries(Path::new("/dev")),
            kvm_usable: OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/kvm")
                .is_ok(),
            shared: mount_facts("/shared"),
            disk: mount_facts("/disk"),
            launcher_socket: std::env::var("JUMPSTARTER_LAUNCHER_SOCKET").ok(),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_line(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

/// Sorted names in a folder, hidden ones included.
fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn file_facts(path: &Path) -> Option<FileFacts> {
    let metadata = fs::metadata(path).ok()?;
    Some(FileFacts {
        path: path.display().to_string(),
        mode: format!("{:04o}", metadata.mode() & 0o7777),
        uid: metadata.uid(),
        gid: metadata.gid(),
    })
}

fn mount_facts(path: &str) -> Option<MountFacts> {
    let metadata = fs::metadata(path).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    Some(MountFacts {
        device: metadata.dev(),
        inode: metadata.ino(),
        // The fifth field of a line is the mount point.
        is_mount_point: mounts
            .lines()
            .any(|line| line.split(' ').nth(4) == Some(path)),
        entries: entries(Path::new(path)),
    })
}

fn probe(address: &str) -> Target {
    let text = listen(address);
    Target {
        address: address.to_owned(),
        answers: text.is_ok(),
        text: String::from_utf8_lossy(&text.unwrap_or_default()).into_owned(),
    }
}

/// Connects and collects what the other side says unasked.
fn listen(address: &str) -> io::Result<Vec<u8>> {
    let resolved = address
        .to_socket_addrs()?
        .next()
        .ok_or(io::ErrorKind::NotFound)?;
    let stream = TcpStream::connect_timeout(&resolved, TARGET_LIMIT)?;
    stream.set_read_timeout(Some(TARGET_LIMIT))?;
    let mut text = Vec::new();
    // A timeout ends the reading as well as an end of the stream does.
    let _ = stream.take(4096).read_to_end(&mut text);
    Ok(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::TcpListener;

    #[test]
    fn a_targets_words_are_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let guest = std::thread::spawn(move || {
            listener
                .accept()
                .unwrap()
                .0
                .write_all(b"guest 1\n")
                .unwrap();
        });
        let target = Target {
            address: address.clone(),
            answers: true,
            text: "guest 1\n".into(),
        };
        assert_eq!(probe(&address), target);
        guest.join().unwrap();
        // The listener is gone with its thread.
        assert!(!probe(&address).answers);
    }

    #[test]
    fn files_are_described() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x1.yaml");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
        fs::write(folder.path().join(".hidden"), "").unwrap();
        let facts = file_facts(&path).unwrap();
        assert_eq!(
            (facts.mode.as_str(), facts.uid),
            ("0400", rustix::process::getuid().as_raw())
        );
        assert_eq!(entries(folder.path()), [".hidden", "x1.yaml"]);
        assert_eq!(file_facts(&folder.path().join("none")), None);
    }
}
