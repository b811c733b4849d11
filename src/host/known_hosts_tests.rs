#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::{glob_matches, host_pattern, line, lookup};
use proptest::prelude::*;
use russh::keys::PublicKey;

const A: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDbxAqEMUfHOXB8VL+bU+YXQWcfK8UAkNnopCiOXsBBh";
const B: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPK5rVa4ZwvkueaEl67O7mPuRAZGeqKqyrxi4Dd9WJu/";
/// What ssh-keygen -H makes of the name h1.example with key A.
const HASHED: &str = "|1|XjjUP38YbJxzY7VYJHC5+n+yV/w=|SPAf61YEU9M4DjBqn6N6ZVh6Akw= ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDbxAqEMUfHOXB8VL+bU+YXQWcfK8UAkNnopCiOXsBBh";
/// The same for [h1.example]:2222.
const HASHED_PORT: &str = "|1|HJ23bFCbztSAr5e/yRiG1IIp2VI=|sVYo3tC45sbYaAo1ZyZJfiiVjrw= ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDbxAqEMUfHOXB8VL+bU+YXQWcfK8UAkNnopCiOXsBBh";

fn key(text: &str) -> PublicKey {
    PublicKey::from_openssh(text).unwrap()
}

fn trusts(text: &str, name: &str, port: u16) -> bool {
    lookup(text, name, port).trusted == [key(A)]
}

#[test]
fn a_line_names_hosts_as_openssh_reads_it() {
    for (patterns, name, port, named) in [
        ("h1.example", "h1.example", 22, true),
        ("h1.example", "H1.Example", 22, true),
        ("H1.EXAMPLE", "h1.example", 22, true),
        ("h1.example", "h1.example", 2222, false),
        ("h1.example", "h1.example.org", 22, false),
        ("[h1.example]:2222", "h1.example", 2222, true),
        ("[h1.example]:2222", "h1.example", 22, false),
        ("other,h1.example,third", "h1.example", 22, true),
        ("*.example", "h1.example", 22, true),
        ("*.example", "example", 22, false),
        ("h?.example", "h1.example", 22, true),
        ("h?.example", "h12.example", 22, false),
        ("*.example,!h1.example", "h1.example", 22, false),
        ("!h1.example,*.example", "h1.example", 22, false),
        ("*.example,!h1.example", "h2.example", 22, true),
        ("!h1.example", "h2.example", 22, false),
        ("[*.example]:*", "h1.example", 2200, true),
        ("10.0.0.1", "10.0.0.1", 22, true),
        ("fd00::1", "fd00::1", 22, true),
        ("fd00::1", "[fd00::1]", 22, true),
        ("[fd00::1]:2222", "fd00::1", 2222, true),
    ] {
        assert_eq!(
            trusts(&format!("{patterns} {A}"), name, port),
            named,
            "{patterns} for {name}:{port}"
        );
    }
}

#[test]
fn hashed_names_are_understood() {
    assert!(trusts(HASHED, "h1.example", 22));
    assert!(!trusts(HASHED, "h1.example", 2222));
    assert!(!trusts(HASHED, "h2.example", 22));
    assert!(trusts(HASHED_PORT, "h1.example", 2222));
    assert!(!trusts(HASHED_PORT, "h1.example", 22));
}

#[test]
fn comments_blank_and_broken_lines_are_skipped_and_tabs_separate() {
    let text = format!(
        "# {A}\n\n  # h {A}\nh\nh ssh-ed25519\nh ssh-ed25519 garbage\n|1|x|y {A}\n|1| {A}\n\th\t{A}\tcomment here\r\n"
    );
    assert!(trusts(&text, "h", 22));
}

#[test]
fn markers_are_told_apart() {
    let text = format!("@revoked h {B}\n@cert-authority h {A}\n@unknown h {A}\nh {A}\n");
    let known = lookup(&text, "h", 22);
    assert_eq!(known.trusted, [key(A)]);
    assert_eq!(known.revoked, [key(B)]);
    assert!(known.certified);
    assert!(!lookup(&format!("h {A}"), "h", 22).certified);
}

#[test]
fn all_lines_of_a_host_count() {
    let known = lookup(&format!("h {A}\nother {A}\nh,x {B}\n"), "h", 22);
    assert_eq!(known.trusted, [key(A), key(B)]);
}

#[test]
fn the_line_that_pins_a_key_is_found_again() {
    for (name, port, expected) in [
        ("h1.example", 22, "h1.example"),
        ("H1.example", 2222, "[h1.example]:2222"),
        ("[fd00::1]", 22, "fd00::1"),
        ("fd00::1", 2222, "[fd00::1]:2222"),
    ] {
        assert_eq!(host_pattern(name, port), expected);
        let with_comment = key(&format!("{A} someone@somewhere"));
        let pinned = line(name, port, &with_comment);
        assert_eq!(pinned, format!("{expected} {A}"));
        assert!(trusts(&pinned, name, port));
    }
}

/// The obvious way, exponential in the worst case.
fn naive(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some(b'*'), _) => {
            naive(&pattern[1..], text) || (!text.is_empty() && naive(pattern, &text[1..]))
        }
        (Some(p), Some(t)) if *p == b'?' || p == t => naive(&pattern[1..], &text[1..]),
        _ => false,
    }
}

proptest! {
    #[test]
    fn wildcards_match_what_the_obvious_matcher_matches(
        pattern in "[ab*?]{0,8}",
        text in "[ab]{0,8}",
    ) {
        prop_assert_eq!(
            glob_matches(&pattern, &text),
            naive(pattern.as_bytes(), text.as_bytes())
        );
    }
}
