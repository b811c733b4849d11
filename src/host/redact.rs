//! Keeps what looks like a credential out of what a host tells us (log lines, error output).

const HIDDEN: &str = "[redacted]";
/// JSON Web Tokens start with the base64url of `{"`.
const JWT_START: &str = "eyJ";
const SHORTEST_JWT: usize = 20;
const SHORTEST_KEY: usize = 40;

/// Replaces every JSON Web Token, and every long run of base64 that is not a plain hex digest.
pub(super) fn redact(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut word = String::new();
    for c in text.chars() {
        if is_word(c) {
            word.push(c);
        } else {
            push_word(&mut clean, &word);
            word.clear();
            clean.push(c);
        }
    }
    push_word(&mut clean, &word);
    clean
}

/// Dots join the parts of a token; slashes and equals signs are left out, so that paths and
/// assignments stay readable.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+' | '.')
}

fn push_word(clean: &mut String, word: &str) {
    // What stands before the token may stay.
    if let Some((before, token)) = word.split_once(JWT_START)
        && token.len() + JWT_START.len() >= SHORTEST_JWT
    {
        clean.push_str(before);
        clean.push_str(HIDDEN);
        return;
    }
    for (index, part) in word.split('.').enumerate() {
        if index > 0 {
            clean.push('.');
        }
        clean.push_str(if is_key(part) { HIDDEN } else { part });
    }
}

/// Random base64 of that length has digits and both cases; names and hex digests have not.
fn is_key(part: &str) -> bool {
    part.len() >= SHORTEST_KEY
        && part.chars().any(|c| c.is_ascii_digit())
        && part.chars().any(|c| c.is_ascii_uppercase())
        && part.chars().any(|c| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[test]
    fn tokens_and_keys_are_hidden_and_the_rest_stays() {
        let jwt = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJlLXdpdGgtZW5vdWdo";
        let key = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtz";
        let digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for (text, expected) in [
            (
                format!("token: {jwt}, refused"),
                "token: [redacted], refused".to_owned(),
            ),
            (format!("token={jwt}"), "token=[redacted]".to_owned()),
            (format!("key\n{key}\n"), "key\n[redacted]\n".to_owned()),
            (digest.to_owned(), digest.to_owned()),
            (
                "/var/lib/containers/storage/volumes/jumpstarter-a-very-long-exporter-name-0123456789-shared".to_owned(),
                "/var/lib/containers/storage/volumes/jumpstarter-a-very-long-exporter-name-0123456789-shared".to_owned(),
            ),
            (
                "PODMAN_SYSTEMD_UNIT=pool-with-a-long-name-x7k2p-exporter.service".to_owned(),
                "PODMAN_SYSTEMD_UNIT=pool-with-a-long-name-x7k2p-exporter.service".to_owned(),
            ),
            ("naïve: “ok”".to_owned(), "naïve: “ok”".to_owned()),
            (String::new(), String::new()),
        ] {
            assert_eq!(redact(&text), expected);
        }
    }
}
