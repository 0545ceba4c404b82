//! What is kept, and the verbs that only look at it: they tell what is there, or why not, and change
//! nothing.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use thcode::{
    app::Fail,
    crypto::KeySource,
    host::Host,
    id::{AuthorizationId, Digest, MessageId, OperationId, SessionId, TurnId},
    journal::{Event, Inflight, Log, Payload, Provenance, Settling},
    session::{self, Start, StoredCall, StoredMessage, StoredRole},
    store::{Durability, Lease, StatePlace, Store},
};

use crate::env::{Done, TestEnv, finish, skipped};

/// Said in every place where something is sealed.
const NEEDLE: &str = "Zebrafish#41/kept-to-itself";

/// Every verb that reads a store.
const READING: &[&[&str]] = &[
    &["store", "list"],
    &["store", "stats"],
    &["session", "list"],
    &["session", "show"],
    &["session", "history"],
    &["recover"],
    &["rollback", "list"],
];

/// Verbs that write a store, and a tree.
const WRITING: &[&[&str]] =
    &[&["rollback", "apply", "last"], &["recover", "reconcile", "--all"], &["store", "gc"]];

struct Bench {
    env: TestEnv,
    host: Host,
    root: String,
    place: StatePlace,
}

impl Bench {
    /// A workspace whose store would be where the binary looks for it.
    fn new() -> Self {
        let env = TestEnv::new();
        let root = fs::canonicalize(env.workspace()).unwrap().to_str().unwrap().to_owned();
        let digest = Digest::of(root.as_bytes()).to_string();
        let name: String = digest.chars().skip("sha256:".len()).take(16).collect();
        let base = env.home().join(".local/state/thcode");
        let place = StatePlace { dir: base.join(&name), key: base.join(format!("{name}.key")) };
        Self { env, host: Host::real(), root, place }
    }

    /// One with a store of one session.
    fn kept() -> Self {
        let bench = Self::new();
        let store = bench.open().unwrap();
        let id = SessionId::from_uuid(bench.host.uuid());
        bench.turn(store, Start::New(id), Some(NEEDLE)).close().unwrap();
        bench
    }

    fn open(&self) -> Result<Store, Fail> {
        self.open_with(&self.place, &KeySource::Beside(self.place.key.clone()))
    }

    fn open_with(&self, place: &StatePlace, key: &KeySource) -> Result<Store, Fail> {
        Store::prepare(place, &self.root)?;
        let lease = Lease::take(&self.host, &self.root, place, Duration::from_secs(5))?;
        Ok(Store::open(&self.host, place, &self.root, key, lease)?)
    }

    fn event(&self, session: SessionId, turn: TurnId, payload: Payload) -> Event {
        Event {
            session_id: session,
            turn_id: Some(turn),
            operation_id: None,
            parent_operation_id: None,
            provenance: Provenance::Deterministic,
            payload,
        }
    }

    /// A whole turn, as a run keeps it.
    fn turn(&self, mut store: Store, start: Start, label: Option<&str>) -> Store {
        let turn = TurnId::from_uuid(self.host.uuid());
        let session = start.session();
        let mut log = Log::open(&store).unwrap();
        let message = |role, content: &str| StoredMessage {
            message_id: MessageId::from_uuid(self.host.uuid()),
            role,
            content: content.to_owned(),
            tool_calls: vec![StoredCall {
                id: "c1".to_owned(),
                name: format!("tool {NEEDLE}"),
                arguments: json!({"path": NEEDLE}).to_string(),
            }],
            tool_call_id: None,
        };
        let messages = [
            message(StoredRole::User, NEEDLE),
            message(StoredRole::Assistant, &format!("re: {NEEDLE}")),
        ];
        log.write(&self.host, &store, Durability::Full, |tx, stage| {
            let (prompt_round, row) = session::begin(&self.host, &store, tx, start, turn, label)?;
            let first = (prompt_round - 1) * 2;
            session::append(&self.host, &store, tx, session, turn, first, &messages)?;
            stage.push(self.event(session, turn, Payload::PromptSubmitted { prompt_round, row }));
            session::end(tx, turn, "final-answer", 0, self.host.now())?;
            Ok::<_, Fail>(())
        })
        .unwrap();
        store.anchor(log.head()).unwrap();
        store
    }

    fn thcode(&self, args: &[&str]) -> Done {
        self.env.thcode(&[args, &["--json"]].concat()).document()
    }

    fn cause(&self, args: &[&str]) -> (Option<i32>, String) {
        let done = self.thcode(args);
        (done.code, done.end().2)
    }

    /// What no reading verb may change. A write-ahead log without a byte is none.
    fn kept_bytes(&self) -> Vec<(String, Vec<u8>)> {
        let file = |path: PathBuf| (path.display().to_string(), fs::read(path).unwrap_or_default());
        let inside = ["state.db", "state.db-wal", "head"].map(|name| file(self.place.dir.join(name)));
        inside.into_iter().chain([file(self.place.key.clone())]).collect()
    }
}

