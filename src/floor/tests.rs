//! The boundary, place by place.

use unicode_normalization::UnicodeNormalization as _;

use super::{fold::invisible, *};

const READ: Touch = Touch { access: Access::Read, tells_content: true, breaks_links: false };
const LIST: Touch = Touch { access: Access::Read, tells_content: false, breaks_links: false };
const CREATE: Touch = Touch { access: Access::Write, tells_content: false, breaks_links: false };
const EDIT: Touch = Touch { access: Access::Write, tells_content: true, breaks_links: false };
const DELETE: Touch = Touch { access: Access::Delete, tells_content: false, breaks_links: false };

fn at(path: &str) -> Location {
    match path.starts_with('/') {
        true => Location::Outside(path.to_owned()),
        false => Location::Inside(path.to_owned()),
    }
}

fn facts(lexical: &str, resolved: &str) -> PathFacts {
    PathFacts {
        given: lexical.to_owned(),
        lexical: at(lexical),
        resolved: at(resolved),
        kind: FileKind::Regular,
        links: 1,
        bytes: 1,
    }
}

fn token(touch: Touch, path: &PathFacts) -> Option<&'static str> {
    judge("/work/tree", touch, path).map(|hit| hit.boundary.token())
}

fn hit(touch: Touch, path: &str) -> Option<&'static str> {
    // The place is judged as written and as it resolves, so a link hides nothing either way.
    let direct = token(touch, &facts(path, path));
    assert_eq!(direct, token(touch, &facts("src/link", path)), "{path} behind a link");
    assert_eq!(direct, token(touch, &facts(path, "src/real")), "{path} that is a link");
    direct
}

#[test]
fn nothing_outside_is_touched() {
    for touch in [READ, LIST, CREATE, EDIT, DELETE] {
        assert_eq!(hit(touch, "/etc/passwd"), Some("outside-workspace"));
        assert_eq!(hit(touch, "/work"), Some("outside-workspace"));
        assert_eq!(hit(touch, "/proc/self/environ"), Some("system-path"));
        assert_eq!(hit(touch, "/dev/fd/3"), Some("system-path"));
        assert_eq!(hit(touch, "src/a.rs"), None);
    }
    assert_eq!(hit(LIST, ""), None);
    let proc = judge("/", READ, &facts("proc/self/environ", "proc/self/environ"));
    assert_eq!(proc.map(|hit| hit.boundary), Some(Boundary::SystemPath));
}

#[test]
fn git_is_not_touched_in_any_spelling() {
    for touch in [READ, LIST, CREATE, EDIT, DELETE] {
        for path in [
            ".git",
            ".git/config",
            "sub/.git/hooks/x",
            ".GIT/config",
            ".git./config",
            ".git /config",
            ".git. . /config",
            "git~1/config",
            "GIT~1",
            ".git::$INDEX_ALLOCATION/config",
            ".git:x",
            ".g\u{200c}it/config",
            ".g\u{131}t/config",
            "\u{ff0e}git/config",
        ] {
            assert_eq!(hit(touch, path), Some("git-directory"), "{path}");
        }
        assert_eq!(hit(touch, "src/git/config.rs"), None);
        assert_eq!(hit(touch, ".gitignore"), None);
        assert_eq!(hit(touch, ".thcode/x"), Some("own-directory"));
    }
}

#[test]
fn control_files_are_read_but_not_written() {
    for path in [
        ".github/workflows/ci.yml",
        ".github/workflows",
        ".GitHub/Workflows/x",
        "templates/.github/workflows/x.yml",
        ".githooks/pre-commit",
        ".husky/pre-push",
        ".envrc",
        ".vscode/tasks.json",
        "x.code-workspace",
        ".aider.conf.yml",
        ".mcp.json",
        ".gitattributes",
        ".gitmodules",
        "sub/.claude/settings.json",
        ".agents/allow",
        ".gitlab-ci.yml",
        "Jenkinsfile",
        "Jenkinsfile.release",
        "azure-pipelines-nightly.yml",
        ".circleci/config.yml",
        ".github/CODEOWNERS",
        ".clinerules/hooks/x",
        ".vscode::$INDEX_ALLOCATION/tasks.json",
    ] {
        for touch in [CREATE, EDIT, DELETE] {
            assert!(
                matches!(hit(touch, path), Some("control-file" | "secret-read")),
                "{path}: {:?}",
                hit(touch, path)
            );
        }
        assert_eq!(hit(CREATE, path), Some("control-file"), "{path}");
        assert_eq!(hit(LIST, path), None, "{path}");
    }
    for path in
        ["README.md", "AGENTS.md", ".github/dependabot.yml", ".gitignore", "src/vscode.rs", "Makefile"]
    {
        assert_eq!(hit(CREATE, path), None, "{path}");
    }
}

