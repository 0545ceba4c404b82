//! The power cut: a run stops at each of its steps, the device that its files lie on is copied as it is
//! at that moment, and the copy is mounted and judged.
//!
//! What a file system holds back isn't on the device, so that the copy has what a machine has that
//! lost its power there. Takes root (loop devices, a mount namespace for each copy); where that can't
//! be had the tests say so. The small part runs with every test of `fault-injection`, the whole by name
//! (CONTRIBUTING.md).

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::{Value, json};
use thcode::host::CrashPoint;

use crate::env::{TestEnv, skipped};

/// A file's state, before or after a step.
type Content = Option<String>;

/// One call, and the file that it changes.
struct Step {
    call: Value,
    path: &'static str,
    before: Content,
    after: Content,
}

/// Over a block of any file system.
fn content(at: usize) -> String {
    format!("v{at:06} ").repeat(1100)
}

/// Rounds of create, edit and delete; every second round in a directory that is there.
fn steps(rounds: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..rounds {
        let path = ["made/here.txt", "made/there.txt", "top.txt"][round % 3];
        let (one, two) = (content(round * 2), content(round * 2 + 1));
        let edits = json!([{"oldText": one, "newText": two}]);
        for (name, arguments, before, after) in [
            ("create_file", json!({"path": path, "content": one}), None, Some(one.clone())),
            ("edit_file", json!({"path": path, "edits": edits}), Some(one.clone()), Some(two.clone())),
            ("delete_file", json!({"path": path}), Some(two.clone()), None),
        ] {
            let call = json!({"name": name, "arguments": arguments});
            steps.push(Step { call, path, before, after });
        }
    }
    steps
}

/// A file system of the test's own on a loop device.
struct Disk {
    env: TestEnv,
    kind: &'static str,
}

fn sh(script: &str) -> Result<(), String> {
    let done = Command::new("sh").args(["-ec", script]).output().unwrap();
    let told = || format!("{script}: {}", String::from_utf8_lossy(&done.stderr));
    if done.status.success() { Ok(()) } else { Err(told()) }
}

impl Disk {
    fn new(kind: &'static str) -> Result<Self, String> {
        let env = TestEnv::new();
        // Nothing is written by the file system's own clock, and nothing is helped along by it.
        let (make, options) = match kind {
            "ext4" => ("truncate -s 32M IMG; mkfs.ext4 -q IMG", "loop,noauto_da_alloc,commit=300"),
            "xfs" => ("truncate -s 320M IMG; mkfs.xfs -q IMG", "loop"),
            other => panic!("{other}"),
        };
        let disk = Self { env, kind };
        fs::create_dir(disk.mount()).unwrap();
        let image = disk.image("disk").display().to_string();
        sh(&make.replace("IMG", &image))?;
        let mount = disk.mount().display().to_string();
        sh(&format!(
            "mount -o {options} {image} {mount}; mkdir {mount}/ws {mount}/home; sync -f {mount}"
        ))?;
        Ok(disk)
    }

    fn mount(&self) -> PathBuf {
        self.env.beside("mount")
    }

    fn image(&self, name: &str) -> PathBuf {
        self.env.beside(&format!("{name}.img"))
    }

    /// The binary, in the workspace on the disk.
    fn run(&self, args: &[&str], faults: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thcode"));
        command.args(args).current_dir(self.mount().join("ws")).env_clear();
        command.env("HOME", self.mount().join("home")).env("THCODE_FAULT", faults);
        command.stdin(Stdio::null());
        command
    }

