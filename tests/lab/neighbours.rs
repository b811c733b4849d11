//! Two instances on one host have nothing to do with each other, and both outlive its power loss.

use super::harness::{Lab, eventually, hosts_are_mine, hosts_are_shared};
use super::manifests::Pool;
use kube::ResourceExt;

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_on_one_host() {
    let _mine = hosts_are_mine().await;
    let (lab, _) = Pool::in_lab("two", 1, |pool| {
        pool.min_available = 2;
    })
    .await;
    let _controller = lab.controller();
    let names: Vec<String> = lab
        .running(2)
        .await
        .iter()
        .map(ResourceExt::name_any)
        .collect();

    each_reaches_its_own_guest_only(&lab, &names).await;
    for name in &names {
        both_see_the_same_machine(&lab, name);
    }

    lab.testbed.run(&["host-kill", "1"]);
    lab.testbed.run(&["host-start", "1"]);
    for name in &names {
        eventually("the units after the power loss", || async {
            let script = format!("systemctl is-active {name}-runtime {name}-exporter");
            let states = String::from_utf8(lab.testbed.try_ssh(1, &script).stdout).unwrap();
            if states == "active\nactive\n" {
                Ok(())
            } else {
                Err(states)
            }
        })
        .await;
    }
    let after: Vec<String> = lab
        .running(2)
        .await
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(after, names);
    lab.remove_all(1).await;
}

async fn each_reaches_its_own_guest_only(lab: &Lab, names: &[String]) {
    let ask = |name: &str| {
        let script = format!("podman exec {name}-exporter wget -qO- http://127.0.0.1:2222/");
        String::from_utf8(lab.testbed.try_ssh(1, &script).stdout).unwrap()
    };
    let listen = |name: &str| {
        let serve = format!(
            "mkdir -p /tmp/guest && echo guest of {name} >/tmp/guest/index.html && \
             exec httpd -f -p 127.0.0.1:2222 -h /tmp/guest"
        );
        lab.testbed
            .ssh(1, &format!("podman exec -d {name}-runtime sh -c '{serve}'"));
    };
    let answers = |name: String| async move {
        eventually("the guest's answer", || async {
            let answer = ask(&name);
            if answer.trim() == format!("guest of {name}") {
                Ok(())
            } else {
                Err(answer)
            }
        })
        .await;
    };
    listen(&names[0]);
    answers(names[0].clone()).await;
    assert_eq!(ask(&names[1]), "", "the neighbour's guest does not answer");
    listen(&names[1]);
    answers(names[1].clone()).await;
    answers(names[0].clone()).await;
}

fn both_see_the_same_machine(lab: &Lab, name: &str) {
    let look = |container: &str, script: &str| {
        lab.testbed
            .ssh(1, &format!("podman exec {name}-{container} {script}"))
    };
    let inode = look("runtime", "stat -c %d:%i /shared /disk");
    let mut inodes = inode.lines();
    assert_eq!(inodes.next(), inodes.next(), "/shared and /disk are one");
    assert_eq!(look("exporter", "stat -c %d:%i /shared /disk"), inode);
    for container in ["runtime", "exporter"] {
        assert_eq!(
            look(container, "stat -c %F /dev/kvm").trim(),
            "character special file"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sets_on_two_hosts_over_one_class() {
    let _shared = hosts_are_shared().await;
    let lab = Lab::new("hosts").await;
    lab.secret("lab-ssh-key", "TESTBED_SSH_KEY");
    let first = Pool::on(&lab, 1);
    let parameters = format!("{{host: {{name: \"{}\"}}}}", lab.testbed.host(2));
    let second = Pool {
        set: lab.unique("other"),
        parameters,
        ..Pool::on(&lab, 1)
    };
    lab.apply(&first.both(&lab));
    lab.apply(&second.set());
    let _controller = lab.controller();
    let exporters = lab.running(2).await;
    for exporter in exporters {
        let name = exporter.name_any();
        let (here, there) = if name.starts_with(&second.set) {
            (2, 1)
        } else {
            (1, 2)
        };
        let noted = &exporter.annotations()["qemu-ssh.jumpstarter.dev/host"];
        assert_eq!(noted, lab.testbed.host(here));
        lab.testbed
            .ssh(here, &format!("systemctl is-active {name}-exporter"));
        let elsewhere = lab
            .testbed
            .try_ssh(there, &format!("podman container exists {name}-exporter"));
        assert!(!elsewhere.status.success());
    }
    lab.remove_all(1).await;
    lab.clean(2).await;
}
