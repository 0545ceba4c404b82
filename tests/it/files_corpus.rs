//! Faults that other agents had with files, each as a case: the tree is arranged for real, the calls
//! go through the real binary, and what stands afterwards is compared byte for byte. What this
//! version can't do yet is listed below, so that none is left out silently.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    os::unix::{
        ffi::OsStringExt as _,
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use thcode::{
    host::Host,
    journal::Log,
    store::{KeySource, Lease, StatePlace, Store},
    workspace::Root,
};

use crate::{
    env::{Call, Done, TestEnv, finish},
    mock::{Answer, MockServer},
    undo_corpus,
};

/// What needs evidence or reports.
const PENDING: &str = "SEC-003 SEC-004 SEC-006 SEC-008";

/// Cases that a test of its own tries, over more places than one: the case, its file, its function.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("CRS-001", include_str!("kills.rs"), "a_change_killed_at_any_system_call_is_settled"),
    ("CRS-003", include_str!("kills.rs"), "settling_killed_at_any_system_call_comes_to_the_same"),
    (
        "CRS-013",
        include_str!("power.rs"),
        "a_power_cut_at_any_step_leaves_whole_files_and_a_journal_that_tells",
    ),
    ("CRS-016", include_str!("sweep.rs"), "no_flipped_byte_of_the_log_is_served"),
    ("CRS-017", include_str!("sweep.rs"), "no_flipped_byte_of_the_database_is_served"),
    ("CRS-021", include_str!("gc.rs"), "a_full_store_is_freed_without_more_room"),
];

/// How a document is asked for.
const FORMS: [&[&str]; 3] = [&["--json"], &["--output-format", "stream-json"], &[]];

/// Cases whose reason can only be found after the dispatch: failed then, with nothing changed.
const FOUND_LATE: &[&str] = &["CON-002"];

/// A reason of the corpus, as the journal says it.
fn cause_of(reason: &str) -> &str {
    match reason {
        "old-text-not-found" => "no-match",
        "empty-old-text" => "edit-empty",
        "read-only" => "read-only-file",
        // A name that can't be asked for: what a model would write for it isn't there.
        "path-not-utf8" => "not-found",
        // The store itself is refused, and says so before any call.
        "checkpoint-unavailable" => "store-unavailable",
        same => same,
    }
}

const POLICY: &str = "version = 1\n[[rule]]\nid = \"all\"\neffect = \"allow\"\n\
    tools = [\"read_file\", \"create_file\", \"edit_file\", \"delete_file\"]\n\
    when.read = [\"**\"]\nwhen.write = [\"**\"]\n\
    [[rule]]\nid = \"rm\"\neffect = \"allow\"\ntools = [\"run_command\"]\nwhen.command = \"rm a\"\n\
    [sandbox]\nmode = \"off\"\n";

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) setup: Vec<Value>,
    pub(crate) action: Vec<Value>,
    pub(crate) expected: Vec<Value>,
}

pub(crate) fn corpus() -> Vec<Case> {
    let list = |value: &Value, key: &str| value[key].as_array().unwrap().clone();
    include_str!("../cases/files/bug_corpus.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|value| Case {
            id: value["id"].as_str().unwrap().to_owned(),
            setup: list(&value, "setup"),
            action: list(&value, "action"),
            expected: list(&value, "expected"),
        })
        .collect()
}

fn pending() -> BTreeSet<String> {
    PENDING.split_whitespace().map(str::to_owned).collect()
}

/// Runs a case; what isn't as it should be, in a line each.
fn faults(case: &Case) -> Vec<String> {
    let mut bench = Bench::new(case);
    case.setup.iter().for_each(|step| bench.arrange(step));
    bench.before = bench.tree();
    bench.act(&case.action);
    let mut faults: Vec<String> =
        case.expected.iter().filter_map(|expected| bench.check(expected).err()).collect();
    faults.extend(bench.refusals_left_nothing().err());
    // A command line that the binary doesn't know proves nothing.
    let unknown = bench.runs.iter().filter(|done| done.code == Some(2)).count();
    faults.extend((unknown > 0 || bench.runs.is_empty()).then(|| format!("{unknown} usage errors")));
    faults.extend(bench.check(&json!({"assert": "no_stray_temp_files"})).err());
    faults
}