fn fail<T>(result: Result<T, Fail>) -> (u8, &'static str) {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(fail) => (fail.class.code(), fail.failure.cause_code.token()),
    }
}

/// An id with this random part.
fn crafted(time: u128, random: u128) -> SessionId {
    SessionId::from_uuid(uuid::Uuid::from_u128(time << 80 | 7 << 76 | random << 64 | 0x9 << 60 | time))
}

#[test]
fn what_is_kept_is_told() {
    let bench = Bench::kept();
    let list = bench.thcode(&["store", "list"]).json();
    let store = &list["stores"][0];
    assert_eq!(store["workspace"], bench.root.as_str());
    assert_eq!(store["stateDir"], bench.place.dir.to_str().unwrap());
    assert_eq!((&store["openOperations"], &store["live"]), (&json!(0), &json!(false)));
    assert_eq!((&store["keyFilePresent"], &store["failure"]), (&json!(true), &Value::Null));
    assert_eq!(store["lastRun"]["stopReason"], "final-answer");
    assert!(store["diskBytes"].as_u64().unwrap() > 1024);
    let stats = bench.thcode(&["store", "stats"]).json();
    let rows = |name: &str| {
        let tables = stats["stats"]["tables"].as_array().unwrap();
        tables.iter().find(|table| table["name"] == name).unwrap()["rows"].clone()
    };
    assert_eq!((rows("session"), rows("turn"), rows("message")), (json!(1), json!(1), json!(2)));
    assert_eq!(stats["stats"]["journalRows"], 1);
    assert_eq!(stats["stats"]["keyVersion"], 1);
    let session = bench.thcode(&["session", "list"]).json();
    let told = &session["sessions"][0];
    assert_eq!((&told["label"], &told["promptRounds"]), (&json!(NEEDLE), &json!(1)));
    assert_eq!(session["history"], Value::Null);
    let id = told["sessionId"].as_str().unwrap();
    for name in [id, NEEDLE, "last", told["shortId"].as_str().unwrap()] {
        let shown = bench.thcode(&["session", "show", name]).json();
        assert_eq!(shown["sessions"][0]["sessionId"], id, "{name}");
        assert_eq!(shown["turns"].as_array().unwrap().len(), 1, "{name}");
    }
    let history = bench.thcode(&["session", "history"]).json();
    assert_eq!(history["history"][0]["content"], NEEDLE);
    assert_eq!(history["history"][1]["role"], "assistant");
    assert_eq!(history["history"][1]["toolCalls"][0]["name"], format!("tool {NEEDLE}"));
    for verb in READING {
        let text = bench.env.thcode(verb).run();
        let end: Vec<&str> = text.stdout.lines().rev().take(3).collect();
        assert_eq!((text.code, end[0]), (Some(0), "next: nothing to do"), "{text:?}");
        assert!(end[2].starts_with("SUCCESS (0): "), "{text:?}");
    }
}

#[test]
fn a_history_is_scrubbed_and_capped() {
    let bench = Bench::new();
    let store = bench.open().unwrap();
    let (id, turn) = (SessionId::from_uuid(bench.host.uuid()), TurnId::from_uuid(bench.host.uuid()));
    let message = StoredMessage {
        message_id: MessageId::from_uuid(bench.host.uuid()),
        role: StoredRole::Tool,
        content: format!("{NEEDLE}{}", "x".repeat(100 << 10)),
        tool_calls: Vec::new(),
        tool_call_id: Some("c1".to_owned()),
    };
    store
        .tx(Durability::Full, |tx| {
            session::begin(&bench.host, &store, tx, Start::New(id), turn, None)?;
            session::append(&bench.host, &store, tx, id, turn, 0, &[message])
        })
        .unwrap();
    store.close().unwrap();
    let done =
        bench.env.thcode(&["session", "history", "--json"]).env("DEPLOY_TOKEN", NEEDLE).document();
    assert!(!done.stdout.contains(NEEDLE) && done.stdout.contains("[redacted:DEPLOY_TOKEN]"));
    let content = done.json()["history"][0]["content"].as_str().unwrap().to_owned();
    assert!(content.ends_with(" bytes in all]") && content.len() < 66 << 10, "{}", content.len());
    assert_eq!(done.json()["turns"][0]["endedAt"], Value::Null, "it was never ended");
}