    /// Copies the device as it is, and looks at the copy where the disk itself is mounted.
    fn cut(&self) -> Found {
        let (image, copy) = (self.image("disk"), self.image("copy"));
        let (mount, out) = (self.mount(), self.env.beside("found"));
        drop(fs::remove_dir_all(&out));
        fs::create_dir(&out).unwrap();
        let cassette = self.env.outside(
            "look.cassette.jsonl",
            "{\"cassette\": \"thcode.cassette/v1\", \"description\": \"a test\"}\n{\"text\": \"x\"}\n",
        );
        // Of two mounts of one xfs the second has another identity.
        let (options, settling) =
            if self.kind == "xfs" { ("loop,nouuid", "--workspace-is") } else { ("loop", "") };
        let script = format!(
            "cp --sparse=always {image} {copy}; mount -o {options} {copy} {mount}; cd {mount}/ws; \
             cp -a . {out}/ws; if [ -d ../home/.local ]; then cp -a ../home/.local/state/thcode/. {out}/state; fi; \
             export HOME={mount}/home; unset THCODE_FAULT; set +e; \
             {binary} store list --json > {out}/list; echo $? > {out}/list.code; \
             {binary} run --json --cassette {cassette} --on-interrupted require-clean x > {out}/run; echo $? > {out}/run.code; \
             {binary} recover reconcile --all {settling} --json > {out}/settle; echo $? > {out}/settle.code; \
             cp -a . {out}/settled; \
             {binary} recover reconcile --all {settling} --json > {out}/again; echo $? > {out}/again.code; \
             {binary} store verify --json > {out}/verify; echo $? > {out}/verify.code; \
             {binary} run --json --cassette {cassette} x > {out}/on; echo $? > {out}/on.code",
            image = image.display(),
            copy = copy.display(),
            mount = mount.display(),
            out = out.display(),
            cassette = cassette.display(),
            binary = env!("CARGO_BIN_EXE_thcode"),
        );
        let told = Command::new("unshare").args(["-m", "sh", "-ec", &script]).output().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let document = |name: &str| -> Value {
            let text = fs::read_to_string(out.join(name)).unwrap();
            serde_json::from_str(&text).unwrap_or(Value::Null)
        };
        let code = |name: &str| -> i32 {
            let text = fs::read_to_string(out.join(format!("{name}.code"))).unwrap();
            text.trim().parse().unwrap()
        };
        Found {
            files: files(&out.join("ws")),
            settled: files(&out.join("settled")),
            known: settling.is_empty(),
            journal: Journal::read(&out.join("state")),
            list: (code("list"), document("list")),
            run: (code("run"), document("run")),
            settle: (code("settle"), document("settle")),
            again: (code("again"), document("again")),
            verified: (code("verify"), document("verify")),
            on: (code("on"), document("on")),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(sh(&format!("umount -l {}", self.mount().display())));
    }
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// What a copied store says, as far as a reader without any of our code can tell.
#[derive(Debug, Default)]
struct Journal {
    dispatched: usize,
    open: usize,
    temps: Vec<String>,
}

impl Journal {
    fn read(state: &Path) -> Self {
        let dirs = fs::read_dir(state).into_iter().flatten();
        let database =
            dirs.map(|entry| entry.unwrap().path().join("state.db")).find(|file| file.exists());
        let Some(database) = database else { return Self::default() };
        let connection = rusqlite::Connection::open(database).unwrap();
        let count = |sql: &str| -> usize {
            let found: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap_or(0);
            usize::try_from(found).unwrap()
        };
        let kinds = "SELECT count(*) FROM journal WHERE kind";
        let ended = "IN ('OperationSucceeded', 'OperationFailed', 'OperationUnknownOutcome')";
        let temps = connection.prepare("SELECT temp FROM inflight").map(|mut rows| {
            let names = rows.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
            names.map(|name| String::from_utf8(name.unwrap()).unwrap()).collect()
        });
        Self {
            dispatched: count(&format!("{kinds} = 'EffectDispatchCommitted'")),
            open: count(&format!("{kinds} = 'OperationProposed'")) - count(&format!("{kinds} {ended}")),
            temps: temps.unwrap_or_default(),
        }
    }
}

/// What stands on a copy.
#[derive(Debug)]
struct Found {
    files: BTreeMap<String, Vec<u8>>,
    /// The files after what stood was settled.
    settled: BTreeMap<String, Vec<u8>>,
    /// Whether the copy's root has the identity of the disk's.
    known: bool,
    journal: Journal,
    list: (i32, Value),
    run: (i32, Value),
    settle: (i32, Value),
    again: (i32, Value),
    verified: (i32, Value),
    on: (i32, Value),
}

/// Where the run was when its power was cut.
#[derive(Debug, Clone, Copy)]
struct Moment {
    /// Calls that were reported as done.
    reported: usize,
    /// The call in progress; as many as there are once all are done.
    at: usize,
    point: Option<CrashPoint>,
}

/// Everything that is wrong with what was found.
fn faults(steps: &[Step], moment: Moment, found: &Found) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut wanted: BTreeMap<&str, Vec<&Content>> = BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        if at < moment.at {
            wanted.insert(step.path, vec![&step.after]);
        } else if at == moment.at {
            wanted.insert(step.path, vec![&step.before, &step.after]);
        }
    }
    for (path, states) in &wanted {
        for (files, when) in [(&found.files, "is"), (&found.settled, "is, once settled,")] {
            let now = files.get(*path).map(Vec::as_slice);
            if !states.iter().any(|state| state.as_ref().map(String::as_bytes) == now) {
                let bytes = now.map(<[u8]>::len);
                wrong.push(format!("{path} {when} none of {} states: {bytes:?} bytes", states.len()));
            }
        }
    }
    for name in found.settled.keys().filter(|name| !wanted.contains_key(name.as_str())) {
        wrong.push(format!("{name} is left when everything is settled"));
    }
    if let Some(step) = steps.get(moment.at) {
        let now = found.files.get(step.path).map(Vec::as_slice);
        let applied = now == step.after.as_ref().map(String::as_bytes);
        if applied && found.journal.dispatched <= moment.at {
            wrong.push("applied, and no dispatch is journaled".to_owned());
        }
    }
    if found.journal.dispatched < moment.reported {
        let dispatched = found.journal.dispatched;
        wrong.push(format!("{} were reported, {dispatched} are journaled", moment.reported));
    }
    for name in found.files.keys().filter(|name| !wanted.contains_key(name.as_str())) {
        let name = name.rsplit('/').next().unwrap();
        if !found.journal.temps.iter().any(|temp| temp == name) {
            wrong.push(format!("{name} is known to nobody"));
        }
    }
    // Where the root has another identity and nothing else in it proves what it is, a person is asked.
    let next: &[i32] = match (found.journal.open, found.known) {
        (0, _) => &[0],
        (_, true) => &[60],
        (_, false) => &[60, 70],
    };
    let told = |(code, document): &(i32, Value)| format!("{code}: {}", document["failure"]["message"]);
    if !next.contains(&found.run.0) {
        wrong.push(format!(
            "{} are open, and the next run ends {}",
            found.journal.open,
            told(&found.run)
        ));
    }
    for (what, end) in [
        ("listing the store", &found.list),
        ("settling", &found.settle),
        ("settling again", &found.again),
        ("verifying the store", &found.verified),
        ("the run after that", &found.on),
    ] {
        if end.0 != 0 {
            wrong.push(format!("{what} ends {}", told(end)));
        }
    }
    let stores = found.list.1["stores"].as_array().cloned().unwrap_or_default();
    let unmade = moment.point.is_some_and(|point| MADE.contains(&point));
    for store in stores.iter().filter(|store| !unmade || store["failure"].is_null()) {
        if store["openOperations"].as_u64() != Some(found.journal.open as u64) {
            wrong.push(format!("{} are open, and the list tells {store}", found.journal.open));
        }
    }
    wrong
}