#[test]
fn every_case_runs_or_is_pending() {
    let pending = pending();
    let cases = corpus();
    let ids: BTreeSet<String> = cases.iter().map(|case| case.id.clone()).collect();
    assert_eq!(ids.len(), cases.len(), "an id stands twice");
    let unknown: Vec<_> = pending.difference(&ids).collect();
    assert!(unknown.is_empty(), "pending, but no case: {unknown:?}");
    let mut failed = Vec::new();
    let elsewhere: BTreeSet<&str> = ELSEWHERE
        .iter()
        .map(|(id, file, test)| {
            assert!(file.contains(&format!("#[test]\nfn {test}()")), "{id}: there is no test {test}");
            *id
        })
        .chain(undo_corpus::IDS.iter().copied())
        .collect();
    let mut run = elsewhere.len();
    let here = |case: &&Case| !pending.contains(&case.id) && !elsewhere.contains(case.id.as_str());
    for case in cases.iter().filter(here) {
        run += 1;
        if case.id == "CON-002" && Command::new("strace").arg("-V").output().is_err() {
            eprintln!("SKIPPED CON-002: there is no strace");
            continue;
        }
        for fault in faults(case) {
            failed.push(format!("{}: {fault}", case.id));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!((run, pending.len(), cases.len()), (RUN, ALL - RUN, ALL));
}

const ALL: usize = 88;
const RUN: usize = 84;

/// The harness sees a wrong byte, a wrong outcome, a wrong reason and a wrong word.
#[test]
fn a_case_can_fail() {
    let find = |id: &str| corpus().into_iter().find(|case| case.id == id).unwrap();
    let mut case = find("ENC-001");
    case.expected[1]["data"] = json!({"utf8": "const x = 2;\n"});
    assert_eq!(faults(&case).len(), 1, "{:?}", faults(&case));
    case.expected[0]["value"] = json!("refused");
    assert_eq!(faults(&case).len(), 2, "{:?}", faults(&case));
    let mut case = find("BIN-003");
    case.expected[0]["reason"] = json!("stale-read");
    assert_eq!(faults(&case).len(), 1, "{:?}", faults(&case));
    case.expected = vec![json!({"assert": "nonesuch"})];
    let unknown = std::panic::catch_unwind(|| faults(&case));
    assert!(unknown.is_err(), "an unknown assertion is no success");
}

/// What a file is besides its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Standing {
    bytes: Vec<u8>,
    mode: u32,
    inode: u64,
    mtime: (i64, i64),
}

impl Standing {
    fn of(path: &Path) -> Option<Self> {
        let meta = fs::symlink_metadata(path).ok()?;
        let bytes = if meta.is_file() { fs::read(path).unwrap() } else { Vec::new() };
        let mtime = (meta.mtime(), meta.mtime_nsec());
        Some(Self { bytes, mode: meta.mode(), inode: meta.ino(), mtime })
    }
}

/// How a call ended.
#[derive(Debug, Clone)]
struct Outcome {
    word: &'static str,
    cause: String,
    dispatched: bool,
    told: String,
}

struct Bench<'c> {
    case: &'c Case,
    env: TestEnv,
    policy: String,
    variables: Vec<(String, String)>,
    before: BTreeMap<PathBuf, Standing>,
    /// By the index of the action.
    outcomes: BTreeMap<usize, Outcome>,
    write_lock: Option<Duration>,
    runs: Vec<Done>,
    took: Duration,
    running: usize,
}

impl<'c> Bench<'c> {
    fn new(case: &'c Case) -> Self {
        Self {
            case,
            env: TestEnv::new(),
            policy: POLICY.to_owned(),
            variables: Vec::new(),
            before: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            write_lock: None,
            runs: Vec::new(),
            took: Duration::ZERO,
            running: 0,
        }
    }

    fn state(&self) -> PathBuf {
        self.env.beside("state")
    }

    fn path(&self, step: &Value) -> PathBuf {
        self.env.workspace().join(name(step))
    }

    /// An absolute path of the corpus, beside the workspace: cases must not meet there.
    fn absolute(&self, path: &str) -> PathBuf {
        self.env.beside("absolute").join(path.trim_start_matches('/'))
    }

