//! The contract as published: schemas match the types, the README's table matches the code, and a
//! document that departs from its schema is told at its real place.

use std::{fs, path::Path};

use serde_json::{Value, json};
use thcode::app::schema::published;
use thcode::contract::{
    ExitClass,
    registry::{PUBLISHED, find},
    schema_report::SchemaViolation,
    validate::violations,
};

use crate::env::TestEnv;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn schemas_are_what_the_types_give() {
    let update = std::env::var_os("UPDATE_SCHEMAS").is_some();
    let mut stale = Vec::new();
    for published in published() {
        let (path, generated) =
            (root().join("schemas").join(published.file_name()), published.generated());
        if update {
            fs::write(&path, &generated).unwrap();
        } else if fs::read_to_string(&path).unwrap() != generated {
            stale.push(published.name);
        }
    }
    assert!(stale.is_empty(), "stale: {stale:?}; UPDATE_SCHEMAS=1 cargo test rewrites them");
    let files = fs::read_dir(root().join("schemas")).unwrap().count();
    assert_eq!(files, published().count(), "a file under schemas/ is nobody's");
}

#[test]
fn the_readme_s_exit_table_is_the_code_s() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let told: Vec<&str> = readme
        .lines()
        .skip_while(|line| *line != "| class | code | meaning |")
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    let known: Vec<String> = ExitClass::ALL
        .into_iter()
        .map(|class| format!("| {} | {} | {} |", class.token(), class.code(), class.meaning()))
        .collect();
    assert_eq!(told, known);
}

#[test]
fn explain_exit_knows_every_code_and_no_other() {
    let env = TestEnv::new();
    for code in 0..=u8::MAX {
        let done = env.thcode(&["explain-exit", &code.to_string()]).run();
        match ExitClass::of_code(code) {
            Some(class) => {
                assert_eq!(done.code, Some(0));
                assert!(done.stdout.starts_with(&format!("{} ({code})\n", class.token())), "{done:?}");
                let rerun = done.stdout.contains("run again: yes");
                assert_eq!(rerun, code % 10 == 5, "{done:?}");
            }
            // The signals that may have killed it.
            None if (129..=192).contains(&code) => {
                assert_eq!(done.code, Some(0));
                assert!(done.stdout.starts_with("killed by "), "{done:?}");
                assert!(!done.stdout.contains("run again: yes"), "{done:?}");
            }
            None if code % 50 == 3 => {
                assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""));
                assert!(done.stderr.contains("exit-code-unknown"), "{done:?}");
            }
            None => assert_eq!(done.code, Some(2)),
        }
    }
}

/// One whole instance of each document, as this version writes it. Newer code must still read it.
fn instance(name: &str) -> Value {
    let path = root().join("tests/fixtures/documents").join(format!("{name}.v1.json"));
    serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap()
}

#[test]
fn every_document_has_an_instance_that_is_still_valid_and_readable() {
    use thcode::contract as c;
    fn reads<T: serde::de::DeserializeOwned>(value: Value) {
        serde_json::from_value::<T>(value).unwrap();
    }
    for published in PUBLISHED {
        let value = instance(published.name);
        assert_eq!(violations(published, &value).unwrap(), [], "{}", published.name);
        match published.name {
            "turn-result" => reads::<c::turn::TurnResult>(value),
            "failure" => reads::<c::FailureDocument>(value),
            "stream-event" => reads::<c::stream::StreamEvent>(value),
            "policy-report" => reads::<c::policy_report::PolicyReport>(value),
            "doctor-report" => reads::<c::doctor::DoctorReport>(value),
            "store-report" => reads::<c::store_report::StoreReport>(value),
            "recovery-result" => reads::<c::recovery::RecoveryResult>(value),
            "rollback-list" => reads::<c::rollback::RollbackListResult>(value),
            "rollback-preview" => reads::<c::rollback::RollbackPreview>(value),
            "rollback-apply-result" => reads::<c::rollback::RollbackApplyResult>(value),
            "rollback-analysis" => reads::<c::rollback::RollbackAnalysis>(value),
            "session-report" => reads::<c::session_report::SessionReport>(value),
            "schema-report" => reads::<c::schema_report::SchemaReport>(value),
            other => panic!("{other} has no type here"),
        }
    }
}

/// Breaks the instance at a place and tells what is found.
fn broken(name: &str, pointer: &str, with: Value) -> Vec<SchemaViolation> {
    let mut value = instance(name);
    *value.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = with;
    violations(find(name).unwrap(), &value).unwrap()
}

