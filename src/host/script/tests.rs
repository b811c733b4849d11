#![allow(clippy::unwrap_used, clippy::panic)]

use super::{PREFLIGHT, PRELUDE, TEARDOWN, UNITS, VOLUME, WRITE, bootstrap, compose};
use crate::api::{ImageSpec, PullPolicy};
use crate::host::quote::quote;
use crate::host::{Batch, Fence, Op, Owner};
use crate::instance::FailureClass;
use crate::render::{HostFile, Names};
use proptest::prelude::*;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const FRAGMENTS: [&str; 6] = [PRELUDE, PREFLIGHT, WRITE, VOLUME, UNITS, TEARDOWN];
/// The shells that hosts have as `sh`.
const SHELLS: [&str; 2] = ["sh", "bash"];

fn batch(ops: Vec<Op>) -> Batch {
    Batch {
        names: Names::of("x1"),
        owner: Owner {
            namespace: "lab".to_owned(),
            uid: "0f1e".to_owned(),
        },
        fence: Fence {
            lease_uid: "9a8b".to_owned(),
            epoch: 7,
        },
        ops,
        time_limit: Duration::from_secs(60),
    }
}

fn file(path: &str, mode: u32, content: &str) -> HostFile {
    HostFile {
        path: path.to_owned(),
        mode,
        content: content.to_owned(),
    }
}

fn image(reference: &str, policy: Option<PullPolicy>) -> ImageSpec {
    ImageSpec {
        image: Some(reference.to_owned()),
        image_pull_policy: policy,
    }
}

fn all_ops() -> Vec<Op> {
    vec![
        Op::Preflight {
            devices: vec!["/dev/kvm".to_owned()],
            images: vec![
                image("localhost/exporter:1", None),
                image("localhost/runtime:1", Some(PullPolicy::Always)),
            ],
        },
        Op::WriteConfig(file("/etc/jumpstarter/exporters/x1.yaml", 0o400, "it's\n")),
        Op::WriteQuadlets(vec![
            file(
                "/etc/containers/systemd/x1-net.container",
                0o644,
                "[Unit]\n",
            ),
            file(
                "/etc/containers/systemd/x1-runtime.container",
                0o644,
                "$HOME\n",
            ),
        ]),
        Op::CreateVolume {
            exporter_image: "localhost/exporter:1".to_owned(),
            runtime_image: "localhost/runtime:1".to_owned(),
            wipe: true,
        },
        Op::Start { restart: true },
        Op::Stop,
        Op::RemoveFiles,
        Op::RemoveVolume,
        Op::Reload,
    ]
}

/// What a script has beside the fragments, which stand in files of their own.
fn frame(ops: Vec<Op>) -> String {
    let script = compose(&batch(ops)).unwrap();
    FRAGMENTS.iter().fold(script.to_string(), |text, fragment| {
        assert!(text.contains(fragment));
        text.replacen(fragment, "…\n", 1)
    })
}