    fn arrange(&mut self, step: &Value) {
        let path = || self.path(step);
        match step["op"].as_str().unwrap() {
            "write" => self.write(&path(), &bytes(&step["data"]), step),
            "write_random" => {
                let length = usize::try_from(step["len"].as_u64().unwrap()).unwrap();
                self.write(&path(), &random(step["seed"].as_u64().unwrap(), length), step);
            }
            "symlink" => {
                let to = step["to"].as_str().unwrap();
                let to = if to.starts_with('/') { self.absolute(to) } else { to.into() };
                symlink(to, path()).unwrap();
            }
            "hardlink" => {
                let to = self.env.workspace().join(step["to"].as_str().unwrap());
                fs::hard_link(to, path()).unwrap();
            }
            "deep_dir" => {
                let mut dir = fs::File::open(self.env.workspace()).unwrap();
                for _ in 0..step["components"].as_u64().unwrap() {
                    let name = deep_name(step);
                    rustix::fs::mkdirat(&dir, &name, 0o755.into()).unwrap();
                    let flags = rustix::fs::OFlags::DIRECTORY;
                    dir = rustix::fs::openat(&dir, &name, flags, 0.into()).unwrap().into();
                }
            }
            "config" => {
                let cap = step["store_cap_bytes"].as_u64().unwrap();
                self.policy.push_str(&format!("[checkpoint]\nstore_cap_bytes = {cap}\n"));
            }
            // Root can write everywhere, so something stands where the log would be.
            "store_readonly" => {
                self.run_once();
                fs::create_dir(self.state().join("state.db-wal")).unwrap();
            }
            "hold_write_lock" => {
                self.run_once();
                self.write_lock = Some(Duration::from_millis(step["ms"].as_u64().unwrap()));
                // The case names a file that it doesn't make.
                self.write(&self.env.workspace().join("a"), b"0", step);
            }
            "env" => {
                let text = |key: &str| step[key].as_str().unwrap().to_owned();
                self.variables.push((text("name"), text("value")));
            }
            other => panic!("{}: the setup step {other} isn't known", self.case.id),
        }
    }

