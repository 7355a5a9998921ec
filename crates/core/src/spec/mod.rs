//! The shard spec language: one line that names many shards.
//!
//! `s3://data/train-{000..146}.tar::$EXTRA/*.tar` is split at `::`, its variables are filled in, its braces are
//! expanded as bash does, and what is left is a list of names and globs in order. This module is pure: variables
//! come through a closure, and globs are told apart but listed elsewhere (`engine::source`). The language is described in
//! `docs/reference/shard-spec.md`.
//!
//! A spec is outside text: its length, nesting and the names and bytes it may expand to are bounded before anything
//! is expanded.

mod brace;
mod glob;

pub use glob::glob_match;

use crate::{Error, Result};

/// Names that one spec may expand to.
pub const MAX_NAMES: u64 = 10_000_000;
/// Bytes of all names that one spec may expand to.
pub const MAX_EXPANDED_BYTES: u64 = 1 << 30;
/// Bytes of a spec after its variables are filled in.
pub const MAX_SPEC_BYTES: usize = 1 << 20;
/// Braces inside braces.
pub const MAX_NESTING: usize = 16;

/// One name or glob of an expanded spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The name as it is, or the glob with a backslash before characters that stand for themselves. Scheme and
    /// authority of a URL are never part of the glob.
    pub text: String,
    /// Whether the store must be listed and keys be matched with [`glob_match`].
    pub is_glob: bool,
}

/// Expands a spec. `env` answers for environment variables.
pub fn expand(spec: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Pattern>> {
    expand_all(spec, env)
        .map_err(|error| error.while_doing(format!("expand shard spec `{}`", shortened(spec))))
}

/// One character of a spec, after escapes and variables were resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token {
    text: char,
    /// Whether a backslash stood before it, so that it stands for itself.
    escaped: bool,
}

impl Token {
    fn is(self, text: char) -> bool {
        self.text == text && !self.escaped
    }
}

fn expand_all(spec: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Pattern>> {
    let tokens = tokenize(spec, env)?;
    let braces = brace::Braces::find(&tokens);
    let mut parts = Vec::new();
    let (mut names, mut bytes) = (0u64, 0u64);
    for part in split(&tokens, &braces) {
        if part.is_empty() {
            return Err(Error::invalid_config("there is no name before, between or after `::`"));
        }
        let sequence = braces.parse(&tokens, part)?;
        names = names.saturating_add(sequence.count());
        bytes = bytes.saturating_add(sequence.bytes());
        parts.push(sequence);
    }
    if names > MAX_NAMES {
        return Err(Error::exhausted(format!("it stands for more than {MAX_NAMES} names"))
            .with_hint("check the ends of its ranges"));
    }
    if bytes > MAX_EXPANDED_BYTES {
        return Err(Error::exhausted(format!("its names take more than {MAX_EXPANDED_BYTES} bytes")));
    }
    let mut patterns = Vec::with_capacity(names as usize);
    for sequence in parts {
        patterns.extend((0..sequence.count()).map(|index| pattern(&sequence.name(index))));
    }
    Ok(patterns)
}

/// Resolves escapes and variables. A variable's value is read like the rest of the spec, but without variables.
fn tokenize(spec: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = spec;
    while let Some(dollar) = unescaped_dollar(rest) {
        push_tokens(&mut tokens, &rest[..dollar])?;
        rest = &rest[dollar + 1..];
        let name = if let Some(braced) = rest.strip_prefix('{') {
            let end = braced.find('}').ok_or_else(|| Error::invalid_config("`${` has no closing `}`"))?;
            rest = &braced[end + 1..];
            &braced[..end]
        } else {
            let word = |(at, c): &(usize, char)| {
                c.is_ascii_alphabetic() || *c == '_' || (*at > 0 && c.is_ascii_digit())
            };
            let end = rest.char_indices().take_while(word).count();
            let (name, after) = rest.split_at(end);
            rest = after;
            if name.is_empty() {
                tokens.push(Token { text: '$', escaped: true });
                continue;
            }
            name
        };
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(Error::invalid_config(format!(
                "`${{{name}}}` does not name an environment variable"
            ))
            .with_hint("write `\\$` for a dollar sign"));
        }
        let value = env(name).ok_or_else(|| {
            Error::invalid_config(format!("environment variable `{name}` is not set"))
                .with_hint("set it, or write `\\$` for a dollar sign")
        })?;
        push_tokens(&mut tokens, &value)?;
    }
    push_tokens(&mut tokens, rest)?;
    Ok(tokens)
}

fn unescaped_dollar(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let found = byte == b'$' && !escaped;
        escaped = byte == b'\\' && !escaped;
        found
    })
}

fn push_tokens(tokens: &mut Vec<Token>, text: &str) -> Result<()> {
    if tokens.len() + text.len() > MAX_SPEC_BYTES {
        return Err(Error::exhausted(format!("it is longer than {MAX_SPEC_BYTES} bytes"))
            .with_hint("name a folder or use a glob"));
    }
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let special = |c: &char| matches!(c, '{' | '}' | ',' | '$' | '\\' | '*' | '?' | '[' | ']' | ':');
        let token = match (c, chars.next_if(|next| c == '\\' && special(next))) {
            (_, Some(next)) => Token { text: next, escaped: true },
            // A backslash before an ordinary character is a character like any other.
            (c, None) => Token { text: c, escaped: c == '\\' },
        };
        tokens.push(token);
    }
    Ok(())
}

/// The ranges of tokens between `::`. Braces and brackets, as of an IPv6 address, protect what is inside.
fn split(tokens: &[Token], braces: &brace::Braces) -> Vec<std::ops::Range<usize>> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    // Up to here no bracket closes before the next slash, so a second search would be in vain.
    let mut open_until = 0;
    while at < tokens.len() {
        let mut next = at + 1;
        if tokens[at].is(':') && tokens.get(next).is_some_and(|token| token.is(':')) {
            parts.push(start..at);
            next += 1;
            start = next;
        } else if let Some(close) = braces.close_of(at) {
            next = close + 1;
        } else if tokens[at].is('[') && at >= open_until {
            let end = tokens[at..].iter().position(|token| token.is(']') || token.is('/'));
            open_until = end.map_or(tokens.len(), |end| at + end);
            if tokens.get(open_until).is_some_and(|token| token.is(']')) {
                next = open_until + 1;
            }
        }
        at = next;
    }
    parts.push(start..tokens.len());
    parts
}

/// Tells names and globs apart; `text` has a backslash before glob characters that stand for themselves.
fn pattern(text: &str) -> Pattern {
    let authority = text.find("://").map_or(0, |scheme| {
        let after = scheme + 3;
        after + text[after..].find('/').unwrap_or(text.len() - after)
    });
    let (head, key) = text.split_at(authority);
    // Plain HTTP has no listing, and `?` begins the query of a signed address.
    let listable = !head.starts_with("http://") && !head.starts_with("https://");
    let is_glob = listable && glob::is_glob(key);
    let key = if is_glob { key.to_owned() } else { glob::unescape(key) };
    Pattern { text: glob::unescape(head) + &key, is_glob }
}

/// The beginning of a long spec, for messages.
fn shortened(spec: &str) -> String {
    let mut chars = spec.chars();
    let head: String = chars.by_ref().take(120).collect();
    if chars.next().is_some() { head + "..." } else { head }
}

#[cfg(test)]
mod tests;
