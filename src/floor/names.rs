//! Which names are git's, thcode's, control files or secrets. Tables of facts about other tools.
//!
//! A control file is one that *executes* or *configures authority*: what runs later without anybody
//! having asked for it (hooks, CI, tasks of an editor, settings of an agent, review owners). Prose
//! that agents read (README, AGENTS.md) isn't, nor are sources that a build runs.

/// Directories, at any depth, of which everything is a control file.
const CONTROL_DIRECTORIES: &[&str] = &[
    // Hooks and the shell.
    ".direnv",
    ".githooks",
    ".husky",
    ".lefthook",
    ".mise",
    // Editors and their containers.
    ".devcontainer",
    ".fleet",
    ".idea",
    ".run",
    ".vs",
    ".vscode",
    ".zed",
    // Coding agents.
    ".agents",
    ".amazonq",
    ".augment",
    ".claude",
    ".codex",
    ".continue",
    ".crush",
    ".cursor",
    ".factory",
    ".gemini",
    ".goose",
    ".kilocode",
    ".kiro",
    ".opencode",
    ".openhands",
    ".qwen",
    ".roo",
    ".trae",
    ".windsurf",
    // Continuous integration.
    ".buildkite",
    ".circleci",
    ".semaphore",
    ".teamcity",
    ".tekton",
    ".woodpecker",
];

/// As above, for a directory in a directory.
const CONTROL_SUBDIRECTORIES: &[(&str, &str)] = &[
    (".config", "mise"),
    (".forgejo", "actions"),
    (".forgejo", "workflows"),
    (".gitea", "actions"),
    (".gitea", "workflows"),
    (".github", "actions"),
    (".github", "agents"),
    (".github", "hooks"),
    (".github", "workflows"),
    (".gitlab", "ci"),
];

/// Names, at any depth, that are control files.
const CONTROL_FILES: &[&str] = &[
    // Git, hooks and the shell.
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".envrc",
    ".gitattributes",
    ".gitconfig",
    ".gitmodules",
    ".lefthook.json",
    ".lefthook.toml",
    ".lefthook.yaml",
    ".lefthook.yml",
    ".mise.toml",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    ".profile",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "codeowners",
    "lefthook.json",
    "lefthook.toml",
    "lefthook.yaml",
    "lefthook.yml",
    "mise.toml",
    // Editors and debuggers that run what they find beside a file.
    ".dir-locals-2.el",
    ".dir-locals.el",
    ".exrc",
    ".gdbinit",
    ".lldbinit",
    ".nvim.lua",
    ".nvimrc",
    ".vimrc",
    // Coding agents.
    ".kilocodemodes",
    ".mcp.json",
    ".roomodes",
    "crush.json",
    ".crush.json",
    "opencode.json",
    "opencode.jsonc",
    // Continuous integration.
    ".appveyor.yml",
    ".cirrus.star",
    ".cirrus.yaml",
    ".cirrus.yml",
    ".drone.jsonnet",
    ".drone.star",
    ".drone.yaml",
    ".drone.yml",
    ".gitlab-ci.yaml",
    ".gitlab-ci.yml",
    ".travis.yaml",
    ".travis.yml",
    ".woodpecker.yaml",
    ".woodpecker.yml",
    "appveyor.yml",
    "bitbucket-pipelines.yml",
    "bitrise.yml",
    "buildspec.yaml",
    "buildspec.yml",
    "cloudbuild.json",
    "cloudbuild.yaml",
    "cloudbuild.yml",
    "codemagic.yaml",
    "jenkinsfile",
    "screwdriver.yaml",
    "wercker.yml",
];

/// Beginnings of names, of files and of directories, at any depth.
const CONTROL_PREFIXES: &[&str] = &[".aider", ".cline", "azure-pipelines", "jenkinsfile."];

/// Ends of names.
const CONTROL_SUFFIXES: &[&str] = &[".code-workspace"];

/// Directories, at any depth, of which every file is a secret.
const SECRET_DIRECTORIES: &[&str] = &[".aws", ".azure", ".gnupg", ".kube", ".oci", ".ssh"];

/// As above, for a name in a directory.
const SECRET_PAIRS: &[(&str, &str)] = &[
    (".cargo", "credentials"),
    (".cargo", "credentials.toml"),
    (".config", "gcloud"),
    (".docker", "config.json"),
    (".gem", "credentials"),
    (".terraform.d", "credentials.tfrc.json"),
];

/// Names, at any depth, that hold credentials.
const SECRET_FILES: &[&str] = &[
    ".boto",
    ".git-credentials",
    ".htpasswd",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".vault-token",
    "_netrc",
    "application_default_credentials.json",
];

/// Ends of names.
const SECRET_SUFFIXES: &[&str] = &[".jks", ".kdbx", ".key", ".keystore", ".p12", ".pem", ".pfx"];

/// Private keys of ssh by their usual names; any suffix but `.pub` is a copy of the key. A name
/// such as `id_map.rs` is a source file and stays readable.
const SSH_KEYS: &[&str] =
    &["id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_rsa", "id_xmss"];

/// Templates beside `.env` that are meant to be read.
const ENV_TEMPLATES: &[&str] = &[".env.example", ".env.sample", ".env.template"];

pub(super) fn git_directory(folded: &str) -> bool {
    folded.split('/').any(|name| name == ".git")
}

pub(super) fn own_directory(folded: &str) -> bool {
    folded.split('/').any(|name| name == ".thcode")
}

pub(super) fn folded_control_file(folded: &str) -> bool {
    has_pair(folded, CONTROL_SUBDIRECTORIES)
        || folded.split('/').any(|name| {
            CONTROL_DIRECTORIES.contains(&name)
                || CONTROL_FILES.contains(&name)
                || CONTROL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                || CONTROL_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        })
}

pub(super) fn folded_secret(folded: &str) -> bool {
    let mut names = folded.split('/');
    // At the root alone: `src/secrets/mod.rs` is a source file.
    (names.next() == Some("secrets") && names.next().is_some())
        || has_pair(folded, SECRET_PAIRS)
        || folded.split('/').any(|name| SECRET_DIRECTORIES.contains(&name) || secret_name(name))
}

fn secret_name(name: &str) -> bool {
    (name.starts_with(".env") && !ENV_TEMPLATES.contains(&name))
        || SECRET_FILES.contains(&name)
        || SECRET_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        || ssh_key(name)
}

fn ssh_key(name: &str) -> bool {
    SSH_KEYS.iter().any(|key| name.starts_with(key)) && !name.ends_with(".pub")
}

fn has_pair(folded: &str, pairs: &[(&str, &str)]) -> bool {
    let following = folded.split('/').skip(1);
    folded.split('/').zip(following).any(|pair| pairs.contains(&pair))
}
