//! Memory: a large file and a large tree take no more of it than a small one.

use std::{fs, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{env::TestEnv, power::stopped};

/// What a run may take beside what it takes anyway.
const MOST_KIB: u64 = 32 << 10;

const POLICY: &str = r#"
version = 1

[[rule]]
id         = "write"
effect     = "allow"
tools      = ["delete_file"]
when.write = ["**"]

[[rule]]
id        = "read"
effect    = "allow"
tools     = ["list_files", "search_text"]
when.read = ["**"]
"#;

/// The most memory that a run of these replies took, in KiB: it stops at each of its steps, and the
/// last is asked.
fn peak(env: &TestEnv, replies: &[Value]) -> u64 {
    let cassette = env.cassette(&[replies, &[json!({"text": "done"})]].concat()).display().to_string();
    let policy = env.outside("all.policy.toml", POLICY).display().to_string();
    let args = ["run", "--json", "--policy", &policy, "--cassette", &cassette, "x"];
    let mut call = env.thcode(&args).env("THCODE_FAULT", "stop");
    let mut child = call.command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let mut most = 0;
    while stopped(pid) {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let told = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        most = told.trim().trim_end_matches(" kB").parse().unwrap();
        kill_process(pid, Signal::CONT).unwrap();
    }
    // It was waited for already.
    drop(child.try_wait());
    most
}

fn call(name: &str, arguments: Value) -> Value {
    json!({"toolCalls": [{"name": name, "arguments": arguments}]})
}

#[test]
fn a_large_file_and_a_large_tree_take_no_more_memory() {
    let env = TestEnv::new();
    let idle = peak(&env, &[]);
    let big = env.file("big.bin", vec![7; 40_000_000]);
    let deleting = peak(&env, &[call("delete_file", json!({"path": "big.bin"}))]);
    assert!(!big.exists());
    for at in 0..10_000 {
        env.file(&format!("d{}/f{at}.txt", at % 100), format!("line of {at}\n"));
    }
    let search = json!({"pattern": "line of 9999"});
    let replies = [call("list_files", json!({"path": "."})), call("search_text", search)];
    let walking = peak(&env, &replies);
    println!(
        "idle {idle} KiB, a file of 40 MB deleted: {} more, a tree of 10,000 files: {} more",
        deleting.saturating_sub(idle),
        walking.saturating_sub(idle)
    );
    assert!(deleting < idle + MOST_KIB, "{deleting} KiB beside {idle}");
    assert!(walking < idle + MOST_KIB, "{walking} KiB beside {idle}");
}
