//! The floor plan, checked: who imports whom, how long a file is, and that no test is forgotten.
//!
//! Reads the code with `syn`, since a text scan is blind to `use crate::{a, b}`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::visit::{self, Visit};

/// Each room and the rooms that it may import, in building order: a row names only rooms above it.
const FLOOR_PLAN: &[(&str, &[&str])] = &[
    ("id", &[]),
    ("host", &["id"]),
    ("redact", &[]),
    ("crypto", &["id", "host", "redact"]),
    ("floor", &[]),
    ("contract", &["id"]),
    ("policy", &["id", "floor"]),
    ("store", &["id", "host", "crypto"]),
    ("workspace", &["id", "floor"]),
    ("journal", &["id", "host", "crypto", "store"]),
    ("session", &["id", "host", "crypto", "store"]),
    ("checkpoint", &["id", "host", "crypto", "store"]),
    ("mutation", &["id", "host", "floor", "store", "workspace", "journal", "checkpoint"]),
    (
        "recovery",
        &["contract", "id", "host", "crypto", "redact", "store", "journal", "checkpoint", "workspace"],
    ),
    ("diff", &[]),
    ("rollback", &["contract", "id", "checkpoint"]),
    ("provider", &["id", "redact", "host"]),
    ("tool", &["id", "host", "policy", "workspace", "journal", "mutation", "checkpoint", "redact"]),
    (
        "agent",
        &[
            "contract",
            "id",
            "host",
            "redact",
            "policy",
            "provider",
            "tool",
            "workspace",
            "store",
            "journal",
            "session",
            "mutation",
            "checkpoint",
        ],
    ),
    (
        "app",
        &[
            "id",
            "host",
            "redact",
            "crypto",
            "floor",
            "contract",
            "policy",
            "store",
            "workspace",
            "journal",
            "session",
            "checkpoint",
            "mutation",
            "recovery",
            "rollback",
            "diff",
            "provider",
            "tool",
            "agent",
        ],
    ),
    ("cli", &["id", "app", "contract", "host"]),
];

/// Over this a file is split.
const LONGEST: usize = 500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The rooms that some code names by `crate::room`, in a path or anywhere in a use tree.
#[derive(Default)]
struct Named(BTreeSet<String>);

impl Named {
    fn tree(&mut self, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => drop(self.0.insert(path.ident.to_string())),
            syn::UseTree::Name(name) => drop(self.0.insert(name.ident.to_string())),
            syn::UseTree::Rename(rename) => drop(self.0.insert(rename.ident.to_string())),
            syn::UseTree::Glob(_) => drop(self.0.insert("*".to_owned())),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item)),
        }
    }
}

