#![allow(clippy::unwrap_used)]

use super::{Dialogue, End};
use crate::host::{Batch, Fence, HostKeys, Op, Owner, PrivateKey, Report, Target};
use crate::instance::{Failure, FailureClass};
use crate::render::Names;
use std::time::Duration;
use tokio::sync::mpsc;

const BEGUN: &str = r#"{"batch":"begun"}"#;
const STOP: &str = r#"{"step":"stop","outcome":"changed","detail":""}"#;
const FILES: &str = r#"{"step":"remove-files","outcome":"changed","detail":""}"#;
const FILES_FAILED: &str =
    r#"{"step":"remove-files","outcome":"failed","class":"NameConflict","detail":"not ours"}"#;
const DONE: &str = r#"{"batch":"done"}"#;
const STOPPED: &str = r#"{"batch":"stopped"}"#;

/// Plays a host that says `lines` and ends with `code`, for a batch of two steps.
fn hear(lines: &[&str], code: Option<u32>, stderr: &str) -> (Result<(), Failure>, Vec<Report>) {
    let target = Target {
        name: "lab-1".to_owned(),
        user: "lab".to_owned(),
        port: 22,
        key: PrivateKey::new(String::new()),
        host_keys: HostKeys::FirstUse,
    };
    let batch = Batch {
        names: Names::of("x1"),
        owner: Owner {
            namespace: "lab".to_owned(),
            uid: "u".to_owned(),
        },
        fence: Fence {
            lease_uid: "l".to_owned(),
            epoch: 1,
        },
        ops: vec![Op::Stop, Op::RemoveFiles],
        time_limit: Duration::from_secs(60),
    };
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let mut dialogue = Dialogue::new(&target, &batch, sender);
    let heard = lines
        .iter()
        .try_for_each(|line| dialogue.hear(line.as_bytes()));
    let result = heard.and_then(|()| {
        dialogue.conclude(&End {
            code,
            stderr: stderr.to_owned(),
        })
    });
    let mut reports = Vec::new();
    while let Ok(report) = receiver.try_recv() {
        reports.push(report);
    }
    (result, reports)
}

#[test]
fn only_the_hosts_own_word_makes_a_batch_succeed() {
    let (result, reports) = hear(&["welcome!", BEGUN, STOP, FILES, DONE], Some(0), "");
    assert_eq!(result, Ok(()));
    assert_eq!(reports.len(), 2);
    // The word counts even if the connection went before the exit code came.
    assert_eq!(hear(&[BEGUN, STOP, FILES, DONE], None, "").0, Ok(()));
}

#[test]
fn a_failed_step_is_a_report_that_names_the_host() {
    let (result, reports) = hear(&[BEGUN, STOP, FILES_FAILED, STOPPED], Some(0), "");
    assert_eq!(result, Ok(()));
    let outcome = format!("{:?}", reports.last().unwrap().outcome);
    assert!(outcome.contains("lab@lab-1:22: not ours"), "{outcome}");
}

#[test]
fn every_other_end_is_an_error_of_its_class() {
    use FailureClass::{Fenced, HostScriptFailed, OutcomeUnknown, PermissionDenied, Timeout};
    let fenced = r#"{"batch":"failed","class":"Fenced","detail":"epoch 1 is over"}"#;
    for (lines, code, stderr, class, part) in [
        (
            &[BEGUN, STOP][..],
            None,
            "",
            OutcomeUnknown,
            "in the step remove-files",
        ),
        (&[], None, "", OutcomeUnknown, "connection ended"),
        (
            &[BEGUN, STOP],
            Some(0),
            "",
            OutcomeUnknown,
            "ended early, with code 0",
        ),
        (&[BEGUN], Some(2), "sh: oops", OutcomeUnknown, "sh: oops"),
        (
            &[BEGUN],
            Some(124),
            "",
            Timeout,
            "longer than 60 s (in the step stop)",
        ),
        (
            &[BEGUN, STOP],
            Some(137),
            "",
            Timeout,
            "in the step remove-files",
        ),
        (
            &[],
            Some(1),
            "sudo: a password is required",
            PermissionDenied,
            "a password is required",
        ),
        (
            &[],
            Some(127),
            "sh: 1: exec: sudo: not found",
            PermissionDenied,
            "not found",
        ),
        (
            &["This account is not available."],
            Some(1),
            "",
            HostScriptFailed,
            "code 1",
        ),
        (&[BEGUN, fenced], Some(0), "", Fenced, "epoch 1 is over"),
        (
            &[BEGUN, "Warning!"],
            Some(0),
            "",
            HostScriptFailed,
            "Warning!",
        ),
        (
            &[BEGUN, FILES],
            Some(0),
            "",
            HostScriptFailed,
            "out of turn",
        ),
        (
            &[BEGUN, STOP, STOP],
            Some(0),
            "",
            HostScriptFailed,
            "out of turn",
        ),
        (
            &[BEGUN, STOP, FILES, FILES],
            Some(0),
            "",
            HostScriptFailed,
            "out of turn",
        ),
        (
            &[BEGUN, STOP, DONE],
            Some(0),
            "",
            HostScriptFailed,
            "before all steps",
        ),
    ] {
        let (result, _) = hear(lines, code, stderr);
        let failure = result.unwrap_err();
        assert_eq!(failure.class, class, "{lines:?} {code:?}: {failure}");
        assert!(failure.message.contains(part), "{part}: {failure}");
    }
}