/// Rows, keys and anchors are the same bytes after every reading verb: at rest, beside a live
/// runner, without the key.
#[test]
fn looking_changes_nothing() {
    let bench = Bench::kept();
    let look = |when: &str, codes: &[i32]| {
        let before = bench.kept_bytes();
        for (verb, code) in READING.iter().zip(codes) {
            assert_eq!(bench.thcode(verb).code, Some(*code), "{when}: {verb:?}");
        }
        assert!(before == bench.kept_bytes(), "{when}: something was changed");
    };
    look("at rest", &[0; 5]);
    let store = bench.open().unwrap();
    let id = SessionId::from_uuid(bench.host.uuid());
    let store = bench.turn(store, Start::New(id), None);
    let operation = Some(OperationId::from_uuid(bench.host.uuid()));
    let turn = TurnId::from_uuid(bench.host.uuid());
    let proposed =
        Payload::OperationProposed { tool: "edit_file".to_owned(), action_class: "write".to_owned() };
    let event = Event { operation_id: operation, ..bench.event(id, turn, proposed) };
    let mut log = Log::open(&store).unwrap();
    log.write(&bench.host, &store, Durability::Full, |_, stage| {
        stage.push(event);
        Ok::<_, Fail>(())
    })
    .unwrap();
    look("beside a live runner", &[0; 5]);
    let list = bench.thcode(&["store", "list"]).json();
    let told = &list["stores"][0];
    assert_eq!((&told["live"], &told["openOperations"]), (&json!(true), &json!(1)));
    assert_eq!(bench.thcode(&["session", "list"]).json()["sessions"][0]["sessionId"], id.to_string());
    store.close().unwrap();
    let list = bench.thcode(&["store", "list"]).json();
    let told = &list["stores"][0];
    assert_eq!((&told["live"], &told["openOperations"]), (&json!(false), &json!(1)));
    fs::rename(&bench.place.key, bench.env.beside("key")).unwrap();
    look("without the key", &[0, 0, 0, 0, 20]);
    let list = bench.thcode(&["session", "list"]);
    assert_eq!(
        (&list.json()["unlocked"], &list.json()["sessions"][1]["label"]),
        (&json!(false), &Value::Null)
    );
    assert!(list.stderr.contains("is not there"), "{list:?}");
    assert!(!bench.place.key.exists(), "no key is ever made for a store that has one");
    assert_eq!(bench.thcode(&["store", "list"]).json()["stores"][0]["keyFilePresent"], false);
}

/// The kinds that the count of open operations takes for ends are those of the journal.
#[test]
fn operations_that_ended_are_not_open() {
    let bench = Bench::kept();
    let cause = || "c".to_owned();
    let store = bench.open().unwrap();
    let mut log = Log::open(&store).unwrap();
    let (session, turn) =
        (SessionId::from_uuid(bench.host.uuid()), TurnId::from_uuid(bench.host.uuid()));
    for terminal in [
        Some(Payload::OperationSucceeded {}),
        Some(Payload::OperationFailed { cause: cause() }),
        Some(Payload::OperationBlocked { cause: cause() }),
        Some(Payload::OperationCancelled { cause: cause() }),
        None,
    ] {
        let operation_id = Some(OperationId::from_uuid(bench.host.uuid()));
        let proposed = Payload::OperationProposed { tool: cause(), action_class: cause() };
        let decided = Payload::PolicyDecisionRecorded {
            outcome: cause(),
            because: cause(),
            rule_id: None,
            line: None,
            policy: Digest::of(b""),
        };
        log.write(&bench.host, &store, Durability::Normal, |_, stage| {
            for payload in [proposed, decided].into_iter().chain(terminal) {
                stage.push(Event { operation_id, ..bench.event(session, turn, payload) });
            }
            Ok::<_, Fail>(())
        })
        .unwrap();
    }
    // One that was dispatched: proven, or not and still told by its row of `inflight`.
    let mut store = store;
    for (terminal, keep) in [
        (Payload::OperationSucceeded {}, false),
        (Payload::OperationUnknownOutcome { cause: cause() }, false),
        (Payload::OperationUnknownOutcome { cause: cause() }, true),
    ] {
        let operation = OperationId::from_uuid(bench.host.uuid());
        let authorization_id = AuthorizationId::from_uuid(bench.host.uuid());
        let proposed = Payload::OperationProposed { tool: cause(), action_class: cause() };
        let decided = Payload::PolicyDecisionRecorded {
            outcome: cause(),
            because: cause(),
            rule_id: None,
            line: None,
            policy: Digest::of(b""),
        };
        let prepared = Payload::UnprotectedOperationRecorded { bytes: Some(1), authorization_id };
        log.write(&bench.host, &store, Durability::Normal, |tx, stage| {
            let insert = "INSERT INTO authorization VALUES (?1, ?2)";
            tx.execute_one(insert, (authorization_id.as_bytes(), operation.as_bytes()))?;
            for payload in [proposed, decided, prepared] {
                let event = bench.event(session, turn, payload);
                stage.push(Event { operation_id: Some(operation), ..event });
            }
            Ok::<_, Fail>(())
        })
        .unwrap();
        let inflight = Inflight {
            operation_id: operation,
            path: b"a".to_vec(),
            temp: b"t".to_vec(),
            parents: Vec::new(),
            salt: [0; 32],
            pre: None,
            post: None,
            boot_id: cause(),
            root_fsid: Vec::new(),
            root_ino: 1,
        };
        let about = bench.event(session, turn, Payload::OperationSucceeded {});
        let sent = log
            .dispatch(&bench.host, &mut store, &about, authorization_id, &inflight, |_| Ok(()))
            .unwrap();
        let terminal = Event { payload: terminal, ..about.clone() };
        let settling =
            Settling { terminal: &terminal, keep_inflight: keep, durability: Durability::Normal };
        log.settle(&bench.host, &store, &sent, settling, |_| Ok(())).unwrap();
    }
    store.close().unwrap();
    let list = bench.thcode(&["store", "list"]).json();
    assert_eq!(list["stores"][0]["openOperations"], 3, "one was cut off, of two nobody knows");
    // A store that can't be read is no success, and the next step names it.
    fs::write(bench.place.dir.join("state.db"), "not a database").unwrap();
    let list = bench.thcode(&["store", "list"]);
    assert_eq!(list.code, Some(1), "{list:?}");
    let next = list.json()["failure"]["recoveryActions"][0].as_str().unwrap().to_owned();
    assert!(next.starts_with("thcode store verify --state-dir "), "{next}");
}

