//! Policy files as a run loads them: where a file was read decides what it may do.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use expect_test::expect;
use serde_json::json;

use crate::env::{Done, TestEnv, stable};

const GRANT: &str = "version = 1\n[[rule]]\nid = \"edit\"\neffect = \"allow\"\ntools = [\"edit_file\"]\nwhen.write = [\"src/**\"]\n";
const DENY: &str = "version = 1\n[[rule]]\nid = \"no-a\"\neffect = \"deny\"\ntools = [\"read_file\"]\nreason = \"a is private\"\nwhen.read = [\"a.txt\"]\n";

fn explain(env: &TestEnv, policy: &[&str], tool: &str, input: &str) -> Done {
    let policy: Vec<&str> = policy.iter().flat_map(|file| ["--policy", *file]).collect();
    env.thcode(
        &[&["policy", "explain", "--json", "--tool", tool, "--input", input][..], &policy].concat(),
    )
    .document()
}

fn git(env: &TestEnv, args: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"])
        .args(args)
        .current_dir(env.workspace())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_broken_policy_tells_every_mistake_with_its_position() {
    let env = TestEnv::new();
    let file = env.outside(
        "broken.policy.toml",
        "version = 1\nmoed = \"plan\"\n\n[[rule]]\nid = \"r\"\neffect = \"permit\"\ntools = [\"raed_file\"]\n",
    );
    let done = env.thcode(&["policy", "check", file.to_str().unwrap()]).run();
    assert_eq!(done.code, Some(2));
    expect![[r#"
        <dir>/out/broken.policy.toml:2:1: `moed` isn't a key of a policy; did you mean `mode`?
        2 | moed = "plan"
          | ^^^^
        <dir>/out/broken.policy.toml:6:10: `effect` must be `allow` or `ask` or `deny`
        6 | effect = "permit"
          |          ^^^^^^^^
        <dir>/out/broken.policy.toml:7:10: there is no tool `raed_file`; did you mean `read_file`?
        7 | tools = ["raed_file"]
          |          ^^^^^^^^^^^

        USAGE (2): 3 faults in the policy files
        0 rules, 0 examples, 3 faults
        next: mend what the message names; `thcode VERB --help` shows the right form
    "#]]
    .assert_eq(&stable(&done.stdout, &env));
    let cassette = env.cassette(&[json!({"text": "x"})]);
    let run = env
        .thcode(&[
            "run",
            "--json",
            "--policy",
            file.to_str().unwrap(),
            "--cassette",
            cassette.to_str().unwrap(),
            "x",
        ])
        .document();
    assert_eq!((run.code, run.end().2.as_str()), (Some(2), "policy-invalid"));
    let message = run.json()["failure"]["message"].as_str().unwrap().to_owned();
    for place in [":2:1: ", ":6:10: ", ":7:10: "] {
        assert!(message.contains(place), "{place} {message}");
    }
}

#[test]
fn a_policy_that_fails_its_own_example_does_not_load() {
    let env = TestEnv::new();
    let text = format!("{DENY}match = [{{ tool = \"read_file\", path = \"b.txt\" }}]\n");
    let file = env.outside("own.policy.toml", text);
    let cassette = env.cassette(&[json!({"text": "x"})]);
    let done = env
        .thcode(&[
            "run",
            "--json",
            "--policy",
            file.to_str().unwrap(),
            "--cassette",
            cassette.to_str().unwrap(),
            "x",
        ])
        .document();
    assert_eq!((done.code, done.end().2.as_str()), (Some(2), "policy-invalid"));
}

#[test]
fn files_that_can_not_be_read_are_told() {
    let env = TestEnv::new();
    for (name, cause) in [
        ("/no/such/file", "policy-unreadable"),
        ("/dev/zero", "policy-unreadable"),
        ("/", "policy-unreadable"),
        ("preset:nonesuch", "preset-unknown"),
        ("git:HEAD", "policy-unreadable"),
        ("git:HEAD:x.toml", "policy-unreadable"),
    ] {
        let done = explain(&env, &[name], "read_file", r#"{"path":"a"}"#);
        assert_eq!((done.code, done.end().2.as_str()), (Some(2), cause), "{name}: {done:?}");
    }
}

#[test]
fn a_file_of_the_workspace_may_tighten_and_never_grant() {
    let env = TestEnv::new();
    env.file("a.txt", "a");
    env.file("deny.policy.toml", DENY);
    env.file("grant.policy.toml", GRANT);
    let done = explain(&env, &["preset:review", "deny.policy.toml"], "read_file", r#"{"path":"a.txt"}"#);
    assert_eq!(done.json()["explanation"]["ruleId"], "no-a");
    let files = done.json()["files"].as_array().unwrap().clone();
    let tier = |name: &str| files.iter().find(|file| file["name"] == name).unwrap()["tier"].clone();
    assert_eq!((tier("preset:review"), tier("deny.policy.toml")), (json!("run"), json!("repo")));
    let done = explain(&env, &["grant.policy.toml"], "edit_file", r#"{"path":"src/a.rs"}"#);
    assert_eq!((done.code, done.end().2.as_str()), (Some(2), "policy-grants-from-workspace"));
    let ways = done.json()["failure"]["recoveryActions"].as_array().unwrap().len();
    assert_eq!(ways, 3, "the three ways out");
}

/// Whichever way the tree's author makes a name lead, a file that the tree chose is the tree's.
#[test]
fn links_do_not_launder_a_file_of_the_workspace() {
    let env = TestEnv::new();
    let outside = env.outside("grant.policy.toml", GRANT);
    env.file("grant.policy.toml", GRANT);
    symlink(env.workspace().join("grant.policy.toml"), env.beside("into.policy.toml")).unwrap();
    symlink(&outside, env.workspace().join("out.policy.toml")).unwrap();
    symlink(env.workspace().join("out.policy.toml"), env.beside("through.policy.toml")).unwrap();
    let input = r#"{"path":"src/a.rs"}"#;
    for name in ["into.policy.toml", "through.policy.toml"] {
        let done = explain(&env, &[env.beside(name).to_str().unwrap()], "edit_file", input);
        assert_eq!(done.end().2, "policy-grants-from-workspace", "{name}");
    }
    let done = explain(&env, &["out.policy.toml"], "edit_file", input);
    assert_eq!(done.end().2, "policy-grants-from-workspace");
    let done = explain(&env, &[outside.to_str().unwrap()], "edit_file", input);
    assert_eq!((done.code, &done.json()["explanation"]["decision"]), (Some(0), &json!("allow")));
}

#[test]
fn a_pinned_bundle_may_grant_and_another_may_not_stand_for_it() {
    let env = TestEnv::new();
    env.file("grant.policy.toml", GRANT);
    let checked = env.thcode(&["policy", "check", "grant.policy.toml", "--json"]).document();
    let digest = checked.json()["digest"].as_str().unwrap().to_owned();
    let ask = || {
        let input = r#"{"path":"src/a.rs"}"#;
        let args = [
            "policy",
            "explain",
            "--json",
            "--policy",
            "grant.policy.toml",
            "--policy-digest",
            &digest,
            "--tool",
            "edit_file",
            "--input",
            input,
        ];
        env.thcode(&args).document()
    };
    assert_eq!(ask().code, Some(0));
    env.file("grant.policy.toml", format!("{GRANT}# one more line\n"));
    let done = ask();
    assert_eq!((done.code, done.end().2.as_str()), (Some(2), "policy-digest-mismatch"));
    // The slip that everybody makes once: the digest of the file alone.
    let checked = env.thcode(&["policy", "check", "grant.policy.toml", "--json"]).document().json();
    let file = checked["files"][0]["digest"].as_str().unwrap();
    let bundle = checked["digest"].as_str().unwrap();
    assert_ne!(file, bundle);
    let pinned = ["run", "--json", "--policy", "grant.policy.toml", "--policy-digest", file, "x"];
    let done = env.thcode(&pinned).document();
    let failure = &done.json()["failure"];
    assert!(failure["message"].as_str().unwrap().contains("grant.policy.toml alone"), "{done:?}");
    assert!(failure["recoveryActions"][0].as_str().unwrap().ends_with(bundle), "{done:?}");
    let text = env.thcode(&["policy", "check", "grant.policy.toml"]).run();
    assert!(text.stdout.contains(&format!("bundle: {bundle} (what --policy-digest pins")), "{text:?}");
}

#[test]
fn a_revision_gives_authority_unless_it_is_what_is_checked_out() {
    let env = TestEnv::new();
    env.file("ci/grant.policy.toml", GRANT);
    git(&env, &["init", "-q", "-b", "main"]);
    git(&env, &["add", "-A"]);
    git(&env, &["commit", "-q", "-m", "one"]);
    let input = r#"{"path":"src/a.rs"}"#;
    let head = explain(&env, &["git:HEAD:ci/grant.policy.toml"], "edit_file", input);
    assert_eq!(
        head.end().2,
        "policy-grants-from-workspace",
        "the checked-out commit is the tree's word"
    );
    git(&env, &["branch", "reviewed"]);
    env.file("ci/grant.policy.toml", "not a policy any more");
    git(&env, &["commit", "-q", "-am", "two"]);
    let done = explain(&env, &["git:reviewed:ci/grant.policy.toml"], "edit_file", input);
    assert_eq!((done.code, &done.json()["files"][0]["tier"]), (Some(0), &json!("run")), "{done:?}");
    let done = explain(&env, &["git:reviewed:ci/none.toml"], "edit_file", input);
    assert_eq!(done.end().2, "revision-missing");
    for option in ["git:--help:x", "git:-x:x", "git::x"] {
        assert_eq!(explain(&env, &[option], "edit_file", input).end().2, "revision-missing", "{option}");
    }
}

#[test]
fn a_shallow_clone_is_told_which_fetch_brings_the_revision() {
    let env = TestEnv::new();
    git(&env, &["init", "-q", "-b", "main"]);
    env.file("p.toml", GRANT);
    git(&env, &["add", "-A"]);
    git(&env, &["commit", "-q", "-m", "one"]);
    for (rev, fetch) in [
        ("origin/main", "git fetch --depth=1 origin main:refs/remotes/origin/main"),
        (
            "0123456789abcdef0123456789abcdef01234567",
            "git fetch --depth=1 origin 0123456789abcdef0123456789abcdef01234567",
        ),
        ("HEAD~3", "git fetch --unshallow origin"),
    ] {
        let done = explain(&env, &[&format!("git:{rev}:p.toml")], "read_file", r#"{"path":"a"}"#);
        assert_eq!(done.end().2, "revision-missing");
        let action = done.json()["failure"]["recoveryActions"][0].as_str().unwrap().to_owned();
        assert_eq!(action, format!("bring it: {fetch}"));
    }
}

/// What a repository can bring along to have code run, or another object served, when it is read.
#[test]
fn reading_a_revision_runs_nothing_and_takes_no_replacement() {
    let env = TestEnv::new();
    git(&env, &["init", "-q", "-b", "main"]);
    env.file("p.toml", DENY);
    git(&env, &["add", "-A"]);
    git(&env, &["commit", "-q", "-m", "one"]);
    git(&env, &["branch", "reviewed"]);
    env.file("p.toml", GRANT);
    git(&env, &["commit", "-q", "-am", "two"]);
    // A replacement object that would serve the grant under the reviewed revision's name.
    let reviewed = git(&env, &["rev-parse", "reviewed:p.toml"]);
    let grant = git(&env, &["rev-parse", "HEAD:p.toml"]);
    git(&env, &["replace", &reviewed, &grant]);
    let touched = env.beside("touched");
    let hostile = format!("touch {}; cat", touched.display());
    for (key, value) in [
        ("core.fsmonitor", hostile.as_str()),
        ("core.pager", &hostile),
        ("filter.x.smudge", &hostile),
        ("diff.external", &hostile),
        ("core.sshCommand", &hostile),
        ("core.hooksPath", "hooks"),
    ] {
        git(&env, &["config", key, value]);
    }
    fs::write(env.workspace().join(".git/info/attributes"), "*.toml filter=x\n").unwrap();
    let done = explain(&env, &["git:reviewed:p.toml"], "read_file", r#"{"path":"a.txt"}"#);
    assert_eq!(done.json()["explanation"]["ruleId"], "no-a", "the object itself, not its replacement");
    assert!(!Path::new(&touched).exists(), "something was run");
}

#[test]
fn explain_tells_the_rule_and_what_nearly_matched() {
    let env = TestEnv::new();
    env.file("src/a.rs", "");
    env.file("src/.env", "");
    let policy = env.outside("p.policy.toml", GRANT);
    let p = policy.to_str().unwrap();
    let done = explain(&env, &[p], "edit_file", r#"{"path":"docs/a.md"}"#);
    assert_eq!(done.code, Some(20));
    let explanation = &done.json()["explanation"];
    assert_eq!(explanation["because"], "default");
    assert_eq!(explanation["nearMisses"][0]["ruleId"], "edit");
    assert_eq!(explanation["nearMisses"][0]["condition"], "when.write");
    for (tool, input, because) in [
        ("read_file", r#"{"path":"src/.env"}"#, "floor"),
        ("read_file", r#"{"path":"../x"}"#, "floor"),
        ("read_file", r#"{"path":"src/a.rs","path":"b"}"#, "bad-arguments"),
        ("read_file", r#"{"path":"src/a.rs","mode":"x"}"#, "bad-arguments"),
        ("read_file", r#"{"path":"file:///x"}"#, "bad-arguments"),
        ("read_file\u{200b}", r#"{"path":"src/a.rs"}"#, "matrix"),
        ("run_command", r#"{"command":"ls"}"#, "bad-arguments"),
        ("run_command", r#"{"argv":["ls"]}"#, "default"),
        ("run_command", r#"{"argv":["sh","-c","ls"]}"#, "unresolved"),
        ("run_command", r#"{"argv":["cat",".git/config"]}"#, "floor"),
    ] {
        let done = explain(&env, &[p], tool, input);
        assert_eq!(
            (done.code, &done.json()["explanation"]["because"]),
            (Some(20), &json!(because)),
            "{tool} {input}"
        );
    }
    let call = env.outside("call.json", r#"{"tool":"read_file","input":{"path":"src/a.rs"}}"#);
    let done = env
        .thcode(&["policy", "explain", "--json", "--policy", p, "--call", call.to_str().unwrap()])
        .document();
    assert_eq!((done.code, &done.json()["explanation"]["because"]), (Some(0), &json!("matrix")));
    let plan = env
        .thcode(&[
            "policy",
            "explain",
            "--json",
            "--policy",
            p,
            "--mode",
            "plan",
            "--tool",
            "edit_file",
            "--input",
            r#"{"path":"src/a.rs"}"#,
        ])
        .document();
    assert_eq!((plan.code, &plan.json()["explanation"]["because"]), (Some(20), &json!("matrix")));
}

#[test]
fn a_caller_s_mode_may_only_lower() {
    let env = TestEnv::new();
    let cassette = env.cassette(&[json!({"text": "x"})]);
    let done = env
        .thcode(&["run", "--json", "--mode", "build", "--cassette", cassette.to_str().unwrap(), "x"])
        .document();
    assert_eq!((done.code, done.end().2.as_str()), (Some(2), "bad-argument"));
}

/// Who may push a tag, or a branch with a slash in its name, isn't who may review.
#[test]
fn a_revision_s_name_means_one_thing() {
    let env = TestEnv::new();
    git(&env, &["init", "-q", "-b", "main"]);
    env.file("p.toml", GRANT);
    git(&env, &["add", "-A"]);
    git(&env, &["commit", "-q", "-m", "evil"]);
    git(&env, &["tag", "origin/main"]);
    git(&env, &["tag", "release"]);
    env.file("p.toml", DENY);
    git(&env, &["commit", "-q", "-am", "good"]);
    let input = r#"{"path":"src/a.rs"}"#;
    let ask = |rev: &str| explain(&env, &[&format!("git:{rev}:p.toml")], "edit_file", input);
    assert_eq!(
        ask("origin/main").end().2,
        "revision-missing",
        "a tag of that name is not the remote's branch"
    );
    git(&env, &["update-ref", "refs/remotes/origin/main", "HEAD"]);
    git(&env, &["commit", "-q", "--allow-empty", "-m", "three"]);
    assert_eq!(
        ask("origin/main").json()["explanation"]["because"],
        "default",
        "the remote's branch has no grant"
    );
    assert_eq!(ask("release").code, Some(0), "a tag that is alone of its name");
    git(&env, &["branch", "release", "HEAD~1"]);
    assert_eq!(ask("release").end().2, "revision-missing", "a tag and a branch of one name");
    assert_eq!(ask("refs/tags/release").code, Some(0));
}

#[test]
fn a_bare_repository_in_the_tree_answers_nothing() {
    let env = TestEnv::new();
    git(&env, &["init", "-q", "-b", "main"]);
    git(&env, &["init", "-q", "--bare", "svc"]);
    env.file("x/p.toml", GRANT);
    git(&env, &["-C", "svc", "--work-tree", "../x", "add", "p.toml"]);
    git(&env, &["-C", "svc", "--work-tree", "../x", "commit", "-q", "-m", "evil"]);
    git(&env, &["-C", "svc", "update-ref", "refs/remotes/origin/main", "HEAD"]);
    git(&env, &["-C", "svc", "symbolic-ref", "HEAD", "refs/heads/none"]);
    let input = r#"{"path":"src/a.rs"}"#;
    let args = [
        "policy",
        "explain",
        "--json",
        "-C",
        "svc",
        "--policy",
        "git:origin/main:p.toml",
        "--tool",
        "edit_file",
        "--input",
        input,
    ];
    assert_ne!(env.thcode(&args).document().code, Some(0));
}

#[test]
fn no_link_on_the_way_and_no_place_above_launders_a_file() {
    let env = TestEnv::new();
    env.outside("grant.policy.toml", GRANT);
    fs::create_dir(env.workspace().join("sub")).unwrap();
    symlink(env.beside(""), env.workspace().join("lnk")).unwrap();
    symlink(env.workspace(), env.beside("into")).unwrap();
    env.file("grant.policy.toml", GRANT);
    let input = r#"{"path":"src/a.rs"}"#;
    let through = env.beside("into/lnk/grant.policy.toml");
    for name in ["lnk/grant.policy.toml", "sub/../lnk/grant.policy.toml", through.to_str().unwrap()] {
        assert_eq!(
            explain(&env, &[name], "edit_file", input).end().2,
            "policy-grants-from-workspace",
            "{name}"
        );
    }
    git(&env, &["init", "-q"]);
    let args = [
        "policy",
        "explain",
        "--json",
        "-C",
        "sub",
        "--policy",
        "grant.policy.toml",
        "--tool",
        "edit_file",
        "--input",
        input,
    ];
    let above = env.thcode(&args).document();
    assert_eq!(
        above.end().2,
        "policy-grants-from-workspace",
        "above -C, and still of the checked-out tree"
    );
}

/// The way may pass through the tree, as long as nobody but the caller chose it.
#[test]
fn a_way_that_leads_out_again_is_judged_by_where_it_ends() {
    let env = TestEnv::new();
    env.outside("grant.policy.toml", GRANT);
    env.file("sub/deep/x", "");
    let input = r#"{"path":"src/a.rs"}"#;
    let absolute = env.workspace().join("sub/../../out/grant.policy.toml");
    for name in [
        "../out/grant.policy.toml",
        "sub/deep/../../../out/grant.policy.toml",
        absolute.to_str().unwrap(),
    ] {
        let done = explain(&env, &[name], "edit_file", input);
        assert_eq!(done.code, Some(0), "{name}: {done:?}");
    }
    // Out of the tree and in again, and out through a link whose target is a directory of the tree.
    env.file("grant.policy.toml", GRANT);
    symlink("sub/deep", env.workspace().join("lnk")).unwrap();
    for name in ["../ws/grant.policy.toml", "lnk/../../../out/grant.policy.toml"] {
        let done = explain(&env, &[name], "edit_file", input);
        assert_eq!(done.end().2, "policy-grants-from-workspace", "{name}: {done:?}");
    }
}

#[test]
fn an_empty_pin_is_told_as_an_unset_variable() {
    let env = TestEnv::new();
    let args = ["policy", "explain", "--json", "--tool", "read_file", "--input", r#"{"path":"a"}"#];
    let more = ["--policy", "preset:review", "--policy-digest", ""];
    let done = env.thcode(&[&args[..], &more].concat()).document();
    assert_eq!((done.code, done.end().2.as_str()), (Some(2), "bad-argument"));
    let message = done.json()["failure"]["message"].to_string();
    assert!(message.contains("--policy-digest is empty") && message.contains("unset"), "{message}");
}

const COMMANDS: &str = "version = 1\n[sandbox]\nmode = \"off\"\n[[rule]]\nid = \"c\"\neffect = \"allow\"\ntools = [\"run_command\"]\nwhen.command = ";

#[test]
fn a_grant_that_can_never_apply_is_a_fault() {
    let env = TestEnv::new();
    let check = |command: &str| {
        let file = env.outside("c.policy.toml", format!("{COMMANDS}{command}\n"));
        env.thcode(&["policy", "check", "--json", file.to_str().unwrap()]).document()
    };
    for (command, instead) in [
        ("[\"sed -i …\"]", "--sandbox"),
        ("[\"ls\", \"sed s/a/b/ f\"]", "--sandbox"),
        ("[\"sh -c …\"]", "made executable"),
        ("[\"bash check.sh\"]", "made executable"),
        ("[\"python3 -c …\"]", "script file"),
        ("[\"node --eval …\"]", "script file"),
        ("[\"find . -exec …\"]", "-exec"),
        ("[\"xargs …\"]", "by its own words"),
        ("[\"env A=1 cargo test\"]", "by its own words"),
        ("[\"git -c a.b=c log\"]", "leave out the flag"),
        ("[{ argv = [[\"cargo\", \"sudo\"], \"test\"], rest = \"any\" }]", "by its own words"),
    ] {
        let done = check(command);
        assert_eq!(
            (done.code, done.end().2.as_str()),
            (Some(2), "policy-invalid"),
            "{command}: {done:?}"
        );
        let told = done.json()["diagnostics"][0]["message"].as_str().unwrap().to_owned();
        assert!(told.contains("can never apply") && told.contains(instead), "{command}: {told}");
    }
    for command in [
        "[\"sed --sandbox -i …\"]",
        "[\"sed -n …\"]",
        "[\"sed -n 1,20p …\"]",
        "[{ argv = [\"sed\"], rest = { flags = [\"--sandbox\", \"-i\"], operands = \"any\" } }]",
        "[\"command -v cargo\"]",
        "[\"find …\"]",
        "[\"python3 -m unittest …\"]",
        "[\"git log …\"]",
        "[\"./sed.sh …\"]",
    ] {
        assert_eq!(check(command).code, Some(0), "{command}: {:?}", check(command));
    }
    // A deny of them is what one writes.
    let deny =
        COMMANDS.replace("allow", "deny").replace("when.command = ", "reason = \"no\"\nwhen.command = ");
    let file = env.outside("d.policy.toml", format!("{deny}[\"sh -c …\"]\n"));
    assert_eq!(env.thcode(&["policy", "check", file.to_str().unwrap()]).run().code, Some(0));
    // The caller's own grant is read the same way.
    let file = env.outside("ls.policy.toml", format!("{COMMANDS}[\"ls\"]\n"));
    let cassette = env.cassette(&[json!({"text": "x"})]).display().to_string();
    let args = ["run", "--json", "--policy", file.to_str().unwrap(), "--cassette", &cassette];
    let done = env.thcode(&[&args[..], &["--allow-command", "sed -i …", "x"]].concat()).document();
    assert_eq!((done.code, done.end().2.as_str()), (Some(2), "policy-invalid"), "{done:?}");
    // At the call, too, nothing leads to a grant, and a command is no path outside the workspace.
    let input = r#"{"argv":["sed","-i","s/a/b/","f"]}"#;
    let explain = ["policy", "explain", "--tool", "run_command", "--input", input];
    let done = env.thcode(&[&explain[..], &["--policy", file.to_str().unwrap()]].concat()).run();
    expect![[r#"
        deny: `sed -i s/a/b/ f` can't be pinned down (runs-its-operands), and what can't be is denied.
        suggest: No grant covers that: a script of `sed` can run programs and write files: change files with edit_file, look at lines with `sed -n 1,20p FILE`, or add `--sandbox`.
        subject: exec sed -i s/a/b/ f: deny
        near miss: allow c (<dir>/out/ls.policy.toml:4): when.command saw sed -i s/a/b/ f, wants ls
        file: <dir>/out/ls.policy.toml <digest>
        bundle: <digest> (what --policy-digest pins: all these files together)

        BLOCKED (20): run_command would not be allowed: `sed -i s/a/b/ f` can't be pinned down (runs-its-operands), and what can't be is denied.
        1 rule, 0 examples, 0 faults
        next: leave it: no policy can allow this call; the reason above says what to do instead
    "#]].assert_eq(&stable(&done.stdout, &env));
}

#[test]
fn a_file_of_the_tree_raises_no_budget() {
    let env = TestEnv::new();
    env.file("wide.policy.toml", "version = 1\n[budget]\niterations = 4000\n");
    env.file("narrow.policy.toml", "version = 1\n[budget]\niterations = 3\n");
    let cassette = env.cassette(&[json!({"text": "x"})]);
    let limit = |policies: &[&str]| {
        let policies: Vec<&str> = policies.iter().flat_map(|file| ["--policy", *file]).collect();
        let args =
            [&["run", "--json", "--cassette", cassette.to_str().unwrap(), "x"][..], &policies].concat();
        env.thcode(&args).document().json()["budget"]["iterations"]["limit"].clone()
    };
    assert_eq!(limit(&["wide.policy.toml"]), 8);
    assert_eq!(limit(&["narrow.policy.toml"]), 3);
    assert_eq!(limit(&["preset:refactor", "wide.policy.toml"]), 50);
    assert_eq!(limit(&["preset:refactor", "narrow.policy.toml"]), 3);
}

#[test]
fn what_is_extended_leads_nowhere_else() {
    let env = TestEnv::new();
    let secret = env.outside("secret.txt", "root:x:0:0:secret-content");
    symlink(&secret, env.workspace().join("l.toml")).unwrap();
    env.file("e.policy.toml", "version = 1\nextends = [\"l.toml\"]\n");
    let done = env.thcode(&["policy", "check", "e.policy.toml", "--json"]).document();
    assert_eq!(done.code, Some(2));
    assert!(
        done.stdout.contains("symbolic link") && !done.stdout.contains("secret-content"),
        "{done:?}"
    );
}