    fn write(&self, path: &Path, bytes: &[u8], step: &Value) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        if let Some(mode) = step["mode"].as_str() {
            fs::set_permissions(path, fs::Permissions::from_mode(octal(mode))).unwrap();
        }
    }

    /// A run, so that there is a store.
    fn run_once(&self) {
        let done = self.replay(&[json!({"text": "x"})]).document();
        assert_eq!(done.code, Some(0), "{done:?}");
    }

    fn command(&self, more: &[&str]) -> Call {
        let policy = self.env.outside("corpus.policy.toml", &self.policy).display().to_string();
        let state = self.state().display().to_string();
        let args = ["run", "--policy", &policy, "--state-dir", &state];
        let mut call = self.env.thcode(&[&args[..], more, &["the task"]].concat());
        for (name, value) in &self.variables {
            call = call.env(name, value);
        }
        call
    }

    fn replay(&self, replies: &[Value]) -> Call {
        let cassette = self.env.cassette(replies).display().to_string();
        self.command(&["--json", "--cassette", &cassette])
    }

    fn ask(&self, mock: &MockServer, form: &[&str]) -> Call {
        let base = mock.base_url();
        let provider = ["--provider", "custom", "--base-url", &base, "--model", "m"];
        self.command(&[form, &provider, &["--context-limit", "64000"]].concat())
    }

    fn act(&mut self, action: &[Value]) {
        let ops: Vec<&str> = action.iter().map(|step| step["op"].as_str().unwrap()).collect();
        let calls: Vec<Option<(String, Value)>> = action.iter().map(call).collect();
        let begun = Instant::now();
        match ops.as_slice() {
            ["pause_at", "external_write", "resume", _] => self.act_paused(&action[1], &calls[3]),
            ["start_two_runners"] => self.start_two_runners(),
            ["run_turn_then_signal"] => self.signalled(action[0]["signal"].as_str().unwrap()),
            ["run_stdout_dev_full"] => {
                let mut call = self.replay(&[json!({"text": "x"})]);
                call.command.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
                self.runs.push(call.run());
            }
            ["provider_error"] => {
                for form in FORMS {
                    let text = action[0]["text"].as_str().unwrap();
                    let mock = MockServer::start(vec![Answer::status(401, &[], text)]);
                    let key = self.variables[0].0.clone();
                    let form = [form, &["--api-key-env", &key, "-v"]].concat();
                    self.runs.push(self.ask(&mock, &form).run());
                }
            }
            ["model_text"] => {
                let text = String::from_utf8(bytes(&action[0]["data"])).unwrap();
                let cassette = self.env.cassette(&[json!({"text": text})]).display().to_string();
                for form in FORMS {
                    let done = self.command(&[&["--cassette", &cassette], form].concat()).run();
                    self.runs.push(done);
                }
            }
            _ if calls.iter().all(Option::is_some) && action.iter().all(of_one_session) => {
                self.act_through(&calls);
            }
            _ => self.act_interleaved(action, &calls),
        }
        self.took = begun.elapsed();
    }

    /// Calls alone: one run.
    fn act_through(&mut self, calls: &[Option<(String, Value)>]) {
        let mut replies: Vec<Value> = calls
            .iter()
            .flatten()
            .map(|(name, arguments)| json!({"toolCalls": [{"name": name, "arguments": arguments}]}))
            .collect();
        replies.push(json!({"text": "done"}));
        let locked = self.write_lock.map(|length| {
            let connection = Connection::open(self.state().join("state.db")).unwrap();
            connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            thread::spawn(move || {
                thread::sleep(length);
                connection.execute_batch("ROLLBACK").unwrap();
            })
        });
        let done = self.replay(&replies).document();
        if let Some(locked) = locked {
            locked.join().unwrap();
        }
        self.ended(done, &(0..calls.len()).collect::<Vec<_>>());
    }

    /// Calls with somebody else's doings between them. Two sessions can't hold one workspace, so
    /// that what the first session does is somebody else's doing to the last one.
    fn act_interleaved(&mut self, action: &[Value], calls: &[Option<(String, Value)>]) {
        let session = action.last().unwrap()["session"].clone();
        let ours = |at: &usize| calls[*at].is_some() && action[*at]["session"] == session;
        let indices: Vec<usize> = (0..action.len()).filter(ours).collect();
        let gates: Vec<_> = indices.iter().map(|_| Arc::new(AtomicBool::new(false))).collect();
        let answers = indices.iter().zip(&gates).map(|(at, gate)| {
            let (name, arguments) = calls[*at].clone().unwrap();
            Answer::calls(&[(&name, arguments)]).held(gate)
        });
        let mock = MockServer::start(answers.chain([Answer::text("done")]).collect());
        let child = self.ask(&mock, &["--json"]).start();
        let mut asked = 0;
        for (at, step) in action.iter().enumerate() {
            if let Some(gate) = indices.iter().position(|index| *index == at) {
                gates[gate].store(true, Ordering::SeqCst);
                asked += 1;
            }
            // What was released is done once the next request is there.
            let begun = Instant::now();
            while mock.requests().len() <= asked {
                assert!(begun.elapsed() < Duration::from_secs(30), "{}: no request", self.case.id);
                thread::sleep(Duration::from_millis(5));
            }
            if !indices.contains(&at) {
                self.somebody_else(step);
            }
        }
        let done = finish(child);
        done.check_document();
        self.ended(done, &indices);
    }

    fn somebody_else(&mut self, step: &Value) {
        let path = self.path(step);
        match step["op"].as_str().unwrap() {
            "read_file" => {}
            "external_write" => {
                let mtime = fs::metadata(&path).unwrap().modified().unwrap();
                fs::write(&path, bytes(&step["data"])).unwrap();
                if step["preserve_mtime"] == true {
                    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                    file.set_modified(mtime).unwrap();
                }
            }
            "edit_file" => {
                let now = String::from_utf8(fs::read(&path).unwrap()).unwrap();
                let [old, new] = ["old", "new"].map(|key| String::from_utf8(bytes(&step[key])).unwrap());
                fs::write(&path, now.replacen(&old, &new, 1)).unwrap();
            }
            other => panic!("{}: the action {other} isn't known", self.case.id),
        }
        self.before = self.tree();
    }

    /// Somebody saves when everything is ready and the exchange is about to be made.
    fn act_paused(&mut self, save: &Value, call: &Option<(String, Value)>) {
        let (name, arguments) = call.clone().unwrap();
        let replies =
            [json!({"toolCalls": [{"name": name, "arguments": arguments}]}), json!({"text": "done"})];
        let plain = self.replay(&replies).command;
        let mut command = Command::new("strace");
        command.args(["-f", "-o"]).arg(self.env.beside("trace")).args([
            "-e",
            "trace=renameat2",
            "-e",
            "inject=renameat2:delay_enter=2000000:when=1",
        ]);
        command.arg(plain.get_program()).args(plain.get_args()).current_dir(self.env.workspace());
        command.env_clear().env("HOME", self.env.home()).env("PATH", std::env::var_os("PATH").unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let begun = Instant::now();
        while self.stray().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{}: no temp file", self.case.id);
            thread::sleep(Duration::from_millis(5));
        }
        // The temporary file is written and synced long before the delay is over.
        thread::sleep(Duration::from_millis(700));
        self.somebody_else(save);
        self.before.retain(|path, _| !is_temp(path));
        let done = finish(child);
        done.check_document();
        self.ended(done, &[3]);
    }

    fn start_two_runners(&mut self) {
        let mock = MockServer::start(vec![Answer::silent()]);
        let child = self.ask(&mock, &["--json"]).start();
        while mock.requests().is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        let second = self.replay(&[json!({"text": "x"})]).document();
        self.running = usize::from(fs::metadata(format!("/proc/{}", child.id())).is_ok())
            + usize::from(second.code == Some(0));
        Command::new("kill").arg(child.id().to_string()).status().unwrap();
        self.runs.push(finish(child));
        self.runs.push(second);
    }

    fn signalled(&mut self, signal: &str) {
        let mock = MockServer::start(vec![Answer::silent()]);
        let child = self.ask(&mock, &["--json"]).start();
        while mock.requests().is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        self.runs.push(finish(child));
    }

    /// Reads how each call of a run ended.
    fn ended(&mut self, done: Done, indices: &[usize]) {
        let document = done.json();
        let operations = document["operations"].as_array().unwrap();
        // A store that can't be written refuses the run, and with it every call.
        let unusable = document["failure"]["causeCode"] == "store-unavailable";
        if operations.is_empty() && unusable && document["exitClass"] == "BLOCKED" {
            let told = document["failure"]["message"].to_string();
            let cause = "store-unavailable".to_owned();
            let refused = Outcome { word: "refused", cause, dispatched: false, told };
            self.outcomes.extend(indices.iter().map(|at| (*at, refused.clone())));
        }
        for (operation, at) in operations.iter().zip(indices) {
            let id = operation["operationId"].as_str().unwrap();
            let events = document["events"].as_array().unwrap();
            let told = events.iter().find(|event| {
                event["operationId"] == operation["operationId"] && event["output"].is_string()
            });
            let told = told.map_or("", |event| event["output"].as_str().unwrap()).to_owned();
            let word = match operation["status"].as_str().unwrap() {
                "succeeded" => "applied",
                "failed" | "blocked" | "malformed" => "refused",
                _ => "unknown",
            };
            let kinds = self.journal(id);
            let end = kinds.iter().find(|(kind, _)| {
                matches!(
                    kind.as_str(),
                    "OperationBlocked" | "OperationFailed" | "OperationUnknownOutcome"
                )
            });
            let cause = match end.and_then(|(_, payload)| payload["cause"].as_str()).unwrap_or("-") {
                // The policy's own word for why.
                "denied" => operation["decision"]["cause"].as_str().unwrap_or("denied"),
                cause => cause,
            };
            let cause = cause.to_owned();
            let dispatched = kinds.iter().any(|(kind, _)| kind == "EffectDispatchCommitted");
            self.outcomes.insert(*at, Outcome { word, cause, dispatched, told });
        }
        self.runs.push(done);
    }

    /// The journal's events of an operation.
    fn journal(&self, operation: &str) -> Vec<(String, Value)> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection = Connection::open_with_flags(self.state().join("state.db"), flags).unwrap();
        let sql = "SELECT kind, payload FROM journal WHERE lower(hex(operation_id)) = ?1 ORDER BY seq";
        let mut rows = connection.prepare(sql).unwrap();
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, String>(1)?));
        rows.query_map([operation.replace('-', "")], row)
            .unwrap()
            .map(Result::unwrap)
            .map(|(kind, payload)| (kind, serde_json::from_str(&payload).unwrap()))
            .collect()
    }

    fn tree(&self) -> BTreeMap<PathBuf, Standing> {
        let mut found = BTreeMap::new();
        let mut todo = vec![self.env.workspace()];
        while let Some(dir) = todo.pop() {
            // A tree too deep for a path is walked as far as a path goes.
            let Ok(entries) = fs::read_dir(dir) else { continue };
            for entry in entries {
                let path = entry.unwrap().path();
                let Some(standing) = Standing::of(&path) else { continue };
                if path.is_dir() && !path.is_symlink() {
                    todo.push(path);
                } else {
                    found.insert(path, standing);
                }
            }
        }
        found
    }

    fn stray(&self) -> Vec<PathBuf> {
        self.tree().into_keys().filter(|path| is_temp(path)).collect()
    }

    /// Refused means: not one byte changed, and nothing dispatched.
    fn refusals_left_nothing(&self) -> Result<(), String> {
        let refused = |outcome: &&Outcome| outcome.word == "refused";
        for outcome in self.outcomes.values().filter(refused) {
            let late = FOUND_LATE.contains(&self.case.id.as_str());
            holds(outcome.dispatched == late, || format!("dispatched: {outcome:?}"))?;
        }
        let changing = |at: &usize| self.case.action[*at]["op"] != "read_file";
        let calls: Vec<_> = self.outcomes.iter().filter(|(at, _)| changing(at)).collect();
        if calls.iter().any(|(_, outcome)| outcome.word != "refused") {
            return Ok(());
        }
        let mut now = self.tree();
        if FOUND_LATE.contains(&self.case.id.as_str()) {
            // Exchanged and back: the same file, so only the time of its directory entry moved.
            now.retain(|path, _| self.before.contains_key(path));
        }
        holds(now == self.before, || "a refusal changed the tree".to_owned())
    }

    fn outcome(&self, at: Option<usize>) -> Result<&Outcome, String> {
        let found = match at {
            Some(at) => self.outcomes.get(&at),
            None => self.outcomes.values().next_back(),
        };
        found.ok_or_else(|| format!("no outcome: {:?}", self.runs))
    }

    fn journal_is_intact(&self) -> Result<(), String> {
        let host = Host::real();
        let root = Root::open(&self.env.workspace(), None).unwrap();
        let place = StatePlace { dir: self.state(), key: self.env.beside("state.key") };
        let patience = Duration::from_secs(5);
        let lease = Lease::take(&host, root.path(), &place, patience).map_err(|e| e.to_string())?;
        let key = KeySource::Beside(place.key.clone());
        let store = Store::open(&host, &place, root.path(), &key, lease).map_err(|e| e.to_string())?;
        let log = Log::open(&store).map_err(|e| e.to_string())?;
        let open = thcode::journal::interrupted(&store).map_err(|e| e.to_string())?;
        holds(log.head().seq > 0 && open == 0, || format!("{open:?}"))
    }

    fn check(&self, expected: &Value) -> Result<(), String> {
        if let Some(ways) = expected["any_of"].as_array() {
            let every = |way: &Value| {
                way.as_array().unwrap().iter().try_for_each(|expected| self.check(expected))
            };
            let faults: Vec<String> = ways.iter().filter_map(|way| every(way).err()).collect();
            return holds(faults.len() < ways.len(), || format!("none of: {}", faults.join(" | ")));
        }
        let value = &expected["value"];
        let last = || self.runs.last().ok_or("no run");
        match expected["assert"].as_str().unwrap() {
            "outcome" | "outcome_of" => {
                let at = expected["index"].as_u64().map(|at| usize::try_from(at).unwrap());
                let outcome = self.outcome(at)?;
                let reason = expected["reason"].as_str().map(cause_of);
                holds(
                    value == outcome.word && reason.is_none_or(|reason| reason == outcome.cause),
                    || format!("it should be {value} {reason:?}: {outcome:?}"),
                )
            }
            "outcome_in" => {
                let outcome = self.outcome(None)?;
                let words = expected["values"].as_array().unwrap();
                holds(words.contains(&json!(outcome.word)), || format!("{outcome:?}"))
            }
            "bytes" => {
                let now = fs::read(self.path(expected)).ok();
                let short =
                    |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
                holds(now == Some(bytes(&expected["data"])), || {
                    format!("wrong bytes in {:?}: {:?}", name(expected), now.as_deref().map(short))
                })
            }
            "unchanged_since_setup" => {
                let path = self.path(expected);
                let (then, now) = (self.before.get(&path), Standing::of(&path));
                holds(now.is_some() && now.as_ref() == then, || format!("{path:?} changed"))
            }
            "all_unchanged" => holds(self.tree() == self.before, || "the tree changed".to_owned()),
            "match_count" => {
                let told = &self.outcome(None)?.told;
                holds(told.contains(&format!(": {value} place")), || told.clone())
            }
            "suffix" => {
                let now = fs::read(self.path(expected)).unwrap();
                holds(now.ends_with(&bytes(&expected["data"])), || "another suffix".to_owned())
            }
            "size" => {
                let now = fs::metadata(self.path(expected)).unwrap().len();
                holds(value == now, || format!("{now} bytes"))
            }
            // The word is about a release; what isn't optimised gets ten times as long.
            "elapsed_lt_ms" => {
                let most = value.as_u64().unwrap() * if cfg!(debug_assertions) { 10 } else { 1 };
                holds(self.took < Duration::from_millis(most), || format!("it took {:?}", self.took))
            }
            "exists" => holds(self.path(expected).exists(), || "it is gone".to_owned()),
            "absent" => holds(!self.path(expected).exists(), || "it is there".to_owned()),
            "absent_abs" => {
                let path = self.absolute(expected["path"].as_str().unwrap());
                holds(fs::symlink_metadata(path).is_err(), || "it is there".to_owned())
            }
            "is_symlink" => {
                let to = fs::read_link(self.path(expected)).map_err(|error| error.to_string())?;
                holds(expected["to"] == to.to_str().unwrap(), || format!("it leads to {to:?}"))
            }
            "mode" => {
                let mode = fs::metadata(self.path(expected)).unwrap().mode() & 0o7777;
                holds(mode == octal(value.as_str().unwrap()), || format!("its mode is {mode:o}"))
            }
            "same_inode" => {
                let inodes: BTreeSet<u64> = expected["paths"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|path| self.env.workspace().join(path.as_str().unwrap()))
                    .map(|path| fs::metadata(path).unwrap().ino())
                    .collect();
                holds(inodes.len() == 1, || "they are several files now".to_owned())
            }
            "store_bytes_le" => {
                let files = fs::read_dir(self.state()).unwrap().map(|entry| entry.unwrap().metadata());
                let sum: u64 = files.map(|meta| meta.unwrap().len()).sum();
                holds(sum <= value.as_u64().unwrap(), || format!("{sum} bytes"))
            }
            "no_stray_temp_files" => {
                let stray = self.stray();
                holds(stray.is_empty(), || format!("left behind: {stray:?}"))
            }
            "excluded_effect" => {
                let document = last()?.json();
                let effects = &document["excludedEffects"][expected["kind"].as_str().unwrap()];
                let told = effects.as_array().is_some_and(|effects| effects.len() == 1);
                let gone = !self.env.workspace().join("a").exists();
                holds(told && gone, || format!("{effects}, gone: {gone}"))
            }
            "checkpoint_count" => {
                let document = last()?.json();
                let made = document["checkpoints"].as_array().map_or(0, Vec::len);
                holds(value == made, || format!("{made} checkpoints"))
            }
            "journal_intact" => self.journal_is_intact(),
            // A panic is 70, a signal no code at all.
            "no_panic" => {
                let calm = |done: &Done| done.code.is_some_and(|code| code != 70);
                let done = last()?;
                holds(calm(done) && !done.stderr.contains("panicked"), || format!("{done:?}"))
            }
            "exactly_one_running" => holds(self.running == 1, || format!("{} run", self.running)),
            "second_exit_class" => {
                let (class, _, cause) = last()?.end();
                let end = (class.as_str(), cause.as_str());
                holds(end == (value.as_str().unwrap(), "workspace-in-use"), || format!("{end:?}"))
            }
            "exit_code" => {
                let done = last()?;
                let wanted = value.as_i64();
                holds(done.code.map(i64::from) == wanted, || format!("{done:?}"))
            }
            // The document can't be written: the code is what is left, and stderr tells why.
            "exit_class" => {
                let done = last()?;
                let class = thcode::contract::ExitClass::ALL
                    .iter()
                    .find(|class| value == class.token())
                    .unwrap();
                let cause = expected["cause"].as_str().unwrap();
                holds(done.code == Some(i32::from(class.code())) && done.stderr.contains(cause), || {
                    format!("{done:?}")
                })
            }
            "stdout_valid_json" => {
                last()?.check_document();
                Ok(())
            }
            "no_children_left" => {
                let home = format!("HOME={}", self.env.home().display());
                let ours = |entry: &fs::DirEntry| {
                    let variables = fs::read(entry.path().join("environ")).unwrap_or_default();
                    variables.split(|byte| *byte == 0).any(|variable| variable == home.as_bytes())
                };
                let left = fs::read_dir("/proc").unwrap().filter(|entry| ours(entry.as_ref().unwrap()));
                let left = left.count();
                holds(left == 0, || format!("{left} processes are left"))
            }
            "all_outputs_free_of" => {
                let secret = value.as_str().unwrap();
                let told = |done: &&Done| done.stdout.contains(secret) || done.stderr.contains(secret);
                let leaky: Vec<&Done> = self.runs.iter().filter(told).collect();
                let asked = self.runs.iter().filter(|done| done.code == Some(50)).count();
                holds(leaky.is_empty() && asked == 3, || format!("{asked} asked: {leaky:?}"))
            }
            "no_line_starts_with" => {
                let starts: Vec<&str> =
                    expected["values"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
                // A runner looks for the number signs anywhere, and past the space before colons.
                let obeyed = |line: &&str| {
                    let (anywhere, first): (Vec<&str>, Vec<&str>) =
                        starts.iter().partition(|start| start.starts_with("##"));
                    anywhere.iter().any(|start| line.contains(start))
                        || first.iter().any(|start| line.trim_start().starts_with(start))
                };
                let bad: Vec<&str> = self
                    .runs
                    .iter()
                    .flat_map(|done| done.stdout.lines().chain(done.stderr.lines()))
                    .filter(obeyed)
                    .collect();
                let told = self.runs.iter().all(|done| done.stdout.contains("set-env"));
                holds(bad.is_empty() && told && self.runs.len() == 3, || format!("{bad:?}"))
            }
            other => panic!("{}: the assertion {other} isn't known", self.case.id),
        }
    }
}

