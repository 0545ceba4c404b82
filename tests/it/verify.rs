//! `store verify` on stores that runs made: whole ones are said to be whole, and whatever is wrong in
//! one is found at its place.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::env::{Done, TestEnv};

const POLICY: &str = "version = 1\n[[rule]]\nid = \"write\"\neffect = \"allow\"\n\
    tools = [\"create_file\", \"edit_file\", \"delete_file\"]\nwhen.write = [\"**\"]\n";

/// What was durable and is gone is a matter of its own: what is there may be whole.
const LOST: &str = "DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)";

struct Kept {
    env: TestEnv,
}

impl Kept {
    /// Two runs of one session: a file made, edited and deleted, and a large one deleted.
    fn new() -> Self {
        let env = TestEnv::new();
        env.outside("p.policy.toml", POLICY);
        env.file("large.bin", vec![b'x'; (1 << 20) + 1]);
        let kept = Self { env };
        let edits = json!([{"oldText": "one", "newText": "two"}]);
        kept.run(
            &[],
            &[
                ("create_file", json!({"path": "a.txt", "content": "one\n"})),
                ("edit_file", json!({"path": "a.txt", "edits": edits})),
            ],
        );
        let more = ["-c", "--label", "second"];
        let calls =
            [("delete_file", json!({"path": "a.txt"})), ("delete_file", json!({"path": "large.bin"}))];
        kept.run(&more, &calls);
        kept
    }

    fn run(&self, more: &[&str], calls: &[(&str, Value)]) {
        let mut replies: Vec<Value> = calls
            .iter()
            .map(|(name, arguments)| json!({"toolCalls": [{"name": name, "arguments": arguments}]}))
            .collect();
        replies.push(json!({"text": "done"}));
        let cassette = self.env.cassette(&replies).display().to_string();
        let policy = self.env.beside("p.policy.toml").display().to_string();
        let (state, json) = (self.state().display().to_string(), "--json");
        let args = ["run", json, "--policy", &policy, "--state-dir", &state, "--cassette", &cassette];
        let done = self.env.thcode(&[&args[..], more, &["the task"]].concat()).document();
        assert_eq!(done.code, Some(0), "{done:?}");
    }

    fn state(&self) -> PathBuf {
        self.env.beside("state")
    }

    fn verify(&self) -> Done {
        let state = self.state().display().to_string();
        self.env.thcode(&["store", "verify", "--json", "--state-dir", &state]).document()
    }

    /// Where the first thing that is wrong is.
    fn found(&self) -> (Option<i32>, String) {
        let done = self.verify();
        let place = &done.json()["verification"]["findings"][0]["place"];
        (done.code, place.as_str().unwrap_or("-").to_owned())
    }

    /// Changes rows behind the journal's triggers' back.
    fn alter(&self, sql: &str) {
        let database = rusqlite::Connection::open(self.state().join("state.db")).unwrap();
        database.pragma_update(None, "foreign_keys", 0).unwrap();
        let triggers = "SELECT group_concat(sql, ';') FROM sqlite_schema WHERE type = 'trigger'";
        let again: String = database.query_row(triggers, [], |row| row.get(0)).unwrap();
        let batch =
            format!("DROP TRIGGER journal_no_update; DROP TRIGGER journal_no_delete; {sql}; {again}");
        database.execute_batch(&batch).unwrap();
    }
}

#[test]
fn a_whole_store_is_said_to_be_whole() {
    let kept = Kept::new();
    let verification = |done: &Done| done.json()["verification"].clone();
    let done = kept.verify();
    assert_eq!(done.code, Some(0), "{done:?}");
    let told = verification(&done);
    let number = |key: &str| told[key].as_u64().unwrap();
    assert_eq!((number("sessions"), number("checkpoints"), number("images")), (1, 4, 5));
    assert_eq!((number("orphanedFiles"), number("openOperations")), (0, 0));
    assert!(number("events") > 20 && number("messages") > 8, "{told}");
    assert_eq!((&told["authenticity"], &told["findings"]), (&json!("verified"), &json!([])));
    // Without the key it is said what wasn't looked at.
    fs::rename(kept.env.beside("state.key"), kept.env.beside("elsewhere")).unwrap();
    let done = kept.verify();
    assert_eq!(
        (done.code, &verification(&done)["authenticity"]),
        (Some(0), &json!("unverified-no-key"))
    );
    assert!(done.stderr.contains("key"), "{}", done.stderr);
    // What a crash leaves is told, and is no fault.
    fs::write(kept.state().join("sealed/left.sealed"), "x").unwrap();
    let done = kept.verify();
    assert_eq!((done.code, verification(&done)["orphanedFiles"].as_u64()), (Some(0), Some(1)));
    let text =
        kept.env.thcode(&["store", "verify", "--state-dir", kept.state().to_str().unwrap()]).run();
    assert!(text.stdout.contains("unverified-no-key") && text.stdout.contains("0 findings"), "{text:?}");
}