#[test]
fn secrets_are_not_told() {
    for path in [
        ".env",
        ".env.production",
        "a/.ENV",
        ".env.",
        ".env::$DATA",
        ".env.example.local",
        "x.pem",
        "x.Key",
        "id_rsa",
        "id_ed25519.bak",
        "id_ecdsa_sk",
        ".ssh/config",
        "secrets/deep/x",
        ".netrc",
        ".npmrc",
        ".pypirc",
        ".aws/credentials",
        ".config/gcloud/x",
        ".docker/config.json",
    ] {
        assert_eq!(hit(READ, path), Some("secret-read"), "{path}");
        assert_eq!(hit(EDIT, path), Some("secret-read"), "{path}");
        assert_eq!(hit(LIST, path), None, "{path}");
        assert_eq!(hit(CREATE, path), None, "{path}");
    }
    for path in [
        ".env.example",
        ".env.sample",
        ".env.template",
        "id_rsa.pub",
        "id_map.rs",
        "src/identity.rs",
        "src/secrets/mod.rs",
        "secrets",
        "src/environment.rs",
        "keys.rs",
        "docker/config.json",
    ] {
        assert_eq!(hit(READ, path), None, "{path}");
    }
}

#[test]
fn only_plain_files_with_one_name_are_changed() {
    let of = |kind, links| PathFacts { kind, links, ..facts("src/a", "src/a") };
    for touch in [CREATE, EDIT, DELETE] {
        assert_eq!(token(touch, &of(FileKind::Special, 1)), Some("special-file"));
        assert_eq!(token(touch, &of(FileKind::Directory, 3)), Some("directory-target"));
        assert_eq!(token(touch, &of(FileKind::Regular, 2)), Some("hardlink-detected"));
        assert_eq!(token(touch, &of(FileKind::Absent, 0)), None);
    }
    assert_eq!(token(READ, &of(FileKind::Special, 1)), Some("special-file"));
    assert_eq!(token(READ, &of(FileKind::Regular, 2)), None);
    assert_eq!(token(READ, &of(FileKind::Directory, 2)), None);
}

#[test]
fn a_name_that_reads_like_another_is_not_written() {
    for name in [
        "p\u{430}ypal.rs",
        "\u{440}aypal.rs",
        "src-\u{441}\u{43e}\u{440}\u{443}.rs",
        "config.\u{440}y",
        "config.\u{441}",
        "a\u{3bf}b",
        "a\u{585}b",
        "a\u{202e}b",
        "a\u{200b}b",
        "\u{2066}x",
        "x\u{feff}",
    ] {
        assert!(confusable_name(name), "{name:?}");
        assert_eq!(hit(CREATE, &format!("src/{name}/x")), Some("confusable-path"), "{name:?}");
        assert_eq!(hit(READ, &format!("src/{name}/x")), None, "{name:?}");
    }
    for name in [
        "main.rs",
        "отчёт.md",
        "данные.rs",
        "отчёт-final.md",
        "сор.md",
        "Δt.rs",
        "λ.rs",
        "ไฟล์.md",
        "测试test.rs",
        "かな_kana.txt",
        "naïve.rs",
        "cafe\u{301}.rs",
        "αβγ.txt",
        "Հայերեն.txt",
    ] {
        assert!(!confusable_name(name), "{name}");
        assert_eq!(hit(CREATE, name), None, "{name}");
    }
}

#[test]
fn the_ignorable_code_points_are_unicodes() {
    for c in '\0'..=char::MAX {
        let dropped = unicode_security::skeleton(c.encode_utf8(&mut [0; 4])).next().is_none();
        assert_eq!(invisible(c), dropped, "U+{:04X}", u32::from(c));
    }
}

#[test]
fn folding_is_stable_and_ends_where_it_starts() {
    // All that has a case, a decomposition or nothing to show; the rest is ideographs and blanks.
    let ranges = [0..0x3400, 0xa000..0xac40, 0xf900..0x12000, 0x1d000..0x20000, 0xe0000..0xe1000];
    for c in ranges.into_iter().flatten().filter_map(char::from_u32) {
        let once = fold_text(c.encode_utf8(&mut [0; 4]));
        assert_eq!(once, fold_text(&once), "U+{:04X}", u32::from(c));
        let composed: String = once.nfc().collect();
        assert_eq!(once, fold_text(&composed), "U+{:04X}", u32::from(c));
    }
}

#[test]
fn a_plain_path_has_one_spelling() {
    assert_eq!(spellings("src/a.rs"), ["src/a.rs"]);
    assert_eq!(spellings("Src/A.rs"), ["src/a.rs"]);
    assert_eq!(spellings("a."), ["a.", "a"]);
    assert_eq!(spellings("..."), ["..."]);
    assert_eq!(spellings("a:b/c:d"), ["a:b/c:d", "a/c", "a:b/c"]);
    assert_eq!(spellings("É"), ["e\u{301}"]);
}

#[test]
fn a_hit_says_where_a_link_leads() {
    let hit = judge("/work/tree", READ, &facts("benign", "secrets/key")).unwrap();
    assert!(hit.reason.contains("`benign`") && hit.reason.contains("secrets/key"), "{}", hit.reason);
}
