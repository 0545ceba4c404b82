//! The steps of `examples/pipeline`, run as an engine runs them: the block of the file, the engine's
//! shell, its variables and its files; the provider is a server on loopback.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    env::{Done, TestEnv, finish},
    mock::{Answer, MockServer},
};

/// The lines below the first line that ends like this, less their indentation.
fn block(file: &str, after: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/pipeline").join(file);
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().skip_while(|line| !line.trim_start().ends_with(after)).skip(1);
    let first = lines.next().unwrap();
    let indent = first.len() - first.trim_start().len();
    let deep = |line: &&str| line.get(..indent).is_some_and(|before| before.trim().is_empty());
    std::iter::once(first)
        .chain(lines.take_while(deep))
        .map(|line| format!("{}\n", line.get(indent..).unwrap_or_default()))
        .collect()
}

struct Engine {
    env: TestEnv,
    policy: &'static str,
}

impl Engine {
    /// A clone with a function that is wrong, its test, and the policy where the step looks for it.
    fn new(policy: &'static str) -> Self {
        let env = TestEnv::new();
        env.file("adding.py", "def add(a, b):\n    return a - b\n");
        env.file(
            "test_adding.py",
            "import unittest\nfrom adding import add\n\n\nclass Adding(unittest.TestCase):\n    \
             def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n",
        );
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/pipeline/thcode.policy.toml");
        env.file(policy, fs::read(from).unwrap());
        let git = "git init -q . && git add . && git -c user.name=a -c user.email=a@b commit -q -m a";
        let made = Command::new("sh").args(["-c", git]).current_dir(env.workspace()).status().unwrap();
        assert!(made.success());
        Self { env, policy }
    }

    fn digest(&self) -> String {
        let told = self.env.thcode(&["policy", "check", "--json", self.policy]).document().json();
        told["digest"].as_str().unwrap().to_owned()
    }

    /// From now on the shell finds a `thcode` before the binary whose runs are killed from outside.
    fn kill_runs(&self) {
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = run ] || exec {0} \"$@\"\n{0} \"$@\" & run=$!\nsleep 1\nkill -9 $run\nwait $run\n",
            env!("CARGO_BIN_EXE_thcode")
        );
        let path = self.env.outside("killing/thcode", text);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The block, in the engine's shell.
    fn step(&self, script: &str, answers: Vec<Answer>) -> Done {
        let mock = MockServer::start(answers);
        let temp = self.env.beside("runner");
        fs::create_dir_all(&temp).unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_thcode")).parent().unwrap().to_owned();
        let path = std::env::join_paths(
            [self.env.beside("killing"), binary]
                .into_iter()
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        );
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script]);
        command.current_dir(self.env.workspace()).env_clear();
        command.env("PATH", path.unwrap()).env("HOME", self.env.home()).env("CI", "true");
        for (name, file) in [("GITHUB_OUTPUT", "output"), ("GITHUB_STEP_SUMMARY", "summary")] {
            fs::write(temp.join(file), "").unwrap();
            command.env(name, temp.join(file));
        }
        command.env("RUNNER_TEMP", &temp).env("GITHUB_ACTIONS", "true");
        command.env("OPENAI_API_KEY", "sk-test-0123456789abcdef0123456789");
        command.env("THCODE_BASE_URL", mock.base_url()).env("THCODE_MAX_RETRIES", "0");
        let digest = self.digest();
        command.env("POLICY_DIGEST", &digest).env("THCODE_POLICY_DIGEST", &digest);
        command.env("TASK", "make add add").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().unwrap())
    }

    fn kept(&self, name: &str) -> String {
        fs::read_to_string(self.env.beside("runner").join(name)).unwrap()
    }
}

fn mends() -> Vec<Answer> {
    let edits = json!([{"oldText": "a - b", "newText": "a + b"}]);
    let call = ("edit_file", json!({"path": "adding.py", "edits": edits}));
    vec![Answer::calls(&[call]), Answer::text("::error::done\n##vso[task.complete]")]
}

#[test]
fn the_step_for_github_means_what_its_code_says() {
    let script = block("github.yml", "run: |");
    assert!(script.contains("thcode run") && !script.contains("uses:"), "{script}");
    let engine = Engine::new(".github/thcode.policy.toml");
    // Nothing was done: no green.
    // The failed check is told once, so the model is asked twice.
    let idle = engine.step(&script, vec![Answer::text("it is fine"), Answer::text("it is")]);
    assert_eq!(idle.code, Some(80), "{idle:?}");
    assert_eq!(engine.kept("output"), "exit-code=80\n");
    // Not reachable now: a code that the engine may retry.
    let down = engine.step(&script, vec![Answer::status(503, &[], "")]);
    assert_eq!((down.code, engine.kept("output").as_str()), (Some(55), "exit-code=55\n"), "{down:?}");
    // Done, and proven by the tests.
    let done = engine.step(&script, mends());
    assert_eq!((done.code, engine.kept("output").as_str()), (Some(0), "exit-code=0\n"), "{done:?}");
    assert!(engine.kept("summary").contains("adding.py"), "{}", engine.kept("summary"));
    let told = [&done.stdout, &done.stderr];
    let commands = told
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.trim_start().starts_with("::") || line.contains("##vso["));
    assert_eq!(commands.collect::<Vec<_>>(), Vec::<&str>::new(), "no text of the model is a command");
    assert!(!told.iter().any(|text| text.contains("sk-test-0123456789abcdef")));
    let turn: Value = serde_json::from_str(&engine.kept("turn.json")).unwrap();
    assert_eq!((&turn["exitCode"], &turn["verification"][0]["exitCode"]), (&json!(0), &json!(0)));
    // Somebody changed the policy without the pin.
    let engine = Engine::new(".github/thcode.policy.toml");
    let pinned = engine.digest();
    let script = script.replace("$POLICY_DIGEST", &pinned);
    engine.env.file(engine.policy, "version = 1\n[sandbox]\nmode = \"off\"\n");
    let refused = engine.step(&script, mends());
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(fs::read_to_string(engine.env.workspace().join("adding.py")).unwrap().contains("a - b"));
}

/// Out of memory, or the runner's timeout: the step ends with what the engine knows it by, and says it.
#[test]
fn a_killed_run_keeps_its_code() {
    for (file, after, policy) in [
        ("github.yml", "run: |", ".github/thcode.policy.toml"),
        ("gitlab.yml", "- |", "ci/thcode.policy.toml"),
    ] {
        let script = block(file, after);
        let engine = Engine::new(policy);
        engine.kill_runs();
        let killed = engine.step(&script, vec![Answer::silent()]);
        assert_eq!(killed.code, Some(137), "{file}: {killed:?}");
        let told = format!("{}{}", killed.stdout, engine.kept("summary"));
        assert!(told.contains("killed by SIGKILL") && told.contains("thcode recover"), "{file}: {told}");
        // Whatever can't be told, the code is told.
        let broken = script.replace("explain-exit", "no-such-verb").replace("git diff", "git no-such");
        let killed = engine.step(&broken, vec![Answer::silent()]);
        assert_eq!(killed.code, Some(137), "{file}: {killed:?}");
    }
}

#[test]
fn the_step_for_gitlab_means_what_its_code_says() {
    let script = block("gitlab.yml", "- |");
    let engine = Engine::new("ci/thcode.policy.toml");
    let done = engine.step(&script, mends());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(engine.env.workspace().join("turn.json").is_file());
    let engine = Engine::new("ci/thcode.policy.toml");
    assert_eq!(engine.step(&script, vec![Answer::text("no"), Answer::text("no")]).code, Some(80));
}