/// On a file system that can't be written, a live write-ahead log included.
#[test]
fn looking_works_where_nothing_can_be_written() {
    let bench = Bench::kept();
    let store = bench.open().unwrap();
    let id = SessionId::from_uuid(bench.host.uuid());
    let store = bench.turn(store, Start::New(id), None);
    // A runner that died: its rows are in the log alone.
    let saved = bench.env.beside("saved");
    assert!(Command::new("cp").arg("-a").arg(&bench.place.dir).arg(&saved).status().unwrap().success());
    store.close().unwrap();
    fs::remove_file(saved.join("state.db-shm")).unwrap();
    fs::remove_dir_all(&bench.place.dir).unwrap();
    fs::rename(&saved, &bench.place.dir).unwrap();
    let before = bench.kept_bytes();
    for verb in READING {
        let binary = env!("CARGO_BIN_EXE_thcode");
        let script = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" || exit 99; shift; \
            touch \"$1\" 2>/dev/null && exit 98; shift; exec \"$@\"";
        let mut call = bench.env.thcode(&[]);
        let mut command = Command::new("unshare");
        command
            .args(["-rm", "sh", "-c", script, "sh"])
            .args([bench.env.home(), bench.env.home().join("probe")])
            .arg(binary)
            .args(*verb)
            .arg("--json")
            .current_dir(bench.env.workspace())
            .env_clear()
            .env("HOME", bench.env.home())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        call.command = command;
        let done = finish(call.start());
        if done.code == Some(99) || done.stderr.contains("unshare") {
            skipped("the read-only disk of state.rs, no mount namespace", done.stderr.trim());
            return;
        }
        assert_ne!(done.code, Some(98), "the mount is read-only");
        done.check_document();
        assert_eq!(done.code, Some(0), "{verb:?}: {done:?}");
        if verb[0] == "session" {
            let told = done.json()["sessions"][0]["sessionId"].clone();
            assert_eq!(told, id.to_string(), "the row of the log is seen");
        }
    }
    assert!(before == bench.kept_bytes());
    assert!(!bench.place.dir.join("state.db-shm").exists());
}