#[test]
fn whatever_is_wrong_in_a_store_is_found_at_its_place() {
    let zero = "zeroblob(16)";
    let last = "(SELECT turn_id FROM turn ORDER BY number DESC LIMIT 1)";
    for (sql, place) in [
        ("SELECT 1".to_owned(), "-"),
        ("UPDATE journal SET timestamp = timestamp + 1 WHERE seq = 2".to_owned(), "journal"),
        ("DELETE FROM journal WHERE seq = 1".to_owned(), "journal"),
        (LOST.to_owned(), "journal"),
        ("UPDATE checkpoint SET created_at = created_at + 1".to_owned(), "checkpoint"),
        ("UPDATE checkpoint SET commit_state = 'failed'".to_owned(), "checkpoint"),
        ("UPDATE target SET effect = 'create' WHERE effect = 'edit'".to_owned(), "checkpoint"),
        ("UPDATE target SET parent_mode = 511".to_owned(), "checkpoint"),
        ("DELETE FROM target WHERE effect = 'edit'".to_owned(), "checkpoint"),
        ("DELETE FROM target; DELETE FROM artifact; DELETE FROM checkpoint".to_owned(), "checkpoint"),
        ("UPDATE blob SET class = 'binary-blob' WHERE in_file = 0".to_owned(), "target"),
        ("UPDATE blob SET stored = stored + 1".to_owned(), "target"),
        ("DELETE FROM artifact WHERE role = 'post'".to_owned(), "target"),
        ("UPDATE artifact SET role = 'pre' WHERE role = 'post'".to_owned(), "target"),
        ("UPDATE chunk SET sealed = zeroblob(length(sealed))".to_owned(), "target"),
        ("UPDATE session SET rounds = rounds + 1".to_owned(), "session"),
        ("UPDATE session SET created_at = created_at + 1".to_owned(), "turn"),
        (format!("UPDATE turn SET exit_code = 1 WHERE turn_id = {last}"), "turn"),
        (format!("UPDATE turn SET started_at = 1 WHERE turn_id = {last}"), "turn"),
        (format!("DELETE FROM turn WHERE turn_id = {last}"), "session"),
        ("DELETE FROM message WHERE ordinal = 0".to_owned(), "session"),
        ("UPDATE message SET sealed = zeroblob(60) WHERE ordinal = 1".to_owned(), "message"),
        (format!("INSERT INTO authorization VALUES ({zero}, {zero})"), "authorization"),
        (
            format!(
                "INSERT INTO inflight VALUES ({zero}, x'61', x'62', x'', zeroblob(32), NULL, NULL, 0, 0, \
                 NULL, NULL, 'b', x'00', 1)"
            ),
            "inflight",
        ),
    ] {
        let kept = Kept::new();
        kept.alter(&sql);
        let code = match place {
            "-" => 0,
            _ if sql == LOST => 20,
            _ => 1,
        };
        let found = kept.found();
        assert_eq!(found, (Some(code), place.to_owned()), "{sql}");
    }
    // The one row by another number, which SQLite's own check doesn't mind.
    let kept = Kept::new();
    kept.alter("PRAGMA ignore_check_constraints = 1; UPDATE meta SET one = 3");
    assert_eq!(kept.verify().end().2, "store-corrupt");
    let kept = Kept::new();
    let sealed = fs::read_dir(kept.state().join("sealed")).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read(&sealed).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    fs::write(&sealed, &flipped).unwrap();
    assert_eq!(kept.found(), (Some(1), "target".to_owned()));
    fs::remove_file(&sealed).unwrap();
    assert_eq!(kept.found(), (Some(1), "blob".to_owned()));
    fs::write(&sealed, &bytes).unwrap();
    assert_eq!(kept.found(), (Some(0), "-".to_owned()));
    fs::remove_file(kept.state().join("head")).unwrap();
    assert_eq!(kept.found(), (Some(20), "journal".to_owned()));
    assert_eq!(kept.verify().end().2, "journal-unavailable");
}

/// On a file system that isn't known to be safe for a write-ahead log there is none, nothing is lost,
/// and `doctor` says so.
#[test]
fn a_file_system_without_a_log_is_told_and_works() {
    let kept = Kept { env: TestEnv::new() };
    kept.env.outside("p.policy.toml", POLICY);
    let dir = kept.env.beside("ram");
    fs::create_dir(&dir).unwrap();
    let mounted = std::process::Command::new("mount").args(["-t", "ramfs", "ram"]).arg(&dir).status();
    if !mounted.is_ok_and(|status| status.success()) {
        crate::env::skipped("a_file_system_without_a_log_is_told_and_works", "nothing can be mounted");
        return;
    }
    let state = dir.join("state").display().to_string();
    let policy = kept.env.beside("p.policy.toml").display().to_string();
    let call =
        json!({"toolCalls": [{"name": "create_file", "arguments": {"path": "a", "content": "x"}}]});
    let cassette = kept.env.cassette(&[call, json!({"text": "done"})]).display().to_string();
    let args =
        ["run", "--json", "--policy", &policy, "--state-dir", &state, "--cassette", &cassette, "x"];
    let done = kept.env.thcode(&args).document();
    let verified = kept.env.thcode(&["store", "verify", "--json", "--state-dir", &state]).document();
    let doctor = kept.env.thcode(&["doctor", "--state-dir", &state]).run();
    let names: Vec<String> = fs::read_dir(&state)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("wal") || name.contains("new"))
        .collect();
    let gone = std::process::Command::new("umount").arg(&dir).status().unwrap();
    assert!(gone.success());
    assert_eq!((done.code, verified.code), (Some(0), Some(0)), "{done:?} {verified:?}");
    assert!(doctor.stdout.contains("isn't known to be safe"), "{}", doctor.stdout);
    assert_eq!(names, Vec::<String>::new());
}
