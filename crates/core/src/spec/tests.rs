//! The cases of `docs/reference/shard-spec.md`, limits against hostile specs, and globs against a naive matcher.

use super::*;
use crate::ErrorKind;
use proptest::prelude::*;

fn env(name: &str) -> Option<String> {
    match name {
        "DATA" => Some("s3://bucket/data".into()),
        "N" => Some("2".into()),
        "TWO" => Some("x.tar::{y,z}.tar".into()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn names(spec: &str) -> Vec<String> {
    expand(spec, &env).unwrap().into_iter().map(|pattern| pattern.text).collect()
}

#[test]
fn p019_shard_specs_expand_as_documented() {
    let cases: &[(&str, &str)] = &[
        // Names as they are.
        ("train.tar", "train.tar"),
        ("s3://bucket/a b.tar", "s3://bucket/a b.tar"),
        // Ranges.
        ("t-{0..3}.tar", "t-0.tar|t-1.tar|t-2.tar|t-3.tar"),
        ("t-{000..003}.tar", "t-000.tar|t-001.tar|t-002.tar|t-003.tar"),
        ("t-{08..11}.tar", "t-08.tar|t-09.tar|t-10.tar|t-11.tar"),
        ("t-{8..011}.tar", "t-008.tar|t-009.tar|t-010.tar|t-011.tar"),
        ("{0..10..2}", "0|2|4|6|8|10"),
        ("{0..9..4}", "0|4|8"),
        ("{3..1}", "3|2|1"),
        ("{10..0..-5}", "10|5|0"),
        ("{-1..1}", "-1|0|1"),
        ("{-02..1}", "-02|-01|000|001"),
        ("{7..7}", "7"),
        ("{a..e..2}", "a|c|e"),
        // Lists.
        ("{a,b,c}.tar", "a.tar|b.tar|c.tar"),
        ("x{,.gz}", "x|x.gz"),
        // Several braces and braces inside braces, the last turning fastest.
        ("{a,b}{0..1}", "a0|a1|b0|b1"),
        ("{train/{0..1},val/{0,5}}.tar", "train/0.tar|train/1.tar|val/0.tar|val/5.tar"),
        ("{a,{b,{c,d}}}", "a|b|c|d"),
        // Concatenation.
        ("a.tar::b.tar", "a.tar|b.tar"),
        ("s3://x/{0..1}.tar::file:///y.tar", "s3://x/0.tar|s3://x/1.tar|file:///y.tar"),
        (
            "http://[::1]:9000/b/{0..1}.tar::c.tar",
            "http://[::1]:9000/b/0.tar|http://[::1]:9000/b/1.tar|c.tar",
        ),
        // Variables.
        ("$DATA/t.tar", "s3://bucket/data/t.tar"),
        ("${DATA}/{0..1}.tar", "s3://bucket/data/0.tar|s3://bucket/data/1.tar"),
        ("t-{0..${N}}.tar", "t-0.tar|t-1.tar|t-2.tar"),
        ("$TWO", "x.tar|y.tar|z.tar"),
        ("a${EMPTY}b", "ab"),
        ("cost$5", "cost$5"),
        // Braces that stand for themselves, by escape or because they hold neither list nor range.
        ("\\{a,b\\}", "{a,b}"),
        ("{a\\,b}", "{a,b}"),
        ("{a}{}", "{a}{}"),
        ("{a{b,c}}", "{ab}|{ac}"),
        ("{a,b", "{a,b"),
        ("a,b}", "a,b}"),
        ("{a,b{c,d}", "{a,bc|{a,bd"),
        ("{1..x}", "{1..x}"),
        ("{1...3}", "{1...3}"),
        ("\\$DATA \\\\ \\d", "$DATA \\ \\d"),
        ("a\\::b", "a::b"),
    ];
    assert!(cases.len() >= 20);
    for (spec, expected) in cases {
        let expected: Vec<&str> = expected.split('|').collect();
        assert_eq!(names(spec), expected, "{spec}");
        assert!(expand(spec, &env).unwrap().iter().all(|pattern| !pattern.is_glob), "{spec}");
    }
}

#[test]
fn p019_globs_are_told_from_names() {
    for (spec, text, is_glob) in [
        ("d/*.tar", "d/*.tar", true),
        ("d/**/x.tar", "d/**/x.tar", true),
        ("d/t-?.tar", "d/t-?.tar", true),
        ("d/t-[0-4].tar", "d/t-[0-4].tar", true),
        ("d/\\*.tar", "d/*.tar", false),
        ("d/\\*\\[*.tar", "d/\\*\\[*.tar", true),
        ("d/t-[0.tar", "d/t-[0.tar", false),
        ("s3://[::1]:9000/b/*.tar", "s3://[::1]:9000/b/*.tar", true),
        ("s3://[::1]:9000/b/x.tar", "s3://[::1]:9000/b/x.tar", false),
        ("https://h/x.tar?signature=*", "https://h/x.tar?signature=*", false),
    ] {
        assert_eq!(expand(spec, &env).unwrap(), [Pattern { text: text.into(), is_glob }], "{spec}");
    }
}

#[test]
fn a_spec_that_makes_no_sense_is_refused_with_its_reason() {
    for (spec, kind, reason) in [
        ("$NOWHERE/x.tar", ErrorKind::InvalidConfig, "`NOWHERE` is not set"),
        ("${NOWHERE}", ErrorKind::InvalidConfig, "`NOWHERE` is not set"),
        ("${DATA", ErrorKind::InvalidConfig, "no closing"),
        ("${A-b}", ErrorKind::InvalidConfig, "does not name"),
        ("", ErrorKind::InvalidConfig, "no name"),
        ("a.tar::", ErrorKind::InvalidConfig, "no name"),
        ("{0..9..0}", ErrorKind::InvalidConfig, "step of 0"),
        ("{0..99999999999999999999}", ErrorKind::InvalidConfig, "beyond 64 bits"),
        ("{1..10000001}", ErrorKind::Exhausted, "more than 10000000 names"),
        ("{-9223372036854775808..9223372036854775807}", ErrorKind::Exhausted, "names"),
        ("{1..9999}{1..9999}", ErrorKind::Exhausted, "names"),
    ] {
        let error = expand(spec, &env).unwrap_err();
        assert_eq!(error.kind(), kind, "{spec}");
        assert!(
            error.message().starts_with("expand shard spec") && error.message().contains(reason),
            "{error}"
        );
    }
}

#[test]
fn hostile_specs_end_in_an_error_before_they_cost_anything() {
    let deep = format!("{}a{}", "{b,".repeat(10_000), "}".repeat(10_000));
    assert_eq!(expand(&deep, &env).unwrap_err().kind(), ErrorKind::Exhausted);
    let wide = "{0,1}".repeat(100_000);
    assert_eq!(expand(&wide, &env).unwrap_err().kind(), ErrorKind::Exhausted);
    let heavy = format!("{}{{1..1000000}}", "x".repeat(100_000));
    assert_eq!(expand(&heavy, &env).unwrap_err().kind(), ErrorKind::Exhausted);
    let padded = format!("{{{}1..1000000}}", "0".repeat(100_000));
    assert_eq!(expand(&padded, &env).unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(expand(&"x".repeat(MAX_SPEC_BYTES + 1), &env).unwrap_err().kind(), ErrorKind::Exhausted);
    let bomb = |_: &str| Some("y".repeat(1 << 19));
    assert_eq!(expand("$A$A$A$A", &bomb).unwrap_err().kind(), ErrorKind::Exhausted);
    for open in ["{", "[", "}", "[a", "{a..", "\\"] {
        let spec = open.repeat(200_000 / open.len());
        assert_eq!(expand(&spec, &env).unwrap().len(), 1, "{open}");
    }
    assert_eq!(expand(&format!("{{{}}}", "a,".repeat(200_000)), &env).unwrap().len(), 200_001);
}

#[test]
fn a_million_names_expand_in_order() {
    let names = names("{000000..999999}.tar");
    assert_eq!(names.len(), 1_000_000);
    assert!(names.is_sorted());
    assert_eq!(names[123_456], "123456.tar");
}

#[test]
fn globs_match_as_documented() {
    for (pattern, key, expected) in [
        ("*.tar", "a.tar", true),
        ("*.tar", "d/a.tar", false),
        ("**.tar", "d/e/a.tar", true),
        ("d/**/a.tar", "d/a.tar", true),
        ("d/**/a.tar", "d/e/f/a.tar", true),
        ("d/**/a.tar", "d/xa.tar", false),
        ("**/a.tar", "a.tar", true),
        ("**/a.tar", "xa.tar", false),
        ("**/**/a.tar", "a.tar", true),
        ("x**/a.tar", "x/a.tar", true),
        ("x**/a.tar", "xa.tar", false),
        ("d/**", "d/e/f", true),
        ("d/**", "d", false),
        ("t-?.tar", "t-1.tar", true),
        ("t-?.tar", "t-/.tar", false),
        ("t-?.tar", "t-é.tar", true),
        ("[a-c]x", "bx", true),
        ("[a-c]x", "dx", false),
        ("[!a-c]x", "dx", true),
        ("[^a-c]x", "/x", false),
        ("[]a]", "]", true),
        ("[a-]", "-", true),
        ("[\\]]", "]", true),
        ("[a", "[a", true),
        ("\\*", "*", true),
        ("\\*", "a", false),
        ("", "", true),
        ("*", "", true),
        ("a", "ab", false),
    ] {
        assert_eq!(glob_match(pattern, key), expected, "{pattern} on {key}");
    }
}

#[test]
fn no_glob_takes_long() {
    let key = "a".repeat(2000);
    assert!(!glob_match(&("*a".repeat(500) + "b"), &key));
    assert!(!glob_match(&("**a*".repeat(500) + "b"), &key));
    assert!(!glob_match(&"[".repeat(100_000), ""));
}

/// The obvious matcher for patterns of `*`, `**`, `?` and plain characters: tries everything.
fn naive(pattern: &[char], key: &[char]) -> bool {
    match (pattern, key) {
        ([], _) => key.is_empty(),
        (['*', '*', rest @ ..], _) => {
            let rest = &rest[rest.iter().take_while(|c| **c == '*').count()..];
            (0..=key.len()).any(|taken| naive(rest, &key[taken..]))
        }
        (['*', rest @ ..], _) => {
            let level = key.iter().take_while(|c| **c != '/').count();
            (0..=level).any(|taken| naive(rest, &key[taken..]))
        }
        (['?', rest @ ..], [c, tail @ ..]) => *c != '/' && naive(rest, tail),
        ([one, rest @ ..], [c, tail @ ..]) => one == c && naive(rest, tail),
        (_, []) => false,
    }
}

proptest! {
    #[test]
    fn globs_agree_with_the_naive_matcher(pattern in "[ab*?/]{0,8}", key in "[ab/]{0,8}") {
        // The rule that `a/**/b` matches `a/b` is an addition to the naive meaning; its cases are in the table.
        prop_assume!(!pattern.contains("**/"));
        let (wide, long): (Vec<char>, Vec<char>) = (pattern.chars().collect(), key.chars().collect());
        prop_assert_eq!(glob_match(&pattern, &key), naive(&wide, &long));
    }

    #[test]
    fn no_text_makes_expansion_panic(spec in "[a-c0-2{}.,:$\\\\*?\\[\\]/-]{0,40}") {
        if let Ok(patterns) = expand(&spec, &env) {
            prop_assert!(!patterns.is_empty());
            for pattern in patterns.iter().take(100) {
                let _ = glob_match(&pattern.text, "a/b");
            }
        }
    }

    #[test]
    fn text_without_special_characters_stays_as_it_is(spec in "[a-zA-Z0-9_./ é-]{1,40}") {
        prop_assert_eq!(names(&spec), [spec]);
    }

    #[test]
    fn any_name_can_be_written_with_escapes(name in "\\PC{1,20}") {
        let escaped: String = name
            .chars()
            .flat_map(|c| "{},$\\*?[]:".contains(c).then_some('\\').into_iter().chain([c]))
            .collect();
        prop_assert_eq!(expand(&escaped, &env).unwrap(), [Pattern { text: name, is_glob: false }]);
    }
}
