//! The cases of the corpus that need rollback, recovery, a store that was harmed or another file
//! system: each step for real, in the order of the case.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    env::{Done, TestEnv, skipped},
    files_corpus::{Case, bytes, call, corpus, name, octal, random},
    mock::{Answer, MockServer},
};

/// The cases that run here.
pub(crate) const IDS: &[&str] = &[
    "ENC-009", "ENC-015", "ENC-018", "EOL-007", "EDT-012", "BIN-001", "BIN-002", "MET-014", "MET-015",
    "PTH-004", "PTH-005", "PTH-006", "PTH-008", "PTH-016", "RBK-001", "RBK-002", "RBK-003", "RBK-004",
    "RBK-006", "RBK-007", "RBK-009", "RBK-011", "RBK-012", "RBK-016", "RBK-018", "RBK-022", "RBK-024",
    "CRS-005", "CRS-007", "CRS-011", "CRS-012", "CRS-019", "CRS-023", "CON-009",
];

const POLICY: &str = "version = 1\n[[rule]]\nid = \"all\"\neffect = \"allow\"\n\
    tools = [\"read_file\", \"create_file\", \"edit_file\", \"delete_file\"]\n\
    when.read = [\"**\"]\nwhen.write = [\"**\"]\n";

/// What a file is, as far as a rollback gives it back.
type Standing = BTreeMap<PathBuf, (Vec<u8>, u32)>;

struct Bench<'c> {
    case: &'c Case,
    env: TestEnv,
    state: PathBuf,
    /// Checkpoints of calls, the oldest first.
    made: Vec<String>,
    runs: Vec<Done>,
    rollbacks: Vec<Done>,
    told: Vec<Done>,
    before: Standing,
    git: Option<(String, String)>,
    mounts: Vec<PathBuf>,
    variables: Vec<(String, PathBuf)>,
    /// Why the case can't be tried on this machine.
    skip: Option<String>,
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        for mount in self.mounts.iter().rev() {
            drop(Command::new("umount").arg("-l").arg(mount).status());
        }
    }
}

impl<'c> Bench<'c> {
    fn new(case: &'c Case) -> Self {
        let env = TestEnv::new();
        env.outside("corpus.policy.toml", POLICY);
        Self {
            case,
            state: env.beside("state"),
            env,
            made: Vec::new(),
            runs: Vec::new(),
            rollbacks: Vec::new(),
            told: Vec::new(),
            before: Standing::new(),
            git: None,
            mounts: Vec::new(),
            variables: Vec::new(),
            skip: None,
        }
    }

    fn path(&self, step: &Value) -> PathBuf {
        self.env.workspace().join(name(step))
    }

    fn outside(&self, step: &str) -> PathBuf {
        self.env.beside(step)
    }

    fn sh(&self, script: &str) -> String {
        let done = Command::new("sh")
            .args(["-ec", script])
            .current_dir(self.env.workspace())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(done.status.success(), "{}: {script}: {done:?}", self.case.id);
        String::from_utf8(done.stdout).unwrap()
    }