/// What came of a run whose power was cut at every step.
#[derive(Debug, Default)]
struct Tally {
    images: usize,
    bad: usize,
    /// The first few of them.
    told: Vec<String>,
    /// How each step left things: point, and whether the file was pre, post or gone on.
    seen: BTreeMap<String, usize>,
}

const MADE: [CrashPoint; 3] =
    [CrashPoint::AnchorMade, CrashPoint::DatabaseMade, CrashPoint::DatabaseNamed];
const ENDED: [CrashPoint; 3] = [CrashPoint::RunEnded, CrashPoint::EndAnchored, CrashPoint::Tidied];

/// A run that ends with the test, wherever it has stopped.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        // One that has ended, as it should have, was waited for already.
        drop((self.0.kill(), self.0.wait()));
    }
}

/// The points that a run visits, with the call that it is at, in order.
fn visits(calls: usize) -> Vec<(usize, CrashPoint)> {
    let others = [&MADE[..], &ENDED, &CrashPoint::OF_THE_STORE].concat();
    let of_a_call = CrashPoint::ALL.iter().filter(|point| !others.contains(point));
    let each = (0..calls).flat_map(|at| of_a_call.clone().map(move |point| (at, *point)));
    let (first, last) = (MADE.map(|point| (0, point)), ENDED.map(|point| (calls, point)));
    first.into_iter().chain(each).chain(last).collect()
}