fn of_one_session(step: &Value) -> bool {
    step.get("session").is_none()
}

fn holds(so: bool, else_say: impl FnOnce() -> String) -> Result<(), String> {
    if so { Ok(()) } else { Err(else_say()) }
}

fn is_temp(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".thc-"))
}

pub(crate) fn octal(mode: &str) -> u32 {
    u32::from_str_radix(mode, 8).unwrap()
}

pub(crate) fn name(step: &Value) -> OsString {
    match (&step["path"], &step["path_hex"]) {
        (Value::String(path), _) => path.into(),
        (_, Value::String(path)) => OsString::from_vec(hex(path)),
        _ => panic!("no path: {step}"),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |digit: u8| u8::try_from(char::from(digit).to_digit(16).unwrap()).unwrap();
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

pub(crate) fn bytes(data: &Value) -> Vec<u8> {
    let (key, value) = data.as_object().unwrap().iter().next().unwrap();
    match key.as_str() {
        "utf8" => value.as_str().unwrap().as_bytes().to_vec(),
        "hex" => hex(value.as_str().unwrap()),
        "rep" => {
            hex(value[0].as_str().unwrap()).repeat(usize::try_from(value[1].as_u64().unwrap()).unwrap())
        }
        "concat" => value.as_array().unwrap().iter().flat_map(bytes).collect(),
        other => panic!("bytes given by {other}"),
    }
}

pub(crate) fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

fn deep_name(step: &Value) -> String {
    "d".repeat(usize::try_from(step["name_len"].as_u64().unwrap()).unwrap())
}

/// A step as a call, where it is one. A name that JSON can't carry is asked for as a model sees it.
pub(crate) fn call(step: &Value) -> Option<(String, Value)> {
    let text = |key: &str| String::from_utf8(bytes(&step[key])).unwrap();
    let path = || name(step).to_string_lossy().into_owned();
    let op = step["op"].as_str().unwrap();
    let arguments = match op {
        "read_file" | "delete_file" => json!({"path": path()}),
        "create_file" => json!({"path": path(), "content": text("data")}),
        "create_file_in_deep" => {
            let path = vec!["d".repeat(120); 40].join("/") + "/f";
            return Some(("create_file".to_owned(), json!({"path": path, "content": text("data")})));
        }
        "edit_file" => {
            let mut edit = json!({"oldText": text("old"), "newText": text("new")});
            if let Some(count) = step.get("expected_count") {
                edit["expectedCount"] = count.clone();
            }
            json!({"path": path(), "edits": [edit]})
        }
        "shell" => {
            let argv = thcode::policy::command::words(step["cmd"].as_str().unwrap()).unwrap();
            return Some(("run_command".to_owned(), json!({"argv": argv})));
        }
        _ => return None,
    };
    Some((op.to_owned(), arguments))
}
