//! Reading Rust sources, well enough to see which paths they mention: no comments, no text of strings,
//! no test code.

/// A path that a source mentions, as `crate::api::Lease` or `tokio::time::sleep`, and its line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mention {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// The code of `source` that is part of the program, with everything else blanked, so that every
/// byte keeps its place.
pub(crate) fn code(source: &str) -> String {
    let code = blank_text(source);
    blank_tests(source, code)
}

/// Blanks comments and what stands in string and character literals.
fn blank_text(source: &str) -> Vec<u8> {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match &bytes[at..] {
            [b'/', b'/', ..] => line_end(bytes, at),
            [b'/', b'*', ..] => comment_end(bytes, at),
            [b'"', ..] => string_end(bytes, at),
            [b'r', b'"' | b'#', ..] if !in_word(bytes, at) => match raw_string_end(source, at) {
                Some(end) => end,
                None => at + 1,
            },
            [b'\'', ..] => char_end(source, at).unwrap_or(at + 1),
            _ => at + 1,
        };
        if end > at + 1 {
            for byte in &mut out[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
        at = end;
    }
    out
}

fn in_word(bytes: &[u8], at: usize) -> bool {
    // A `b` in front makes it a byte string, which is as much a string.
    let before = at.checked_sub(1).map(|before| bytes[before]);
    before.is_some_and(|b| is_word(b) && b != b'b')
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
}

fn comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn raw_string_end(source: &str, start: usize) -> Option<usize> {
    let rest = &source[start + 1..];
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let text = rest[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let length = text.find(&close)? + close.len();
    Some(start + 1 + hashes + 1 + length)
}

/// The end of a character literal; `None` for a lifetime.
fn char_end(source: &str, start: usize) -> Option<usize> {
    let rest = &source[start + 1..];
    let mut chars = rest.char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        let close = rest.char_indices().skip(2).find(|(_, c)| *c == '\'')?;
        return Some(start + 1 + close.0 + 1);
    }
    let (at, second) = chars.next()?;
    (second == '\'').then_some(start + 1 + at + 1)
}

/// Blanks each item under an attribute that keeps it out of a release.
fn blank_tests(source: &str, mut code: Vec<u8>) -> String {
    const GATES: [&str; 2] = ["#[cfg(test)]", "#[cfg(feature = \"failpoints\")]"];
    for gate in GATES {
        let starts: Vec<usize> = source.match_indices(gate).map(|(at, _)| at).collect();
        for start in starts {
            if code[start] != b'#' {
                continue;
            }
            let end = item_end(&code, start + gate.len());
            for byte in &mut code[start..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
    }
    String::from_utf8(code).unwrap()
}

/// Where the item that begins at `at` ends: at its first `;` outside brackets, or its last brace.
fn item_end(code: &[u8], mut at: usize) -> usize {
    let mut depth = 0_i32;
    while at < code.len() {
        match code[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' => depth -= 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
        at += 1;
    }
    code.len()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    /// `::`
    Sep,
    Other(u8),
}

fn tokens(code: &str) -> Vec<(Token<'_>, usize)> {
    let bytes = code.as_bytes();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        let byte = bytes[at];
        if is_word(byte) {
            let length = bytes[at..].iter().take_while(|b| is_word(**b)).count();
            found.push((Token::Word(&code[at..at + length]), line));
            at += length;
            continue;
        }
        if bytes[at..].starts_with(b"::") {
            found.push((Token::Sep, line));
            at += 2;
            continue;
        }
        if byte == b'\n' {
            line += 1;
        } else if !byte.is_ascii_whitespace() {
            found.push((Token::Other(byte), line));
        }
        at += 1;
    }
    found
}

/// Every word of `code` with its line.
pub(crate) fn words(code: &str) -> Vec<(&str, usize)> {
    let words = tokens(code)
        .into_iter()
        .filter_map(|(token, line)| match token {
            Token::Word(word) => Some((word, line)),
            _ => None,
        });
    words.collect()
}

/// Every path that `code` mentions; groups of `use` are taken apart.
pub(crate) fn mentions(code: &str) -> Vec<Mention> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let after_use = tokens.get(at + 1).map(|(token, _)| token);
        match &tokens[at].0 {
            Token::Word("use") if after_use != Some(&Token::Other(b'<')) => {
                at = tree(&tokens, at + 1, &[], &mut found);
            }
            Token::Word(_) => at = path(&tokens, at, &mut found),
            _ => at += 1,
        }
    }
    found
}

/// Reads `a::b::c` and returns where it ends.
fn path(tokens: &[(Token<'_>, usize)], start: usize, found: &mut Vec<Mention>) -> usize {
    let (mut segments, mut at) = (Vec::new(), start);
    while let Some((Token::Word(word), _)) = tokens.get(at) {
        segments.push((*word).to_owned());
        at += 1;
        if !matches!(tokens.get(at), Some((Token::Sep, _))) {
            break;
        }
        at += 1;
    }
    if segments.len() > 1 {
        let line = tokens[start].1;
        found.push(Mention {
            path: segments,
            line,
        });
    }
    at.max(start + 1)
}

/// Reads one tree of a `use` and returns where it ends.
fn tree(
    tokens: &[(Token<'_>, usize)],
    mut at: usize,
    prefix: &[String],
    found: &mut Vec<Mention>,
) -> usize {
    let mut here = prefix.to_vec();
    let line = tokens.get(at).map_or(0, |(_, line)| *line);
    while let Some((token, _)) = tokens.get(at) {
        match token {
            Token::Word("as") => at += 2,
            Token::Word(word) => {
                here.push((*word).to_owned());
                at += 1;
            }
            Token::Other(b'{') => {
                at += 1;
                while !matches!(tokens.get(at), None | Some((Token::Other(b'}'), _))) {
                    at = tree(tokens, at, &here, found);
                    if matches!(tokens.get(at), Some((Token::Other(b','), _))) {
                        at += 1;
                    }
                }
                return at + 1;
            }
            Token::Other(b',' | b'}' | b';') => break,
            Token::Sep | Token::Other(_) => at += 1,
        }
    }
    found.push(Mention { path: here, line });
    at
}