/// A document in the place of the journal or the key is the end of all that is sealed.
#[test]
fn no_document_is_written_where_a_store_keeps_its_own() {
    let bench = Bench::kept();
    let before = bench.kept_bytes();
    let dir = &bench.place.dir;
    let elsewhere = bench.env.beside("elsewhere");
    assert!(Command::new("cp").arg("-a").arg(dir).arg(&elsewhere).status().unwrap().success());
    let key = bench.env.outside("elsewhere.key", fs::read(&bench.place.key).unwrap());
    symlink(dir.join("head"), bench.env.beside("link.json")).unwrap();
    let mut refused: Vec<PathBuf> =
        ["head", "lock", "state.db", "state.db-wal", "state.db-journal", "new.json"]
            .iter()
            .flat_map(|name| [dir.join(name), elsewhere.join(name)])
            .collect();
    refused.extend([bench.place.key.clone(), key, bench.env.beside("link.json")]);
    for file in &refused {
        for verb in [&["session", "list"][..], &["schema", "list"], &["no-such-verb"]] {
            let (there, bytes) = (file.exists(), fs::read(file).ok());
            let args = [verb, &["--json", "-o", file.to_str().unwrap()]].concat();
            let done = bench.env.thcode(&args).document();
            assert_eq!(done.code, Some(2), "{file:?} {verb:?}: {done:?}");
            if verb[0] != "no-such-verb" {
                assert_eq!(done.end().2, "output-path-refused", "{file:?} {verb:?}");
            }
            assert_eq!((there, bytes), (file.exists(), fs::read(file).ok()), "{file:?} {verb:?}");
        }
    }
    assert!(before == bench.kept_bytes());
    // Beside a store, and in a directory of somebody else's `state.db`, it is nobody's.
    bench.env.outside("other/state.db", "x");
    for free in ["free.json", "other/free.json"] {
        let file = bench.env.beside(free);
        let done =
            bench.env.thcode(&["session", "list", "--json", "-o", file.to_str().unwrap()]).document();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
}

/// The key of a store that isn't made yet is no place for a document either.
#[test]
fn no_document_takes_the_place_of_a_key_that_is_made_only_now() {
    let env = TestEnv::new();
    let cassette = env.cassette(&[json!({"text": "done"})]).display().to_string();
    let state = env.beside("fresh");
    for out in ["fresh.key", "fresh/o.json"] {
        let out = env.beside(out).display().to_string();
        let args = [
            "run",
            "--cassette",
            &cassette,
            "--state-dir",
            state.to_str().unwrap(),
            "--json",
            "-o",
            &out,
            "x",
        ];
        let done = env.thcode(&args).document();
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(!Path::new(&out).exists() && !state.exists());
    }
}

#[test]
fn a_bad_key_is_told_and_nothing_is_made_of_it() {
    let bench = Bench::kept();
    let key = fs::read_to_string(&bench.place.key).unwrap();
    let other = bench.env.thcode(&["key", "new"]).run().stdout;
    let short = STANDARD.encode([7u8; 31]);
    let file = |name: &str, text: &str| bench.env.outside(name, text).display().to_string();
    let (good, bad, cut) = (file("good", &key), file("bad", &other), file("cut", &short));
    let link = bench.env.beside("link");
    symlink("/dev/zero", &link).unwrap();
    let history = |more: &[&str], variable: Option<&str>| {
        let call = bench.env.thcode(&[&["session", "history", "--json"], more].concat());
        let call = match variable {
            Some(key) => call.env("THCODE_KEY", key),
            None => call,
        };
        let done = call.document();
        assert!(!done.stdout.contains(short.trim()) && !done.stdout.contains(key.trim()), "{done:?}");
        (done.code, done.end().2, done.stderr)
    };
    let before = bench.kept_bytes();
    for (more, variable, code, cause) in [
        (&["--key-file", good.as_str()][..], None, 0, "-"),
        (&["--key-file", good.as_str()], Some(other.as_str()), 0, "-"),
        (&[], Some(key.as_str()), 0, "-"),
        (&["--key-file", bad.as_str()], None, 20, "key-mismatch"),
        (&[], Some(other.as_str()), 20, "key-mismatch"),
        (&["--key-file", cut.as_str()], None, 20, "key-unavailable"),
        (&["--key-file", cut.as_str()], Some(key.as_str()), 20, "key-unavailable"),
        (&[], Some(short.as_str()), 20, "key-unavailable"),
        (&["--key-file", "/no/such"], None, 20, "key-unavailable"),
        (&["--key-file", "/"], None, 20, "key-unavailable"),
        (&["--key-file", link.to_str().unwrap()], None, 20, "key-unavailable"),
    ] {
        let (found, told, _) = history(more, variable);
        assert_eq!((found, told.as_str()), (Some(code), cause), "{more:?} {variable:?}");
    }
    let (code, _, stderr) = history(&[], Some(""));
    assert_eq!(code, Some(0), "an empty variable counts as unset");
    assert!(stderr.contains("THCODE_KEY is set but empty"), "{stderr}");
    let (_, _, stderr) = history(&[], None);
    assert!(!stderr.contains("THCODE_KEY"), "{stderr}");
    let by_variable =
        bench.env.thcode(&["session", "history", "--json"]).env("THCODE_KEY_FILE", &cut).document();
    assert_eq!(by_variable.end().2, "key-unavailable");
    let wrong = bench.env.thcode(&["session", "list", "--json"]).env("THCODE_KEY", &other).document();
    assert_eq!((wrong.code, &wrong.json()["unlocked"]), (Some(0), &json!(false)));
    assert!(before == bench.kept_bytes());
}

#[test]
fn a_new_key_is_a_key_and_nothing_else() {
    let bench = Bench::new();
    let print = || bench.env.thcode(&["key", "new"]).run();
    let (one, two) = (print(), print());
    assert_eq!((one.code, one.stderr.as_str()), (Some(0), ""));
    assert_ne!(one.stdout, two.stdout);
    assert_eq!(STANDARD.decode(one.stdout.strip_suffix('\n').unwrap()).unwrap().len(), 32);
    let file = bench.env.outside("key", &one.stdout);
    let id = SessionId::from_uuid(bench.host.uuid());
    let store = bench.open_with(&bench.place, &KeySource::File(file.clone())).unwrap();
    bench.turn(store, Start::New(id), None).close().unwrap();
    let args = ["session", "history", "--key-file", file.to_str().unwrap()];
    assert_eq!(bench.thcode(&args).code, Some(0));
    assert!(!bench.place.key.exists(), "where a key is given none is made");
}

/// What an operator could point at: each is refused with its cause, and left as it was.
#[test]
fn a_bad_state_directory_is_told() {
    let bench = Bench::kept();
    let dir = bench.env.beside("link");
    symlink(&bench.place.dir, &dir).unwrap();
    let file = bench.env.outside("file", "x");
    let foreign = bench.env.beside("foreign");
    fs::create_dir(&foreign).unwrap();
    rusqlite::Connection::open(foreign.join("state.db"))
        .unwrap()
        .execute_batch("CREATE TABLE theirs (x)")
        .unwrap();
    let text = bench.env.beside("text");
    fs::create_dir(&text).unwrap();
    fs::write(text.join("state.db"), "not a database at all, but long enough to be one".repeat(100))
        .unwrap();
    let holder = bench.env.beside("holder");
    fs::create_dir_all(holder.join("state.db/x")).unwrap();
    for verb in &READING[1..] {
        let cause = |dir: &Path| bench.cause(&[*verb, &["--state-dir", dir.to_str().unwrap()]].concat());
        let refused = (Some(2), "state-dir-refused".to_owned());
        assert_eq!(cause(&dir), refused, "a link");
        assert_eq!(cause(&file), refused, "a file");
        assert_eq!(cause(&foreign), refused, "another program's");
        let blocked = |cause: &str| (Some(20), cause.to_owned());
        assert_eq!(cause(&bench.env.beside("none")), blocked("store-missing"));
        assert_eq!(cause(&text), blocked("store-corrupt"));
        assert_eq!(cause(&holder), blocked("store-unavailable"));
        assert_eq!(cause(&bench.place.dir), (Some(0), "-".to_owned()), "what is there can be named");
    }
    assert!(!bench.env.beside("none").exists(), "looking makes nothing");
    // What a writer is refused.
    let at = |dir: PathBuf| StatePlace { key: dir.with_extension("key"), dir };
    let open = |dir: PathBuf| {
        let place = at(dir);
        fail(bench.open_with(&place, &KeySource::Beside(place.key.clone())))
    };
    assert_eq!(open(bench.env.workspace().join("state")), (2, "state-dir-refused"));
    assert_eq!(open(bench.env.workspace().join("deep/er/state")), (2, "state-dir-refused"));
    assert_eq!(open(dir), (2, "state-dir-refused"));
    assert_eq!(open(file), (2, "state-dir-refused"));
    assert_eq!(open(PathBuf::from("/proc/thcode")), (20, "store-unavailable"));
    assert_eq!(open(PathBuf::from("/proc/sys")), (20, "store-unavailable"));
    assert_eq!(fs::read_dir(bench.env.workspace()).unwrap().count(), 0);
}

/// A change of the journal behind its triggers' back.
fn untriggered(sql: &str) -> String {
    let again = ["UPDATE", "DELETE"].map(|what| {
        format!(
            "CREATE TRIGGER journal_no_{} BEFORE {what} ON journal\n\
             BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;",
            what.to_lowercase()
        )
    });
    format!("DROP TRIGGER journal_no_update; DROP TRIGGER journal_no_delete; {sql}; {}", again.concat())
}

/// What can become of a store.
#[test]
fn a_store_that_lost_something_is_never_served() {
    let bad = |name: &str, harm: &dyn Fn(&Path), cause: (i32, &str)| {
        let bench = Bench::kept();
        harm(&bench.place.dir);
        for verb in &READING[1..] {
            assert_eq!(bench.cause(verb), (Some(cause.0), cause.1.to_owned()), "{name}: {verb:?}");
        }
        let tree = bench.env.tree();
        for verb in WRITING.iter().filter(|_| cause.0 != 0) {
            assert_eq!(bench.cause(verb), (Some(cause.0), cause.1.to_owned()), "{name}: {verb:?}");
        }
        assert_eq!(bench.env.tree(), tree, "{name}");
        let list = bench.thcode(&["store", "list"]);
        let told = list.json()["stores"][0]["failure"]["causeCode"].clone();
        assert_eq!(
            (list.code, told),
            match cause.0 {
                0 => (Some(0), Value::Null),
                _ => (Some(1), cause.1.into()),
            }
        );
    };
    let edit = |dir: &Path, sql: &str| {
        rusqlite::Connection::open(dir.join("state.db")).unwrap().execute_batch(sql).unwrap();
    };
    bad("the test itself harms nothing", &|_| {}, (0, "-"));
    bad("no anchor", &|dir| fs::remove_file(dir.join("head")).unwrap(), (20, "journal-unavailable"));
    bad("a torn anchor", &|dir| fs::write(dir.join("head"), "x").unwrap(), (20, "journal-unavailable"));
    bad(
        "an empty database",
        &|dir| fs::write(dir.join("state.db"), "").unwrap(),
        (20, "journal-unavailable"),
    );
    bad(
        "no database",
        &|dir| fs::remove_file(dir.join("state.db")).unwrap(),
        (20, "journal-unavailable"),
    );
    bad(
        "a truncated database",
        &|dir| {
            let path = dir.join("state.db");
            let bytes = fs::read(&path).unwrap();
            fs::write(path, bytes.get(..bytes.len() / 2).unwrap()).unwrap();
        },
        (20, "store-corrupt"),
    );
    bad(
        "a lost row",
        &|dir| edit(dir, &untriggered("DELETE FROM journal")),
        (20, "journal-unavailable"),
    );
    bad(
        "an edited row",
        &|dir| edit(dir, &untriggered("UPDATE journal SET hash = zeroblob(32)")),
        (20, "journal-unavailable"),
    );
    bad("a trigger less", &|dir| edit(dir, "DROP TRIGGER journal_no_update"), (20, "store-corrupt"));
    bad("another id", &|dir| edit(dir, "UPDATE meta SET store_id = x'00'"), (20, "store-corrupt"));
    // A newer version can be read, not written.
    let bench = Bench::kept();
    edit(&bench.place.dir, "PRAGMA user_version = 99");
    for verb in READING {
        assert_eq!(bench.thcode(verb).code, Some(0), "{verb:?}");
    }
    assert_eq!(fail(bench.open()), (20, "store-newer"));
    for verb in WRITING {
        assert_eq!(bench.cause(verb), (Some(20), "store-newer".to_owned()), "{verb:?}");
    }
    let held = Bench::kept();
    let store = held.open().unwrap();
    let second = Lease::take(&held.host, &held.root, &held.place, Duration::ZERO).map_err(Fail::from);
    assert_eq!(fail(second), (25, "workspace-in-use"));
    drop(store);
    // A lost message.
    edit(&held.place.dir, "DELETE FROM message WHERE ordinal = 1");
    assert_eq!(held.cause(&["session", "history"]), (Some(20), "store-corrupt".to_owned()));
    assert_eq!(held.cause(&["session", "show"]), (Some(0), "-".to_owned()));
}

#[test]
fn a_name_is_parsed_and_never_followed() {
    let bench = Bench::new();
    let mut store = bench.open().unwrap();
    let (one, two) = (crafted(1, 0xabc), crafted(2, 0xabd));
    for id in [one, two] {
        store = bench.turn(store, Start::New(id), Some("nightly"));
    }
    store.close().unwrap();
    let id = one.to_string();
    for name in [
        "../../etc/passwd",
        "/etc/passwd",
        "..",
        "state.db",
        "",
        " ",
        "%",
        "_",
        "' OR 1=1 --",
        "a\nb",
        "\u{1b}[2J",
        "abe",
        id.to_uppercase().as_str(),
        id.get(..8).unwrap(),
        id.replace('-', "").as_str(),
        "x".repeat(100_000).as_str(),
    ] {
        for verb in ["show", "history"] {
            let done = bench.env.thcode(&["session", verb, "--json", "--", name]).document();
            assert_eq!((done.code, done.end().2.as_str()), (Some(2), "session-not-found"), "{name:?}");
            assert!(done.stdout.len() < 2000, "a long name isn't told whole");
        }
    }
    for name in ["ab", "nightly"] {
        let done = bench.thcode(&["session", "show", name]);
        assert_eq!((done.code, done.end().2.as_str()), (Some(2), "session-ambiguous"), "{name}");
        let message = done.json()["failure"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&id) && message.contains(&two.to_string()), "{message}");
    }
    assert_eq!(bench.thcode(&["session", "show", "abc"]).json()["sessions"][0]["sessionId"], id);
    let listed = bench.thcode(&["session", "list"]).json();
    assert_eq!(listed["sessions"][0]["shortId"], "abd9", "four digits at the least");
    assert_eq!(bench.cause(&["session", "show", "abd9"]), (Some(0), "-".to_owned()));
}