impl<'ast> Visit<'ast> for Named {
    fn visit_use_tree(&mut self, tree: &'ast syn::UseTree) {
        if let syn::UseTree::Path(path) = tree
            && path.ident == "crate"
        {
            self.tree(&path.tree);
        }
        visit::visit_use_tree(self, tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if segments.next().is_some_and(|first| first.ident == "crate")
            && let Some(second) = segments.next()
        {
            self.0.insert(second.ident.to_string());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        // What a macro is given isn't parsed as Rust: read its tokens.
        let tokens: Vec<String> = mac.tokens.to_string().split_whitespace().map(str::to_owned).collect();
        for window in tokens.windows(4) {
            if window[0] == "crate" && window[1] == "::" {
                self.0.insert(window[2].clone());
            }
        }
        visit::visit_macro(self, mac);
    }
}

fn named_in(code: &str) -> BTreeSet<String> {
    let mut named = Named::default();
    named.visit_file(&syn::parse_file(code).unwrap());
    named.0
}

#[test]
fn imports_follow_the_floor_plan() {
    let plan: BTreeMap<_, _> = FLOOR_PLAN.iter().copied().collect();
    let src = root().join("src");
    let mut faults = Vec::new();
    for file in rust_files(&src) {
        let rel = file.strip_prefix(&src).unwrap();
        let room =
            rel.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        if room == "main" || room == "lib" {
            continue;
        }
        let Some(allowed) = plan.get(room) else {
            faults.push(format!("{}: {room} is not on the floor plan", rel.display()));
            continue;
        };
        for other in named_in(&fs::read_to_string(&file).unwrap()) {
            let foreign = other == "*" || (other != room && plan.contains_key(other.as_str()));
            if foreign && !allowed.contains(&other.as_str()) {
                faults.push(format!("{}: {room} imports {other}", rel.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_floor_plan_has_no_circle() {
    let mut above: BTreeSet<&str> = BTreeSet::new();
    for (room, imports) in FLOOR_PLAN {
        for import in *imports {
            assert!(above.contains(import), "{room} imports {import}, which isn't above it");
        }
        above.insert(room);
    }
}

#[test]
fn every_room_is_public_in_lib_and_on_the_plan() {
    let lib = syn::parse_file(&fs::read_to_string(root().join("src/lib.rs")).unwrap()).unwrap();
    let rooms: Vec<String> = lib
        .items
        .iter()
        .filter_map(|item| match item {
            syn::Item::Mod(module) => {
                assert!(matches!(module.vis, syn::Visibility::Public(_)), "{} is private", module.ident);
                Some(module.ident.to_string())
            }
            _ => None,
        })
        .collect();
    let plan: Vec<&str> = FLOOR_PLAN.iter().map(|(room, _)| *room).collect();
    assert_eq!(rooms, plan, "lib.rs lists the rooms in the order of the floor plan");
}

#[test]
fn the_import_check_sees_every_spelling() {
    let seen = |code: &str| named_in(code).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(seen("use crate::{a, b::C, d::{e, f}};"), "a b d");
    assert_eq!(seen("use {crate::a, std::fs};"), "a");
    assert_eq!(seen("fn f() -> crate::a::X { crate::b::y() }"), "a b");
    assert_eq!(seen("fn f() { assert_eq!(crate::a::y(), 1); }"), "a");
    assert_eq!(seen("pub use crate::*;"), "*");
    assert_eq!(seen("mod x { use crate::a as b; }"), "a");
}

#[test]
fn no_file_is_too_long() {
    let src = root().join("src");
    let long: Vec<String> = rust_files(&src)
        .into_iter()
        .filter_map(|file| {
            let rel = file.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
            let lines = fs::read_to_string(&file).unwrap().lines().count();
            (lines > LONGEST).then(|| format!("{rel}: {lines}"))
        })
        .collect();
    assert!(long.is_empty(), "over {LONGEST} lines: {long:#?}");
}

#[test]
fn no_test_file_is_forgotten() {
    let dir = root().join("tests/it");
    let main = fs::read_to_string(dir.join("main.rs")).unwrap();
    for file in rust_files(&dir) {
        let name = file.strip_prefix(&dir).unwrap().with_extension("");
        let name = name.to_str().unwrap();
        if name == "main" || name.contains('/') {
            continue;
        }
        assert!(main.contains(&format!("mod {name};")), "tests/it/{name}.rs isn't in main.rs");
    }
    let others: Vec<_> = fs::read_dir(root().join("tests"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "rs"))
        .collect();
    assert!(others.is_empty(), "cargo doesn't build these: {others:?}");
}

#[test]
fn every_file_opens_with_its_law() {
    let src = root().join("src");
    for file in rust_files(&src) {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//! "), "{} has no //! at its top", file.display());
    }
}

/// Who may name what: the sentences under "what is absent" of ARCHITECTURE.md.
#[test]
fn what_is_absent_stays_absent() {
    /// A word, and the places that may hold it.
    const ONLY_IN: &[(&str, &[&str])] = &[
        ("io::stdout", &["cli/output.rs"]),
        ("process::ExitCode", &["main.rs", "cli/"]),
        ("decide::decide", &["agent/gate.rs", "app/policy", "policy/"]),
    ];
    let src = root().join("src");
    let mut faults = Vec::new();
    for file in rust_files(&src) {
        let rel = file.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&file).unwrap();
        for (word, places) in ONLY_IN {
            if text.contains(word) && !places.iter().any(|place| rel.starts_with(place)) {
                faults.push(format!("{rel} names {word}"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
