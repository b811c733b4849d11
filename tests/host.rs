//! Batches on a real lab host of the testbed.
#![allow(missing_docs, unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "host/lab.rs"]
mod lab;

use exporter_set_controller::host::{HostKeys, Op, PrivateKey, SshHosts};
use exporter_set_controller::instance::{FailureClass, Step};
use lab::{Instance, changes, connect, env, key_file, on_host, stdout, target};

#[tokio::test]
async fn an_instance_comes_up_and_goes_and_nothing_is_done_twice() {
    let (hosts, instance) = (SshHosts::new(), Instance::new());
    let first = instance.run(&hosts, instance.up()).await;
    assert_eq!(
        changes(&first),
        [
            (Step::Connect, false),
            (Step::WriteConfig, true),
            (Step::WriteQuadlets, true),
            (Step::CreateVolume, true),
            (Step::Start, true),
        ],
        "{first:#?}"
    );
    let config = instance.names.config_path();
    assert_eq!(
        stdout(&format!("stat -c '%a %U:%G' {config}")),
        "400 root:root"
    );
    assert_eq!(
        stdout(&format!("cat {config}")),
        instance.config().content.trim()
    );
    let exporter = instance.names.exporter_unit();
    assert_eq!(
        stdout(&format!(
            "systemctl is-active {exporter} {} {}",
            instance.names.runtime(),
            instance.names.net()
        )),
        "active\nactive\nactive"
    );

    let again = instance.run(&hosts, instance.up()).await;
    assert!(
        changes(&again).iter().all(|(_, changed)| !changed),
        "{again:#?}"
    );

    let gone = instance.run(&hosts, Instance::down()).await;
    assert_eq!(
        changes(&gone),
        [
            (Step::Stop, true),
            (Step::RemoveFiles, true),
            (Step::RemoveVolume, true),
            (Step::Reload, true),
        ],
        "{gone:#?}"
    );
    let name = instance.name();
    assert_eq!(
        stdout(&format!(
            "find /etc /run /var/lib/exporter-set-controller -xdev -name '*{name}*'; podman ps -aq --filter name={name}; podman volume ls -q --filter name={name}; systemctl list-units --all --plain --no-legend '{name}*'"
        )),
        ""
    );
    let again = instance.run(&hosts, Instance::down()).await;
    assert!(
        changes(&again).iter().all(|(_, changed)| !changed),
        "{again:#?}"
    );
}