#[test]
fn stores_are_found_where_they_lie() {
    let bench = Bench::kept();
    let none =
        bench.env.thcode(&["store", "list", "--json"]).env("XDG_STATE_HOME", "/no/such").document();
    assert_eq!((none.code, &none.json()["stores"]), (Some(0), &json!([])));
    let base = bench.place.dir.parent().unwrap().to_owned();
    fs::create_dir(base.join("0-empty")).unwrap();
    symlink("/etc", base.join("1-link")).unwrap();
    let below = bench.thcode(&["store", "list", "--root", base.to_str().unwrap()]).json();
    let causes: Vec<_> = below["stores"]
        .as_array()
        .unwrap()
        .iter()
        .map(|store| store["failure"]["causeCode"].clone())
        .collect();
    assert_eq!(causes, [json!("store-missing"), Value::Null], "links and files are no stores");
    let named =
        bench.thcode(&["store", "list", "--state-dir", bench.place.dir.to_str().unwrap()]).json();
    assert_eq!(named["stores"].as_array().unwrap().len(), 1);
    let homeless = {
        let mut call = bench.env.thcode(&["session", "list", "--json"]);
        call.command.env_remove("HOME");
        call.document()
    };
    assert_eq!(homeless.end().2, "state-dir-refused");
    // A store that was carried elsewhere is read from anywhere, with its key.
    let mut call = bench.env.thcode(&["session", "history", "--json"]).dir(Path::new("/"));
    call.command.arg("--state-dir").arg(&bench.place.dir);
    let away = call.env("THCODE_KEY", fs::read_to_string(&bench.place.key).unwrap()).document();
    assert_eq!((away.code, &away.json()["workspace"]), (Some(0), &json!(bench.root)));
}