/// Cuts the power at every step of a run.
fn cut_everywhere(kind: &'static str, rounds: usize, fault: Option<&str>) -> Result<Tally, String> {
    let disk = Disk::new(kind)?;
    let steps = steps(rounds);
    let calls: Vec<Value> = steps.iter().map(|step| step.call.clone()).collect();
    let cassette = disk.env.cassette(&[json!({"toolCalls": calls}), json!({"text": "done"})]);
    let policy = "version = 1\n[[rule]]\nid = \"write\"\neffect = \"allow\"\n\
        tools = [\"create_file\", \"edit_file\", \"delete_file\"]\nwhen.write = [\"**\"]\n";
    let policy = disk.env.outside("write.policy.toml", policy);
    let (policy, cassette) = (policy.to_str().unwrap(), cassette.to_str().unwrap());
    let args =
        ["run", "--output-format", "stream-json", "--policy", policy, "--cassette", cassette, "x"];
    let faults_asked = format!("stop,{}", fault.unwrap_or_default());
    let mut run = Run(disk.run(&args, &faults_asked).stdout(Stdio::piped()).spawn().unwrap());
    let reported = reported(&mut run.0);
    let mut tally = Tally::default();
    let pid = Pid::from_child(&run.0);
    for (at, point) in visits(steps.len()) {
        assert!(stopped(pid), "{kind}: the run ended before {}", point.name());
        // A line that was written before the stop may still be on its way here.
        thread::sleep(Duration::from_millis(5));
        let moment = Moment { reported: *reported.lock().unwrap(), at, point: Some(point) };
        judge(&disk, &steps, moment, &mut tally);
        kill_process(pid, Signal::CONT).unwrap();
    }
    assert!(!stopped(pid), "every visit is known");
    let moment = Moment { reported: steps.len(), at: steps.len(), point: None };
    judge(&disk, &steps, moment, &mut tally);
    println!(
        "{kind} {}: {} images, {} bad {:#?}\n{:#?}",
        fault.unwrap_or("as it is"),
        tally.images,
        tally.bad,
        tally.told,
        tally.seen
    );
    Ok(tally)
}

fn judge(disk: &Disk, steps: &[Step], moment: Moment, tally: &mut Tally) {
    let found = disk.cut();
    let wrong = faults(steps, moment, &found);
    tally.images += 1;
    let state = match steps.get(moment.at) {
        None => "all done",
        Some(step) => {
            let now = found.files.get(step.path).map(Vec::as_slice);
            let is = |state: &Content| state.as_ref().map(String::as_bytes) == now;
            if is(&step.before) {
                "before"
            } else if is(&step.after) {
                "after"
            } else {
                "NEITHER"
            }
        }
    };
    let point = moment.point.map_or("the end", CrashPoint::name);
    let call = steps.get(moment.at).map_or("", |step| step.call["name"].as_str().unwrap());
    *tally.seen.entry(format!("{call} {point}: {state}, then {}", found.run.0)).or_default() += 1;
    if !wrong.is_empty() {
        tally.bad += 1;
        if tally.told.len() < 5 {
            tally.told.push(format!("{moment:?}: {wrong:?}"));
        }
    }
}

/// Counts the calls that the run's stream reports as done, as they come.
fn reported(child: &mut Child) -> Arc<Mutex<usize>> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let count = Arc::new(Mutex::new(0));
    let counting = Arc::clone(&count);
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let event: Value = serde_json::from_str(&line).unwrap();
            if event["type"] == "tool-result" {
                assert_eq!(event["ok"], true, "{event}");
                *counting.lock().unwrap() += 1;
            }
        }
    });
    count
}

/// Waits until the process stops, which is true, or ends.
pub(crate) fn stopped(pid: Pid) -> bool {
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped() || status.exit_status() == Some(0), "{status:?}");
    status.stopped()
}

fn or_skip(what: &str, tally: Result<Tally, String>) -> Option<Tally> {
    tally.inspect_err(|why| skipped(what, why)).ok()
}

#[test]
fn a_power_cut_at_any_step_leaves_whole_files_and_a_journal_that_tells() {
    let Some(tally) = or_skip("the power cut", cut_everywhere("ext4", 1, None)) else { return };
    assert_eq!((tally.images, tally.bad), (43, 0), "{tally:#?}");
}

/// What the four syncs are for: each of these leaves images that the judge finds bad.
#[test]
fn without_a_sync_a_power_cut_is_found() {
    for fault in ["no-temp-sync", "no-dir-sync", "anchor-first"] {
        let Some(tally) = or_skip(fault, cut_everywhere("ext4", 1, Some(fault))) else { return };
        assert!(tally.bad > 0, "{fault}: {tally:#?}");
    }
}

#[test]
#[ignore = "takes minutes and root: see CONTRIBUTING.md"]
fn a_power_cut_at_every_step_on_two_file_systems() {
    for kind in ["ext4", "xfs"] {
        let tally = cut_everywhere(kind, 6, None).unwrap();
        assert_eq!((tally.images, tally.bad), (223, 0), "{kind}: {tally:#?}");
        for fault in ["no-temp-sync", "no-dir-sync", "anchor-first"] {
            let tally = cut_everywhere(kind, 2, Some(fault)).unwrap();
            assert!(tally.bad > 0, "{kind} {fault}: {tally:#?}");
        }
    }
}
