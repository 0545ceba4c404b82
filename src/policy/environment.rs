//! What a command is given of the environment beside the little that every one gets: variables by
//! name, and toolchains. Names that change what is loaded are refused where they are written.

use std::collections::BTreeSet;

/// What a policy passes to commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passed {
    /// Variables by their names.
    pub variables: BTreeSet<String>,
    /// Toolchains, whose variables are passed where they are set or their directories are there.
    pub toolchains: BTreeSet<Toolchain>,
}

/// A toolchain that needs variables to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Toolchain {
    /// rustup and cargo.
    Rust,
    /// Node and its package managers.
    Node,
    /// Python and its virtual environments.
    Python,
    /// Go.
    Go,
    /// The JVM and its build tools.
    Java,
}

impl Toolchain {
    /// Every one, with its word in a policy.
    pub(super) const ALL: [(&'static str, Self); 5] = [
        ("rust", Self::Rust),
        ("node", Self::Node),
        ("python", Self::Python),
        ("go", Self::Go),
        ("java", Self::Java),
    ];

    /// Its variables, each with the directory of the home that stands for it where it isn't set.
    pub fn variables(self) -> &'static [(&'static str, Option<&'static str>)] {
        match self {
            Self::Rust => &[
                ("RUSTUP_HOME", Some(".rustup")),
                ("CARGO_HOME", Some(".cargo")),
                ("RUSTUP_TOOLCHAIN", None),
            ],
            Self::Node => &[("NVM_DIR", Some(".nvm")), ("npm_config_cache", Some(".npm"))],
            Self::Python => &[("VIRTUAL_ENV", None), ("PYENV_ROOT", Some(".pyenv"))],
            Self::Go => {
                &[("GOROOT", None), ("GOPATH", Some("go")), ("GOMODCACHE", None), ("GOFLAGS", None)]
            }
            Self::Java => &[
                ("JAVA_HOME", None),
                ("GRADLE_USER_HOME", Some(".gradle")),
                ("MAVEN_USER_HOME", Some(".m2")),
            ],
        }
    }
}

/// Beginnings of names that change what a program loads or runs.
const LOADING_PREFIXES: &[&str] =
    &["BASH_FUNC_", "DYLD_", "GIT_", "LD_", "MALLOC_", "NPM_CONFIG_", "PERL5", "PYTHON", "RUBY"];

/// Names that do.
const LOADING_NAMES: &str = "\
    BASHOPTS BASH_ENV CDPATH CLASSPATH EDITOR ENV GCONV_PATH GLIBC_TUNABLES GLOBIGNORE IFS \
    JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS LESSOPEN LOCPATH MAKEFLAGS MANPAGER NLSPATH NODE_OPTIONS \
    NODE_PATH PAGER PERLLIB PROMPT_COMMAND PS4 RUSTC RUSTC_WORKSPACE_WRAPPER RUSTC_WRAPPER SHELLOPTS \
    VISUAL ZDOTDIR _JAVA_OPTIONS";

/// Names that thcode sets itself.
const OWN_NAMES: &[&str] = &["CI", "HOME", "LANG", "LC_ALL", "PATH", "TERM", "TMPDIR"];

/// Why a variable can't be passed, if it can't.
pub(super) fn refused(name: &str) -> Option<&'static str> {
    let mut bytes = name.bytes();
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let plain = bytes.next().is_some_and(letter) && bytes.all(|b| letter(b) || b.is_ascii_digit());
    let upper = name.to_ascii_uppercase();
    if !plain {
        Some("it is no variable's name")
    } else if OWN_NAMES.contains(&upper.as_str()) {
        Some("thcode sets it itself")
    } else if upper.starts_with("THCODE_") {
        Some("it may hold a key or a setting of thcode")
    } else if LOADING_NAMES.split_ascii_whitespace().any(|listed| listed == upper)
        || LOADING_PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
    {
        Some("it changes what programs load or run")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_load_are_refused() {
        for name in [
            "LD_PRELOAD",
            "ld_preload",
            "DYLD_INSERT_LIBRARIES",
            "BASH_ENV",
            "GIT_SSH_COMMAND",
            "NODE_OPTIONS",
            "PYTHONPATH",
            "IFS",
            "PATH",
            "HOME",
            "THCODE_KEY",
            "",
            "A=B",
            "1A",
            "A B",
        ] {
            assert!(refused(name).is_some(), "{name}");
        }
        for name in ["RUST_BACKTRACE", "DATABASE_URL", "NO_COLOR", "_X"] {
            assert_eq!(refused(name), None, "{name}");
        }
    }

    #[test]
    fn toolchains_need_nothing_that_thcode_sets() {
        for (_, toolchain) in Toolchain::ALL {
            for (name, _) in toolchain.variables() {
                assert!(!OWN_NAMES.contains(name), "{name}");
            }
        }
    }
}