/// The forms in which a text could lie on a disk.
fn forms(text: &str) -> Vec<(&'static str, Vec<u8>)> {
    let core = |shift: usize| {
        let encoded = STANDARD.encode(format!("{}{text}", "x".repeat(shift)));
        let (from, to) = ((shift * 8).div_ceil(6), (shift + text.len()) * 8 / 6);
        encoded.get(from..to).unwrap().as_bytes().to_vec()
    };
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    vec![
        ("raw", text.as_bytes().to_vec()),
        ("utf-16-le", text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        ("utf-16-be", text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
        ("base64", core(0)),
        ("base64+1", core(1)),
        ("base64+2", core(2)),
        ("hex", hex.as_bytes().to_vec()),
        ("HEX", hex.to_uppercase().into_bytes()),
    ]
}

/// Which forms of the needle lie in the files of a directory.
fn found_in(dir: &Path) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(found_in(&path));
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        // A third of it would be a leak as well.
        for (name, form) in forms(NEEDLE.get(..9).unwrap()) {
            if memchr::memmem::find(&bytes, &form).is_some() {
                found.insert(name);
            }
        }
    }
    found
}

#[test]
fn nothing_that_was_said_lies_readable_on_the_disk() {
    let bench = Bench::kept();
    let base = bench.place.dir.parent().unwrap();
    assert_eq!(found_in(base), BTreeSet::new(), "at rest");
    let store = bench.open().unwrap();
    let id = SessionId::from_uuid(bench.host.uuid());
    let store = bench.turn(store, Start::New(id), Some(NEEDLE));
    assert!(fs::metadata(bench.place.dir.join("state.db-wal")).unwrap().len() > 0);
    assert_eq!(found_in(base), BTreeSet::new(), "in the write-ahead log");
    drop(store);
    // The search finds each form, so that it can fail.
    for (name, form) in forms(NEEDLE) {
        let path = bench.place.dir.join("planted");
        fs::write(&path, [b"before ", &form[..], b" after"].concat()).unwrap();
        assert!(found_in(base).contains(name), "{name}");
        fs::remove_file(path).unwrap();
    }
}

