#![allow(clippy::unwrap_used)]

use super::{Line, Lines};
use crate::host::{Outcome, Report};
use crate::instance::{Failure, FailureClass, Step};

fn step(step: Step, outcome: Outcome, detail: &str) -> Line {
    Line::Step(Report {
        step,
        outcome,
        detail: detail.to_owned(),
    })
}

#[test]
fn every_kind_of_line_is_understood() {
    let failed = Failure::new(FailureClass::UnitFailed, "a\nb");
    for (text, expected) in [
        (r#"{"batch":"begun"}"#, Line::Begun),
        (r#"{"batch":"done"}"#, Line::Done),
        (r#"{"batch":"stopped"}"#, Line::Stopped),
        (
            r#"{"batch":"failed","class":"Fenced","detail":"epoch 1 is over"}"#,
            Line::Failed(Failure::new(FailureClass::Fenced, "epoch 1 is over")),
        ),
        (
            r#"{"step":"write-config","outcome":"changed","detail":"written"}"#,
            step(Step::WriteConfig, Outcome::Changed, "written"),
        ),
        (
            r#"{"step":"connect","outcome":"unchanged","detail":""}"#,
            step(Step::Connect, Outcome::Unchanged, ""),
        ),
        (
            r#"{"step":"start","outcome":"failed","class":"UnitFailed","detail":"a\nb"}"#,
            step(Step::Start, Outcome::Failed(failed), "a\nb"),
        ),
    ] {
        assert_eq!(Line::parse(text.as_bytes()), Ok(expected));
    }
}

#[test]
fn anything_else_is_an_error_that_shows_its_beginning() {
    let long = "x".repeat(10_000);
    for text in [
        "Last login: today",
        "",
        "{}",
        "[]",
        r#"{"batch":"unheard of"}"#,
        r#"{"batch":"failed"}"#,
        r#"{"batch":"failed","class":"Unheard"}"#,
        r#"{"step":"unheard-of","outcome":"changed"}"#,
        r#"{"step":"start","outcome":"changed","class":"UnitFailed"}"#,
        r#"{"step":"start","outcome":"failed"}"#,
        r#"{"step":"start","outcome":"changed","more":1}"#,
        r#"{"step":"start","batch":"done"}"#,
        &long,
    ] {
        let failure = Line::parse(text.as_bytes()).unwrap_err();
        assert_eq!(failure.class, FailureClass::HostScriptFailed, "{text}");
        let shown: String = text.chars().take(20).collect();
        let shown = format!("{shown:?}");
        assert!(
            failure.message.contains(shown.trim_matches('"')),
            "{failure}"
        );
        assert!(failure.message.len() < 1000);
    }
}

#[test]
fn bytes_that_are_no_text_and_credentials_are_replaced() {
    let line = b"{\"step\":\"start\",\"outcome\":\"unchanged\",\"detail\":\"\xff eyJhbGciOiJFUzI1NiJ9.e30.c2ln\"}";
    assert_eq!(
        Line::parse(line),
        Ok(step(Step::Start, Outcome::Unchanged, "\u{fffd} [redacted]"))
    );
}

#[test]
fn lines_come_out_whole_however_the_stream_is_cut() {
    let stream = b"one\ntwo\n\nthree";
    for size in 1..=stream.len() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for chunk in stream.chunks(size) {
            seen.extend(lines.push(chunk).unwrap());
        }
        assert_eq!(
            seen,
            [b"one".to_vec(), b"two".to_vec(), Vec::new()],
            "{size}"
        );
        assert_eq!(lines.rest(), b"three");
    }
}

#[test]
fn a_line_without_an_end_is_cut_off() {
    let mut lines = Lines::default();
    let failed = (0..100).find_map(|_| lines.push(&[b'x'; 4096]).err());
    assert_eq!(failed.unwrap().class, FailureClass::HostScriptFailed);
}