fn run(shell: &str, script: &str) -> Output {
    let mut child = Command::new(shell)
        .args(["-c", r#"eval "$(cat)""#])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(script.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// The prelude, working below `root`, with `commands` after it.
fn with_prelude(root: &Path, epoch: u64, commands: &str) -> String {
    let root = quote("root", root.to_str().unwrap()).unwrap();
    format!(
        "root={root}\nexporter=x1\nuid=u\nnamespace=lab\nlease_uid=l\nepoch={epoch}\nstripe=00\n{PRELUDE}{commands}\n"
    )
}

#[test]
fn a_script_is_values_fragments_and_one_call_per_step() {
    insta::assert_snapshot!(frame(all_ops()));
}

#[test]
fn without_steps_that_change_things_no_lock_is_taken() {
    let preflight = vec![Op::Preflight {
        devices: Vec::new(),
        images: Vec::new(),
    }];
    assert!(!frame(preflight).contains("\nlock\n"));
    assert!(frame(vec![Op::Stop]).contains("\nlock\nbegin stop\n"));
}

#[test]
fn the_command_line_limits_time_and_shows_nothing_of_the_batch() {
    insta::assert_snapshot!(
        bootstrap(Duration::from_millis(1500)),
        @r#"sh -c 'if [ "$(id -u)" = 0 ]; then exec timeout -k 5 1 sh -c "eval \"\$(cat)\""; else exec sudo -n timeout -k 5 1 sh -c "eval \"\$(cat)\""; fi'"#
    );
}

#[test]
fn every_shell_can_read_the_whole_script() {
    let script = compose(&batch(all_ops())).unwrap();
    for shell in SHELLS {
        let output = Command::new(shell)
            .args(["-n", "-c", script.as_str()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{shell}: {output:?}");
    }
}

#[test]
fn every_class_that_a_fragment_names_exists() {
    let known: Vec<_> = FailureClass::ALL
        .iter()
        .map(|class| class.reason())
        .collect();
    let mut seen = 0;
    for fragment in FRAGMENTS {
        for word in ["fail ", "try "] {
            for after in fragment.split(word).skip(1) {
                let class = after.split_whitespace().next().unwrap_or_default();
                if class.starts_with(|c: char| c.is_ascii_uppercase()) && class != "CLASS" {
                    assert!(known.contains(&class), "{word}{class}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 30, "only {seen} were found");
}

#[test]
fn values_that_could_do_harm_are_refused_by_name() {
    let mut bad_name = batch(Vec::new());
    bad_name.names = Names::of("x1;reboot");
    let mut path_name = batch(Vec::new());
    path_name.names = Names::of("../x1");
    let mut bad_uid = batch(Vec::new());
    bad_uid.owner.uid = "a b".to_owned();
    let preflight = |spec| {
        batch(vec![Op::Preflight {
            devices: Vec::new(),
            images: vec![spec],
        }])
    };
    for (batch, part) in [
        (bad_name, "\"x1;reboot\""),
        (path_name, "the Exporter's name"),
        (bad_uid, "the Exporter's UID"),
        (preflight(image("-v", None)), "an image"),
        (preflight(image("a b", None)), "\"a b\""),
        (preflight(ImageSpec::default()), "an image"),
        (
            batch(vec![Op::WriteConfig(file("etc/x", 0o400, ""))]),
            "\"etc/x\"",
        ),
        (
            batch(vec![Op::WriteConfig(file("/etc/../x", 0o400, ""))]),
            "the path of a file",
        ),
        (
            batch(vec![Op::WriteConfig(file("/etc/x y", 0o400, ""))]),
            "\"/etc/x y\"",
        ),
        (
            batch(vec![Op::WriteConfig(file("/etc/x", 0o400, "a\0b"))]),
            "/etc/x contains a NUL",
        ),
    ] {
        let failure = compose(&batch).unwrap_err();
        assert_eq!(failure.class, FailureClass::InvalidParameters);
        assert!(failure.message.contains(part), "{part}: {failure}");
    }
}

fn json_strings(shell: &str, texts: &[String]) -> Vec<String> {
    let root = tempfile::tempdir().unwrap();
    let calls: Vec<_> = texts
        .iter()
        .map(|text| format!("json_string {}; echo", quote("text", text).unwrap()))
        .collect();
    let output = run(shell, &with_prelude(root.path(), 1, &calls.join("\n")));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_text_becomes_a_json_string(
        texts in proptest::collection::vec(r#"([a-zA-Z \n\t"'\\\[\]{}$`;/!-]|[\x01-\x1f\x7f]|\PC){0,40}"#, 20),
    ) {
        // Control characters but tab and newline are no use to anybody, and become blanks.
        let expected: Vec<_> = texts
            .iter()
            .map(|text| text.replace(|c: char| c.is_ascii_control() && c != '\n' && c != '\t', " "))
            .collect();
        for shell in SHELLS {
            prop_assert_eq!(&json_strings(shell, &texts), &expected);
        }
    }
}

#[test]
fn a_lower_epoch_is_refused_from_the_first_higher_one_on() {
    let root = tempfile::tempdir().unwrap();
    let commands = "mkdir -p \"$run\" \"$state/epoch\"; raise_fence; echo acted";
    for shell in SHELLS {
        let lease = root.path().join(shell);
        std::fs::create_dir(&lease).unwrap();
        for (epoch, acts) in [
            (1, true),
            (1, true),
            (3, true),
            (2, false),
            (3, true),
            (10, true),
            (9, false),
        ] {
            let output = run(shell, &with_prelude(&lease, epoch, commands));
            let said = String::from_utf8(output.stdout).unwrap();
            if acts {
                assert_eq!(said, "acted\n", "{shell}, epoch {epoch}");
            } else {
                assert!(
                    said.starts_with(r#"{"batch":"failed","class":"Fenced""#),
                    "{said}"
                );
                assert!(!said.contains("acted"), "{said}");
            }
        }
    }
}

#[test]
fn a_full_disk_is_told_apart_whatever_trips_over_it() {
    let root = tempfile::tempdir().unwrap();
    for (text, class) in [
        ("cat: write error: No space left on device", "DiskFull"),
        ("cat: write error: Input/output error", "HostScriptFailed"),
    ] {
        let commands = format!(
            "step=start\nfail HostScriptFailed {}",
            quote("text", text).unwrap()
        );
        let output = run("sh", &with_prelude(root.path(), 1, &commands));
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            format!(
                "{{\"step\":\"start\",\"outcome\":\"failed\",\"class\":\"{class}\",\"detail\":\"{text}\"}}\n{{\"batch\":\"stopped\"}}\n"
            )
        );
    }
}

#[test]
fn a_host_without_podman_is_told_so() {
    let root = tempfile::tempdir().unwrap();
    let bin = root.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for tool in ["systemctl", "flock", "sha256sum"] {
        std::os::unix::fs::symlink("/bin/true", bin.join(tool)).unwrap();
    }
    let bin = quote("a path", bin.to_str().unwrap()).unwrap();
    for shell in SHELLS {
        let commands = format!(
            "id() {{ echo 0; }}; tail() {{ command -p tail \"$@\"; }}; PATH={bin}; open_batch"
        );
        let output = run(shell, &with_prelude(root.path(), 1, &commands));
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            "{\"batch\":\"begun\"}\n{\"batch\":\"failed\",\"class\":\"PodmanUnsuitable\",\"detail\":\"podman is not installed\"}\n"
        );
    }
}