#[test]
fn a_violation_is_told_at_its_place_and_without_the_content() {
    let secret = "hunter2hunter2";
    for (name, pointer, with, place, keyword) in [
        ("turn-result", "/exitCode", json!(secret), "/exitCode", "type"),
        ("turn-result", "/exitClass", json!(secret), "/exitClass", "oneOf"),
        ("turn-result", "/schema", json!(secret), "/schema", "const"),
        ("turn-result", "/sessionId", json!(secret), "/sessionId", "pattern"),
        ("turn-result", "/policy/digest", json!(secret), "/policy/digest", "pattern"),
        // A tagged union: the branch whose tag fits tells the real place.
        ("turn-result", "/events/0/text", json!(7), "/events/0/text", "type"),
        ("turn-result", "/events/1/operationId", json!(secret), "/events/1/operationId", "pattern"),
        ("turn-result", "/events/0/kind", json!(secret), "/events/0", "oneOf"),
        ("stream-event", "/type", json!(secret), "", "oneOf"),
        ("failure", "/failure/causeCode", json!(secret), "/failure/causeCode", "oneOf"),
        ("failure", "/failure/retryable", json!(secret), "/failure/retryable", "type"),
        (
            "policy-report",
            "/explanation/subjects/0/given",
            json!({secret: secret}),
            "/explanation/subjects/0/given",
            "type",
        ),
    ] {
        let found = broken(name, pointer, with);
        let first = found.first().unwrap_or_else(|| panic!("{name} {pointer}: nothing found"));
        assert_eq!(
            (first.instance_path.as_str(), first.keyword.as_str()),
            (place, keyword),
            "{found:?}"
        );
        assert!(!format!("{found:?}").contains(secret), "the content is told: {found:?}");
    }
}

#[test]
fn a_missing_field_is_told() {
    let mut value = instance("turn-result");
    value.as_object_mut().unwrap().remove("denials");
    let found = violations(find("turn-result").unwrap(), &value).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].keyword, "required");
    assert!(found[0].message.contains("denials"));
}

#[test]
fn the_schema_verbs_work_offline() {
    let env = TestEnv::new();
    let list = env.thcode(&["schema", "list", "--json"]).document();
    let names: Vec<Value> = published().map(|published| published.name.into()).collect();
    let told: Vec<Value> =
        list.json()["schemas"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect();
    assert_eq!(told, names);
    for published in published() {
        let done = env.thcode(&["schema", "print", published.name]).run();
        assert_eq!((done.code, done.stdout.as_str()), (Some(0), published.text));
    }
    let good = env.outside("good.json", instance("failure").to_string());
    let done =
        env.thcode(&["schema", "validate", "failure", good.to_str().unwrap(), "--json"]).document();
    assert_eq!(done.code, Some(0));
    let bad = env.outside("bad.json", "{}");
    let done =
        env.thcode(&["schema", "validate", "failure", bad.to_str().unwrap(), "--json"]).document();
    assert_eq!(done.end().2, "schema-violated");
    assert_eq!(done.code, Some(1));
    let torn = env.outside("torn.json", "{\n  \"a\": ");
    let done =
        env.thcode(&["schema", "validate", "failure", torn.to_str().unwrap(), "--json"]).document();
    assert_eq!((done.code, done.end().2.as_str()), (Some(2), "not-json"));
    assert!(done.json()["failure"]["message"].as_str().unwrap().ends_with("line 2, column 7"));
    let done = env.thcode(&["schema", "print", "turn-resul", "--json"]).run();
    assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""));
    assert!(done.stderr.contains("schema-unknown"));
}

#[test]
fn the_cassette_s_schema_takes_what_the_reader_takes() {
    let env = TestEnv::new();
    let root = root().join("examples/review.cassette.jsonl");
    let example = fs::read_to_string(root).unwrap();
    let lines: Vec<&str> = example.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.len() >= 4);
    for line in lines.into_iter().chain([r#"{"text": "hi"}"#, r#"{"error": {"kind": "stall"}}"#]) {
        let file = env.outside("line.json", line);
        let done =
            env.thcode(&["schema", "validate", "cassette", file.to_str().unwrap(), "--json"]).document();
        assert_eq!(done.code, Some(0), "{line}: {done:?}");
    }
    for line in [r#"{"text": 7}"#, r#"{"txt": "hi"}"#, r#"{"error": {"kind": "boredom"}}"#] {
        let file = env.outside("line.json", line);
        let done =
            env.thcode(&["schema", "validate", "cassette", file.to_str().unwrap(), "--json"]).document();
        assert_eq!(done.code, Some(1), "{line}: {done:?}");
    }
}
