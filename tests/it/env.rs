//! A place to run the real binary in: its own workspace, home and environment, and a watchdog.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use serde_json::Value;
use thcode::contract::{registry, validate::violations};

/// Nothing here takes this long; what does hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct TestEnv {
    dir: tempfile::TempDir,
}

impl TestEnv {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["ws", "home", "out"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    /// A path beside the workspace.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join("out").join(name)
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().join("ws")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Writes a file of the workspace, with its directories.
    pub(crate) fn file(&self, path: &str, text: impl AsRef<[u8]>) -> PathBuf {
        write(self.workspace().join(path), text.as_ref())
    }

    /// Writes a file beside the workspace.
    pub(crate) fn outside(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        write(self.beside(name), text.as_ref())
    }

    /// A cassette beside the workspace, from its lines after the header.
    pub(crate) fn cassette(&self, replies: &[Value]) -> PathBuf {
        let mut text =
            "{\"cassette\": \"thcode.cassette/v1\", \"description\": \"a test\"}\n".to_owned();
        for reply in replies {
            text.push_str(&reply.to_string());
            text.push('\n');
        }
        self.outside("test.cassette.jsonl", text)
    }

    /// The binary, in the workspace, with an environment of its own.
    pub(crate) fn thcode(&self, args: &[&str]) -> Call {
        let mut command = binary();
        command
            .args(args)
            .current_dir(self.workspace())
            .env_clear()
            .env("HOME", self.home())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Call { command, stdin: None }
    }

    /// A run that asks the model at this address.
    pub(crate) fn asking(&self, base_url: &str, more: &[&str]) -> Call {
        let model = ["run", "--provider", "custom", "--base-url", base_url, "--model", "m"];
        self.thcode(&[&model[..], &["--context-limit", "128000"], more].concat())
    }

    /// Every file of the workspace with its bytes, to see that nothing changed.
    pub(crate) fn tree(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut todo = vec![self.workspace()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                if meta.is_dir() {
                    todo.push(path);
                } else if meta.is_file() {
                    let bytes = fs::read(&path).unwrap();
                    found.push((path, bytes));
                }
            }
        }
        found.sort();
        found
    }
}

fn write(path: PathBuf, bytes: &[u8]) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

pub(crate) struct Call {
    pub(crate) command: Command,
    stdin: Option<Vec<u8>>,
}

impl Call {
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.command.stdin(Stdio::piped());
        self.stdin = Some(bytes.as_ref().to_vec());
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// The same call, made by another program that is given it as its last arguments.
    pub(crate) fn inside(self, program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args).arg(self.command.get_program()).args(self.command.get_args()).env_clear();
        command.envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(self.command.get_current_dir().unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { command, stdin: None }
    }

    pub(crate) fn start(&mut self) -> Child {
        self.command.spawn().unwrap()
    }

    /// Runs to the end; a run that doesn't end is a failed test.
    pub(crate) fn run(mut self) -> Done {
        let mut child = self.command.spawn().unwrap();
        if let Some(bytes) = self.stdin.take() {
            let mut stdin = child.stdin.take().unwrap();
            // A process that refuses early closes its end: that is its right.
            std::thread::spawn(move || drop(stdin.write_all(&bytes)));
        }
        finish(child)
    }

    /// Runs a call whose document goes to standard output, which must be one valid document.
    pub(crate) fn document(self) -> Done {
        let done = self.run();
        done.check_document();
        done
    }
}

/// The binary, which heeds SIGHUP even where the tests run under `nohup`.
fn binary() -> Command {
    let path = env!("CARGO_BIN_EXE_thcode");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    if u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 0 {
        return Command::new(path);
    }
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", path]);
    command
}

/// Waits for a child under the watchdog.
pub(crate) fn finish(mut child: Child) -> Done {
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    let pid = child.id();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait().unwrap()));
    let status = told.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        drop(Command::new("kill").args(["-9", &pid.to_string()]).status());
        panic!("the process hangs");
    });
    let text = |from: Option<std::thread::JoinHandle<Vec<u8>>>| {
        String::from_utf8(from.map(|from| from.join().unwrap()).unwrap_or_default()).unwrap()
    };
    Done { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

fn collect(mut from: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    /// The document of `--json`.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Standard output is one document that follows its schema and agrees with the exit code.
    pub(crate) fn check_document(&self) {
        check(&self.json(), self.code);
    }

    /// Class, stop reason (or null) and cause (or null), for a short comparison.
    pub(crate) fn end(&self) -> (String, String, String) {
        let document = self.json();
        let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        (
            word(&document["exitClass"]),
            word(&document["stopReason"]),
            word(&document["failure"]["causeCode"]),
        )
    }
}

/// A document follows the schema that it names, and tells the code that the process had.
pub(crate) fn check(document: &Value, code: Option<i32>) {
    let schema = document["schema"].as_str().unwrap();
    let name = schema.strip_prefix("thcode.").and_then(|rest| rest.strip_suffix("/v1")).unwrap();
    let published = registry::find(name).unwrap();
    assert_eq!(violations(published, document).unwrap(), [], "{document:#}");
    assert_eq!(document["exitCode"].as_i64(), code.map(i64::from), "{document:#}");
}

/// Says that something can't be tried here, where it is seen also if the test passes: what the macros
/// print is kept back then.
pub(crate) fn skipped(what: &str, why: &str) {
    std::io::stderr().write_all(format!("SKIPPED {what}: {why}\n").as_bytes()).unwrap();
}

/// Replaces what differs from run to run: ids, times, lengths of time, directories.
pub(crate) fn stable(text: &str, env: &TestEnv) -> String {
    let mut text = text.replace(env.dir.path().to_str().unwrap(), "<dir>");
    for (pattern, with) in [
        ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>"),
        ("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z", "<time>"),
        ("(\"[a-zA-Z]*Ms\": )[0-9]+", "${1}<ms>"),
        ("sha256:[0-9a-f]{64}", "<digest>"),
    ] {
        text = regex::Regex::new(pattern).unwrap().replace_all(&text, with).into_owned();
    }
    text
}
