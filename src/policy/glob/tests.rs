//! What globs match, as they stand and folded.

use super::*;
use crate::floor::spellings;

fn exact(glob: &str, path: &str) -> bool {
    let mut patterns = Patterns::default();
    patterns.add_exact(&Glob::parse(glob).unwrap(), 0);
    let mut owners = Vec::new();
    patterns.compile().unwrap().matching(path, &mut owners);
    !owners.is_empty()
}

fn folded(glob: &str, path: &str) -> bool {
    let mut patterns = Patterns::default();
    patterns.add_folded(&Glob::parse(glob).unwrap(), 0);
    let index = patterns.compile().unwrap();
    let mut owners = Vec::new();
    spellings(path).iter().for_each(|path| index.matching(path, &mut owners));
    !owners.is_empty()
}

#[test]
fn a_grant_matches_exact_bytes() {
    for (glob, path, expected) in [
        ("**", "", true),
        ("**", "a", true),
        ("**", "a/b/c", true),
        ("*", "a", true),
        ("*", ".a", true),
        ("*", "a/b", false),
        ("src/**", "src/a/b.rs", true),
        ("src/**", "src/.hidden", true),
        ("src/**", "src", false),
        ("src/**", "Src/a", false),
        ("src/**", "src-evil/a", false),
        ("src/*", "src/a/b.rs", false),
        ("a/**/b", "a/b", true),
        ("a/**/b", "a/x/y/b", true),
        ("a/**/b", "ab", false),
        ("**/x", "x", true),
        ("**/x", "a/x", true),
        ("**/x", "ax", false),
        ("**/*.rs", "a/b.rs", true),
        ("**/**/x", "a/x", true),
        ("README.md", "README.md", true),
        ("README.md", "docs/README.md", false),
        ("a?c", "abc", true),
        ("a?c", "aéc", false),
        ("a*c", "aéc", true),
        ("a{é,è}c", "aéc", true),
        ("a?c", "a/c", false),
        ("a[bc]d", "abd", true),
        ("a[!bc]d", "abd", false),
        ("a[!bc]d", "axd", true),
        ("a[!bc]d", "a/d", false),
        ("a[]]d", "a]d", true),
        ("a[!-]d", "a-d", false),
        ("a[a-]d", "a-d", true),
        ("a[!!]d", "a!d", false),
        ("a[\\!]d", "a!d", true),
        ("a[\\!^]d", "a^d", true),
        ("a[\\!-]d", "a-d", true),
        ("a[[:]d", "a[d", true),
        ("a[[:]d", "a:d", true),
        ("a[+-0]d", "a/d", false),
        ("{src,tests}/**", "tests/a", true),
        ("{src,tests}/**", "docs/a", false),
        ("a{,.bak}", "a", true),
        ("a{b,c{d,e}}", "ace", true),
        ("a\\{b\\}", "a{b}", true),
        ("app/\\[slug\\].tsx", "app/[slug].tsx", true),
        ("a,b", "a,b", true),
        ("a[{]b", "a{b", true),
    ] {
        assert_eq!(exact(glob, path), expected, "{glob} on {path}");
    }
}

#[test]
fn a_deny_matches_every_spelling() {
    for (glob, path) in [
        ("secrets/**", "secrets"),
        ("secrets/**", "Secrets/x"),
        ("SECRETS/**", "secrets/x"),
        ("**", ""),
        ("**/.env", ".ENV"),
        ("**/.env", "a/.env."),
        ("**/.env", "a/.env "),
        ("**/.env", "a/.env::$DATA"),
        ("**/.env", "a:b/.env:c"),
        ("a:b/.env", "a:b/.env:c"),
        ("a/.env", "a:b/.env:c"),
        ("a:b", "a:b"),
        (".git/**", "GIT~1/config"),
        ("**/.env", "a/.e\u{200b}nv"),
        ("caf\u{e9}", "cafe\u{301}"),
        ("cafe\u{301}", "caf\u{e9}"),
        ("caf?", "cafe\u{301}"),
        ("caf?", "CAF\u{c9}"),
        ("cafe*", "caf\u{e9}"),
        ("stra\u{df}e", "STRASSE"),
        ("\u{3c3}", "\u{3c2}"),
        ("[A-Z]x", "ax"),
        ("[a-z]x", "AX"),
        ("[!.]x", "ax"),
        ("[!.]x", "éx"),
        ("?x", "e\u{301}\u{302}x"),
        ("*.", "a."),
        ("a?", "a."),
        ("/home/u/.ssh/**", "/home/u/.SSH"),
        ("\u{ff0a}", "*"),
    ] {
        assert!(folded(glob, path), "{glob} on {path}");
    }
    for (glob, path) in [
        ("secrets/**", "src/secrets"),
        ("secrets/**", "secrets2"),
        (".env", "a/.env"),
        ("*.", "a"),
        ("\u{ff0a}", "abc"),
        ("[!aA]x", "ax"),
    ] {
        assert!(!folded(glob, path), "{glob} on {path}");
    }
}

#[test]
fn a_bad_glob_is_told_in_words() {
    let long = "a".repeat(LONGEST_GLOB + 1);
    let bomb = "{a,b}{a,b}{a,b}{a,b}";
    let wide = format!("{{{}}}", vec!["a"; MOST_ALTERNATIVES + 1].join(","));
    for (glob, part) in [
        ("", "empty"),
        ("!src", "negated"),
        ("~/x", "HOME"),
        ("a//b", "empty component"),
        ("a/", "dir/**"),
        ("./a", "`.`"),
        ("a/../b", "`..`"),
        ("a**", "stands alone"),
        ("**.rs", "stands alone"),
        ("a/b**/c", "stands alone"),
        ("a[b", "isn't closed"),
        ("a[]", "isn't closed"),
        ("a[/]b", "isn't closed"),
        ("a[z-a]", "backwards"),
        ("a[\u{e0}]", "ASCII"),
        ("a[a-\u{e0}]", "ASCII"),
        ("a{b", "isn't closed"),
        ("a}b", "without"),
        ("a\\b", "literally"),
        ("a\nb", "U+000A"),
        ("{/a,b}", "choose"),
        (long.as_str(), "1025 bytes"),
        (wide.as_str(), "64 patterns"),
        (&bomb.repeat(2), "more than 4 times"),
    ] {
        let told = Glob::parse(glob).unwrap_err();
        assert!(told.contains(part), "{glob}: {told}");
    }
}

#[test]
fn a_class_that_case_would_change_cant_be_denied() {
    for (glob, part) in [("[!a]", "`A` beside `a`"), ("[!a-zA-Y]", "`Z` beside `z`")] {
        let told = Glob::parse(glob).unwrap().check_foldable().unwrap_err();
        assert!(told.contains(part), "{glob}: {told}");
    }
    for glob in ["[!a-zA-Z]", "[a-z]", "[!.]"] {
        assert_eq!(Glob::parse(glob).unwrap().check_foldable(), Ok(()), "{glob}");
    }
}

#[test]
fn thousands_of_globs_match_at_once() {
    let mut patterns = Patterns::default();
    for n in 0..1_000 {
        patterns.add_exact(&Glob::parse(&format!("src/*/m{n}?/**")).unwrap(), n);
    }
    let index = patterns.compile().unwrap();
    let mut owners = Vec::new();
    index.matching("src/a/m471x/y", &mut owners);
    assert_eq!(owners, [471]);
}