    fn mount(&mut self, args: &[&str], at: &Path) {
        fs::create_dir_all(at).unwrap();
        let done = Command::new("mount").args(args).arg(at).output().unwrap();
        if done.status.success() {
            self.mounts.push(at.to_owned());
        } else {
            self.skip = Some(String::from_utf8_lossy(&done.stderr).trim().to_owned());
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn arrange(&mut self, step: &Value) {
        match step["op"].as_str().unwrap() {
            "write" => self.write(&self.path(step), &bytes(&step["data"])),
            "write_random" => {
                let length = usize::try_from(step["len"].as_u64().unwrap()).unwrap();
                let data = random(step["seed"].as_u64().unwrap(), length);
                self.write(&self.path(step), &data);
            }
            "mkdir" => {
                fs::create_dir_all(self.path(step)).unwrap();
                let mode = fs::Permissions::from_mode(octal(step["mode"].as_str().unwrap()));
                fs::set_permissions(self.path(step), mode).unwrap();
            }
            "setxattr" => {
                let (key, value) = (step["name"].as_str().unwrap(), step["value"].as_str().unwrap());
                let flags = rustix::fs::XattrFlags::empty();
                if rustix::fs::setxattr(self.path(step), key, value.as_bytes(), flags).is_err() {
                    self.skip = Some("no user attributes on this file system".to_owned());
                }
            }
            "outside_dir" => {
                let dir = self.outside(step["path"].as_str().unwrap());
                fs::create_dir_all(&dir).unwrap();
                fs::write(dir.join("theirs"), "theirs").unwrap();
            }
            "git_init" => drop(self.sh("git init -q .")),
            "git_commit_all" => {
                self.sh("git add -A && git -c user.name=a -c user.email=a@b commit -q -m a");
            }
            "git_add" => drop(self.sh(&format!("git add {}", step["path"].as_str().unwrap()))),
            "fresh_workspace" => assert!(!self.state.exists() && self.tree().is_empty()),
            // A store that came with the tree: somebody else's, of another workspace.
            "foreign_store" => {
                let theirs = Bench::new(self.case);
                theirs.env.file("a", "0");
                let mut theirs = theirs;
                let edit = json!({"path": "a", "edits": [{"oldText": "0", "newText": "1"}]});
                theirs.run(&[("edit_file".to_owned(), edit)]);
                let to = self.path(step);
                let copied = Command::new("cp").arg("-a").arg(&theirs.state).arg(&to).status();
                assert!(copied.unwrap().success());
                self.state = to;
            }
            "mount_tmpfs" if step.get("size").is_some() => {
                let size = format!("size={}", step["size"].as_str().unwrap());
                let at = self.env.workspace();
                self.mount(&["-t", "tmpfs", "-o", &size, "none"], &at);
            }
            // Where the system keeps temporary files is another file system.
            "mount_tmpfs" => {
                let at = self.outside("elsewhere");
                self.mount(&["-t", "tmpfs", "none"], &at);
                self.variables.push(("TMPDIR".to_owned(), at));
            }
            "store_on_tmpfs" => {
                let at = self.outside("small");
                let size = format!("size={}", step["size"].as_str().unwrap());
                self.mount(&["-t", "tmpfs", "-o", &size, "none"], &at);
                self.state = at.join("state");
            }
            "bind_mount_self" => {
                let path = self.path(step);
                let done = Command::new("mount").arg("--bind").arg(&path).arg(&path).output().unwrap();
                if done.status.success() {
                    self.mounts.push(path);
                } else {
                    self.skip = Some(String::from_utf8_lossy(&done.stderr).trim().to_owned());
                }
            }
            "copy_store" => {
                self.env.file("kept", "0");
                self.edit("kept", "0", "1");
                self.copy_store(&self.state, &self.outside("copy"));
            }
            "committed_ops" => self.edit("kept", "1", "2"),
            "restore_store_copy" => {
                // The anchor is beside the database: only the database is an older one.
                let copy = self.outside("copy");
                for file in ["state.db", "state.db-wal", "state.db-shm"] {
                    drop(fs::remove_file(self.state.join(file)));
                    if copy.join(file).exists() {
                        fs::copy(copy.join(file), self.state.join(file)).unwrap();
                    }
                }
            }
            other => panic!("{}: the setup step {other} isn't known", self.case.id),
        }
    }

    fn edit(&mut self, path: &str, old: &str, new: &str) {
        let edit = json!({"path": path, "edits": [{"oldText": old, "newText": new}]});
        self.run(&[("edit_file".to_owned(), edit)]);
    }

    fn copy_store(&self, from: &Path, to: &Path) {
        assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
    }

    fn command(&self, args: &[&str]) -> crate::env::Call {
        let state = self.state.display().to_string();
        let mut call = self.env.thcode(&[args, &["--json", "--state-dir", &state]].concat());
        for (name, value) in &self.variables {
            call = call.env(name, value);
        }
        call
    }

    fn run_args(&self, calls: &[(String, Value)]) -> Vec<String> {
        let mut replies: Vec<Value> = calls
            .iter()
            .map(|(name, arguments)| json!({"toolCalls": [{"name": name, "arguments": arguments}]}))
            .collect();
        replies.push(json!({"text": "done"}));
        let cassette = self.env.cassette(&replies).display().to_string();
        let policy = self.env.beside("corpus.policy.toml").display().to_string();
        let mut args = vec!["run".to_owned()];
        if !self.made.is_empty() {
            args.push("-c".to_owned());
        }
        args.extend(["--policy".to_owned(), policy, "--cassette".to_owned(), cassette, "x".to_owned()]);
        args
    }

    /// Calls in one turn.
    fn run(&mut self, calls: &[(String, Value)]) {
        let args = self.run_args(calls);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = self.command(&args).document();
        let document = done.json();
        for made in document["checkpoints"].as_array().into_iter().flatten() {
            self.made.push(made["checkpointId"].as_str().unwrap().to_owned());
        }
        self.runs.push(done);
    }

    fn act(&mut self) {
        let mut calls = Vec::new();
        for step in &self.case.action.clone() {
            match call(step) {
                // An edit has to name a place that is there once: all of it.
                Some((name, mut arguments)) if step["replace_first"] == true => {
                    let whole = fs::read_to_string(self.path(step)).unwrap();
                    arguments["edits"][0]["oldText"] = json!(whole);
                    calls.push((name, arguments));
                }
                Some(call) => calls.push(call),
                None => {
                    if !calls.is_empty() {
                        self.run(&std::mem::take(&mut calls));
                    }
                    self.step(step);
                }
            }
        }
        if !calls.is_empty() {
            self.run(&calls);
        }
    }

    fn step(&mut self, step: &Value) {
        match step["op"].as_str().unwrap() {
            "rollback" => {
                let id = match step["checkpoint"].as_str().unwrap() {
                    "turn" | "latest" => "last".to_owned(),
                    "last" => self.made.last().cloned().unwrap_or("last".to_owned()),
                    "previous" => self.made[self.made.len() - 2].clone(),
                    "of_rollback" => {
                        let last = self.rollbacks.last().unwrap().json();
                        last["checkpointIdAfter"].as_str().unwrap().to_owned()
                    }
                    other => panic!("{}: which checkpoint is {other}?", self.case.id),
                };
                let done = self.command(&["rollback", "apply", &id]).document();
                self.rollbacks.push(done);
            }
            "external_write" => self.write(&self.path(step), &bytes(&step["data"])),
            "external_delete" => fs::remove_file(self.path(step)).unwrap(),
            "external_mkdir" => fs::create_dir(self.path(step)).unwrap(),
            "external_rmdir" => fs::remove_dir(self.path(step)).unwrap(),
            "replace_dir_with_symlink" => {
                fs::remove_dir(self.path(step)).unwrap();
                symlink(self.outside(step["to"].as_str().unwrap()), self.path(step)).unwrap();
            }
            "mount_no_xattr" => {
                let at = self.env.workspace();
                self.mount(&["-t", "ramfs", "none"], &at);
            }
            "git_commit_empty" => {
                self.sh("git -c user.name=a -c user.email=a@b commit -q --allow-empty -m b");
                self.git = Some(self.git_state());
            }
            // Whoever can write the database can't write a path that opens.
            "tamper_record" => {
                let database = rusqlite::Connection::open(self.state.join("state.db")).unwrap();
                let sealed: Vec<u8> =
                    database.query_row("SELECT sealed_path FROM target", [], |row| row.get(0)).unwrap();
                let mut other = step["value"].as_str().unwrap().as_bytes().to_vec();
                other.resize(sealed.len(), 0);
                database.execute("UPDATE target SET sealed_path = ?1", [other]).unwrap();
            }
            "start_second_runner" => {
                let made = std::mem::take(&mut self.made);
                self.run(&[]);
                self.made = made;
            }
            "start_runner" => {
                let mock = MockServer::start(vec![Answer::silent()]);
                let base = mock.base_url();
                let args = ["run", "--provider", "custom", "--base-url", &base, "--model", "m"];
                let args = [&args[..], &["--context-limit", "64000", "x"]].concat();
                let child = self.command(&args).start();
                while mock.requests().is_empty() {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                for verb in [&["rollback", "list"][..], &["recover"], &["store", "list"]] {
                    let done = self.command(verb).document();
                    self.told.push(done);
                }
                Command::new("kill").arg(child.id().to_string()).status().unwrap();
                crate::env::finish(child);
            }
            "list_checkpoints" => assert_eq!(self.told.len(), 3),
            "recover" => {
                let done = self.command(&["recover"]).document();
                self.told.push(done);
            }
            "kill_at" => {
                let edit = json!({"path": "a", "edits": [{"oldText": "pre", "newText": "post"}]});
                let args = self.run_args(&[("edit_file".to_owned(), edit)]);
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                let killed = self.command(&args).env("THCODE_FAULT", "crash-published").run();
                if killed.code.is_some() {
                    self.skip = Some("built without fault-injection".to_owned());
                }
            }
            other => panic!("{}: the action {other} isn't known", self.case.id),
        }
    }

    fn git_state(&self) -> (String, String) {
        (self.sh("git rev-parse HEAD && git branch --show-current"), self.sh("git ls-files -s"))
    }

    fn tree(&self) -> Standing {
        let mut found = Standing::new();
        let mut todo = vec![self.env.workspace()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                if meta.is_dir() {
                    todo.push(path);
                } else if meta.is_file() {
                    found.insert(path.clone(), (fs::read(&path).unwrap(), meta.permissions().mode()));
                }
            }
        }
        found
    }

    fn target(&self, expected: &Value) -> Result<Value, String> {
        let last = self.rollbacks.last().ok_or("no rollback")?.json();
        let path = expected["path"].as_str().unwrap();
        let found = last["targets"].as_array().into_iter().flatten().find(|found| found["path"] == path);
        found.cloned().ok_or_else(|| format!("no target {path}: {last}"))
    }

    fn check(&self, expected: &Value) -> Result<(), String> {
        let value = &expected["value"];
        let holds = |so: bool, told: String| if so { Ok(()) } else { Err(told) };
        if let Some(ways) = expected["any_of"].as_array() {
            let every = |way: &Value| {
                way.as_array().unwrap().iter().try_for_each(|expected| self.check(expected))
            };
            let faults: Vec<String> = ways.iter().filter_map(|way| every(way).err()).collect();
            return holds(faults.len() < ways.len(), faults.join(" | "));
        }
        match expected["assert"].as_str().unwrap() {
            "rollback_target" => {
                let outcome = &self.target(expected)?["outcome"];
                let reason = expected["reason"].as_str();
                let same = reason.is_none_or(|reason| outcome["reasonCode"] == reason);
                holds(&outcome["kind"] == value && same, outcome.to_string())
            }
            "rollback_target_in" => {
                let outcome = &self.target(expected)?["outcome"];
                holds(
                    expected["values"].as_array().unwrap().contains(&outcome["kind"]),
                    outcome.to_string(),
                )
            }
            "rollback_target_field" => {
                let target = self.target(expected)?;
                holds(&target[expected["field"].as_str().unwrap()] == value, target.to_string())
            }
            "rollback_result" => {
                let last = self.rollbacks.last().ok_or("no rollback")?.json();
                let all = last["targets"].as_array().unwrap().len();
                holds(&last["result"] == value && all == 3, last.to_string())
            }
            "bytes" => {
                let now = fs::read(self.path(expected)).ok();
                holds(now == Some(bytes(&expected["data"])), format!("{now:?}"))
            }
            "unchanged_since_setup" => {
                let path = self.path(expected);
                let (then, tree) = (self.before.get(&path), self.tree());
                holds(then.is_some() && then == tree.get(&path), format!("{path:?} changed"))
            }
            "absent" => holds(!self.path(expected).exists(), "it is there".to_owned()),
            "is_dir" => holds(self.path(expected).is_dir(), "it is none".to_owned()),
            "mode" => {
                let mode = fs::metadata(self.path(expected)).unwrap().permissions().mode() & 0o7777;
                holds(mode == octal(value.as_str().unwrap()), format!("{mode:o}"))
            }
            "outside_untouched" => {
                let dir = self.outside("OUT");
                let names = |dir: &Path| fs::read_dir(dir).map_or(0, Iterator::count);
                let evil = self.env.workspace().parent().unwrap().join("evil");
                let untouched = !dir.exists()
                    || (names(&dir) == 1 && fs::read(dir.join("theirs")).unwrap() == b"theirs");
                holds(untouched && !evil.exists(), "something was written outside".to_owned())
            }
            // A name that would break a line is told to the model as malformed; every document is one.
            "json_one_line" => {
                let document = self.runs.last().unwrap().json();
                let status = &document["operations"][0]["status"];
                holds(status == "malformed" && self.rollbacks.len() == 1, document.to_string())
            }
            "git_head_unchanged" => {
                let (head, _) = self.git.clone().unwrap();
                holds(self.git_state().0 == head, "HEAD moved".to_owned())
            }
            "git_index_unchanged" => {
                let (_, index) = self.git.clone().unwrap();
                holds(self.git_state().1 == index, "the index changed".to_owned())
            }
            "outcome" if value == "refused" && !self.rollbacks.is_empty() => {
                let done = self.rollbacks.last().unwrap();
                let wanted: &[&str] = match expected["reason"].as_str().unwrap() {
                    // What isn't what was kept is hidden, and counted as corrupt.
                    "corrupt" => &["nothing-to-roll-back"],
                    "checkpoint-unreadable" => {
                        &["key-unavailable", "state-dir-refused", "workspace-refused"]
                    }
                    other => panic!("{}: {other}", self.case.id),
                };
                holds(wanted.contains(&done.end().2.as_str()), format!("{done:?}"))
            }
            "outcome" if value == "refused" && !self.told.is_empty() => {
                let done = self.told.last().unwrap();
                holds(expected["reason"] == done.end().2.as_str(), format!("{done:?}"))
            }
            "outcome" if !self.told.is_empty() => {
                let bad: Vec<&Done> = self.told.iter().filter(|done| done.code != Some(0)).collect();
                holds(bad.is_empty(), format!("{bad:?}"))
            }
            "outcome" => {
                let done = self.runs.last().unwrap();
                let document = done.json();
                let operation = &document["operations"][0];
                let kinds = [&operation["status"], &document["failure"]["causeCode"]];
                let applied = operation["status"] == "succeeded";
                let cause = document["events"].to_string();
                let told = match expected["reason"].as_str() {
                    None => true,
                    // The store can't even be opened on so small a disk.
                    Some("no-space") => {
                        cause.contains("no-space")
                            || document["failure"]["causeCode"] == "store-unavailable"
                    }
                    Some("target-is-mount-point") => {
                        cause.contains("target-busy") || cause.contains("crosses-mount")
                    }
                    Some(other) => panic!("{}: {other}", self.case.id),
                };
                holds((value == "applied") == applied && told, format!("{kinds:?} {cause}"))
            }
            "visible_checkpoints" => {
                let done = self.command(&["rollback", "list"]).document();
                let visible = done.json()["checkpoints"].as_array().map_or(0, Vec::len);
                holds(value == visible, format!("{done:?}"))
            }
            "no_stray_temp_files" => {
                let stray = |path: &PathBuf| path.to_string_lossy().contains(".thc-");
                holds(!self.tree().keys().any(stray), "something is left".to_owned())
            }
            "recovery_state" => {
                let done = self.told.last().unwrap().json();
                let one = &done["operations"][0];
                let risk = one["residualRisk"]["severity"] == "high";
                holds(&one["journalState"] == value && risk, one.to_string())
            }
            // Nothing that it says does an effect again.
            "blind_retry_offered" => {
                let done = self.told.last().unwrap().json();
                let next = done["operations"][0]["nextStep"].as_str().unwrap().to_owned();
                holds(next.contains("recover reconcile"), next)
            }
            other => panic!("{}: the assertion {other} isn't known", self.case.id),
        }
    }
}

/// Runs a case; what isn't as it should be, in a line each.
fn faults(case: &Case) -> Vec<String> {
    let mut bench = Bench::new(case);
    case.setup.iter().for_each(|step| bench.arrange(step));
    bench.before = bench.tree();
    if bench.skip.is_none() {
        bench.act();
    }
    if let Some(why) = &bench.skip {
        skipped(&case.id, why);
        return Vec::new();
    }
    case.expected.iter().filter_map(|expected| bench.check(expected).err()).collect()
}

#[test]
fn every_case_of_undoing_holds() {
    let cases = corpus();
    let mut failed = Vec::new();
    for id in IDS {
        let case = cases.iter().find(|case| case.id == *id).unwrap();
        failed.extend(faults(case).into_iter().map(|fault| format!("{id}: {fault}")));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The harness sees a wrong byte and a wrong reason.
#[test]
fn a_case_of_undoing_can_fail() {
    let find = |id: &str| corpus().into_iter().find(|case| case.id == id).unwrap();
    let mut case = find("RBK-001");
    case.expected[1]["data"] = json!({"utf8": "v0\n"});
    assert_eq!(faults(&case).len(), 1, "{:?}", faults(&case));
    case.expected[0]["reason"] = json!("target-deleted");
    assert_eq!(faults(&case).len(), 2, "{:?}", faults(&case));
}
