//! The boundary for a word of a command that names a path: the program decides what it does with
//! it, so that more counts as touched, and being outside alone doesn't count, since a program
//! reads its own parts there. Whatever text can't tell is for the walls around the process.

use super::{Boundary, FileKind, Hit, Location, PathFacts, fold::spellings, names, reason, system_path};

/// What every program may name.
const PLAIN_DEVICES: &[&str] = &["/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"];

/// The boundary that a word of a command hits, if any. `writes` says that the program may write
/// what it is given.
pub fn judge_operand(root: &str, writes: bool, path: &PathFacts) -> Option<Hit> {
    let resolved = (path.resolved != path.lexical).then_some(&path.resolved);
    std::iter::once(&path.lexical)
        .chain(resolved)
        .find_map(|place| judge_place(root, writes, path.kind, place))
        .map(|boundary| Hit { boundary, reason: reason(boundary, path) })
}

fn judge_place(root: &str, writes: bool, kind: FileKind, place: &Location) -> Option<Boundary> {
    let absolute = place.absolute(root);
    if system_path(&absolute) {
        return (!PLAIN_DEVICES.contains(&absolute.as_str())).then_some(Boundary::SystemPath);
    }
    let (text, inside) = match place {
        Location::Inside(inside) => (inside.as_str(), true),
        Location::Outside(outside) => (outside.trim_start_matches('/'), false),
    };
    let spelled = spellings(text);
    let any = |test: fn(&str) -> bool| spelled.iter().any(|path| test(path));
    // A word that names nothing is mostly no path at all: `id_rsa_test` is a test's name.
    let there = kind != FileKind::Absent;
    if inside && any(names::git_directory) {
        Some(Boundary::GitDirectory)
    } else if inside && any(names::own_directory) {
        Some(Boundary::OwnDirectory)
    } else if there && any(names::folded_secret) {
        Some(Boundary::SecretRead)
    } else if writes && inside && any(names::folded_control_file) {
        Some(Boundary::ControlFile)
    } else {
        None
    }
}
