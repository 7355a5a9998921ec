//! Globs: `?` and `[abc]` stand for one character, `*` for any run within one level of the key, `**` for any run.
//!
//! Matching keeps the set of pattern places that are still possible and moves it over the key once, so the time is
//! the product of both lengths at most, whatever the pattern.

/// Whether `key` matches `pattern`.
///
/// `*`, `?` and `[...]` never match `/`. `**` does, and `a/**/b` also matches `a/b`. A backslash takes the meaning
/// from the character after it; a bracket that is not closed stands for itself.
pub fn glob_match(pattern: &str, key: &str) -> bool {
    let atoms = parse(pattern);
    let mut alive = vec![false; atoms.len() + 1];
    alive[0] = true;
    pass_over_empty(&atoms, &mut alive);
    for c in key.chars() {
        // Backwards, so that a place is moved before the one behind it arrives.
        for place in (0..=atoms.len()).rev() {
            if !std::mem::take(&mut alive[place]) {
                continue;
            }
            match atoms.get(place) {
                Some(Atom::Run) if c != '/' => alive[place] = true,
                Some(Atom::DeepRun) => alive[place] = true,
                Some(atom) if atom.matches(c) => alive[place + 1] = true,
                _ => {}
            }
        }
        pass_over_empty(&atoms, &mut alive);
    }
    alive[atoms.len()]
}

/// Whether the text has a glob character that is not escaped.
pub(super) fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '[']) && parse(text).iter().any(|atom| !matches!(atom, Atom::One(_)))
}

/// Takes the escapes out of a text that is not a glob.
pub(super) fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    plain
}

/// One part of a pattern.
#[derive(Debug, PartialEq)]
enum Atom {
    /// This character.
    One(char),
    /// `?`
    Any,
    /// `[a-z]` or `[!a-z]`
    Class { ranges: Vec<(char, char)>, negated: bool },
    /// `*`
    Run,
    /// `**`
    DeepRun,
    /// Stands before a `**/` that begins a level: both may be left out together.
    MaybeLevels,
}

impl Atom {
    fn matches(&self, c: char) -> bool {
        match self {
            Self::One(one) => *one == c,
            Self::Any => c != '/',
            Self::Class { ranges, negated } => {
                c != '/' && ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
            Self::Run | Self::DeepRun | Self::MaybeLevels => false,
        }
    }
}

/// Runs may be empty: what is possible before one is possible behind it.
fn pass_over_empty(atoms: &[Atom], alive: &mut [bool]) {
    for (place, atom) in atoms.iter().enumerate() {
        if alive[place] {
            alive[place + 1] |= matches!(atom, Atom::Run | Atom::DeepRun | Atom::MaybeLevels);
            if matches!(atom, Atom::MaybeLevels) {
                alive[place + 3] = true;
            }
        }
    }
}

fn parse(pattern: &str) -> Vec<Atom> {
    let mut atoms: Vec<Atom> = Vec::new();
    let mut rest = pattern;
    // Once a bracket finds no partner, no later one will: searching again would make parsing quadratic.
    let mut brackets_close = true;
    while let Some(c) = rest.chars().next() {
        let here = rest;
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                let escaped = rest.chars().next();
                rest = &rest[escaped.map_or(0, char::len_utf8)..];
                atoms.push(Atom::One(escaped.unwrap_or('\\')));
            }
            '?' => atoms.push(Atom::Any),
            '*' => {
                let stars = here.len() - here.trim_start_matches('*').len();
                rest = &here[stars..];
                let starts_level = matches!(atoms.last(), None | Some(Atom::One('/')));
                if stars > 1 && starts_level && rest.starts_with('/') {
                    atoms.push(Atom::MaybeLevels);
                }
                atoms.push(if stars > 1 { Atom::DeepRun } else { Atom::Run });
            }
            '[' if brackets_close => {
                if let Some((class, after)) = parse_class(rest) {
                    atoms.push(class);
                    rest = after;
                } else {
                    brackets_close = false;
                    atoms.push(Atom::One('['));
                }
            }
            c => atoms.push(Atom::One(c)),
        }
    }
    atoms
}

/// Parses a class behind its `[`; a `]` in the first place is a member.
fn parse_class(text: &str) -> Option<(Atom, &str)> {
    let negated = text.starts_with(['!', '^']);
    let body = &text[usize::from(negated)..];
    let mut members: Vec<(char, bool)> = Vec::new();
    let mut chars = body.char_indices();
    loop {
        match chars.next()? {
            (at, ']') if !members.is_empty() => {
                let class = Atom::Class { ranges: class_ranges(&members), negated };
                return Some((class, &body[at + 1..]));
            }
            (_, '\\') => members.push((chars.next()?.1, true)),
            (_, c) => members.push((c, false)),
        }
    }
}

fn class_ranges(members: &[(char, bool)]) -> Vec<(char, char)> {
    let mut ranges = Vec::new();
    let mut rest = members;
    while let [(low, _), after @ ..] = rest {
        if let [('-', false), (high, _), tail @ ..] = after {
            ranges.push((*low, *high));
            rest = tail;
        } else {
            ranges.push((*low, *low));
            rest = after;
        }
    }
    ranges
}