/// The causes that verbs which only look can end with, each by a command line.
pub(crate) fn causes() -> BTreeSet<String> {
    let bench = Bench::kept();
    let mut reached = BTreeSet::new();
    let mut see = |bench: &Bench, args: &[&str]| {
        reached.insert(bench.cause(args).1);
    };
    see(&bench, &["session", "show", "nonesuch"]);
    see(&bench, &["session", "list", "--state-dir", "/no/such"]);
    see(&bench, &["session", "list", "--state-dir", "/dev/null"]);
    see(&bench, &["session", "history", "--key-file", "/no/such"]);
    let other = bench.env.thcode(&["key", "new"]).run().stdout;
    let other = bench.env.outside("other", other).display().to_string();
    see(&bench, &["session", "history", "--key-file", &other]);
    let id = SessionId::from_uuid(bench.host.uuid());
    bench.turn(bench.open().unwrap(), Start::New(id), Some(NEEDLE)).close().unwrap();
    see(&bench, &["session", "show", NEEDLE]);
    fs::remove_file(bench.place.dir.join("head")).unwrap();
    see(&bench, &["store", "stats"]);
    fs::write(bench.place.dir.join("state.db"), "x".repeat(5000)).unwrap();
    see(&bench, &["store", "stats"]);
    fs::remove_file(bench.place.dir.join("state.db")).unwrap();
    fs::create_dir_all(bench.place.dir.join("state.db/x")).unwrap();
    see(&bench, &["store", "stats"]);
    reached
}
