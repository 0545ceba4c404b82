//! Cassettes as people write them, right and wrong.

use schemars::generate::SchemaSettings;

use super::*;

const HEADER: &str = r#"{"cassette": "thcode.cassette/v1"}"#;

fn faults(lines: &str) -> String {
    Cassette::parse(lines).unwrap_err().to_string()
}

#[test]
fn a_cassette_is_read_with_all_that_it_may_hold() {
    let text = "\u{feff}# by hand\r\n\n  # indented\n".to_owned()
        + r##"{"cassette": "thcode.cassette/v1", "description": "all of it"}
  {"text": "hi", "toolCalls": [{"name": "f", "arguments": {"a":1,  "a" :2}}, {"id": "x", "name": "g", "arguments": "{\"cut"}], "finish": "length", "usage": {"inputTokens": 1, "outputTokens": 2}, "requestDigest": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
{"error": {"kind": "rate-limit", "message": "slow", "retryAfterMs": 5}}"##;
    let cassette = Cassette::parse(&text).unwrap();
    assert_eq!(cassette.description, "all of it");
    assert_eq!(cassette.len(), 2);
    let call = |id: Option<&str>, name: &str, arguments: &str| CallLine {
        id: id.map(str::to_owned),
        name: name.to_owned(),
        arguments: Arguments(arguments.to_owned()),
    };
    let reply = ReplyLine {
        text: "hi".to_owned(),
        tool_calls: vec![call(None, "f", r#"{"a":1,  "a" :2}"#), call(Some("x"), "g", "{\"cut")],
        finish: FinishLine::Length,
        usage: Some(UsageLine { input_tokens: 1, output_tokens: 2 }),
        request_digest: Some(Digest::of(b"")),
    };
    assert_eq!(cassette.tracks[0], Track { line: 5, answer: Answer::Reply(reply) });
    let error = ErrorObject {
        kind: ErrorKind::RateLimit,
        message: Some("slow".to_owned()),
        retry_after_ms: Some(5),
    };
    let error = ErrorLine { error, request_digest: None };
    assert_eq!(cassette.tracks[1], Track { line: 6, answer: Answer::Error(error) });
    assert!(Cassette::parse(HEADER).unwrap().is_empty());
}

#[test]
fn every_bad_line_is_told_at_once_by_its_place() {
    let text = [
        HEADER,
        r#"{"text": "fine"}"#,
        r#"{"txt": "no such field"}"#,
        r#"{"text": "cut"#,
        r#"  {"text": 1}"#,
        r#"{"error": {"kind": "stalled"}}"#,
        r#"{"error": {"kind": "stall", "code": 1}}"#,
        r#"{"error": {"kind": "stall"}, "text": "both"}"#,
        r#"{"toolCalls": [{"name": "f", "arguments": [1]}]}"#,
        r#"{"toolCalls": [{"name": "f"}]}"#,
        r#"{"toolCalls": [{"name": "", "arguments": {}}]}"#,
        r#"{"text": "a", "text": "b"}"#,
        r#"{"text": "a", "finish": "eos"}"#,
        r#"{"text": "a", "requestDigest": "sha256:0"}"#,
        "{}",
        HEADER,
        "[]",
        "// no comment",
        r#"{"text": "a"} {"text": "b"}"#,
        r#"{"error": ["stall", null, null]}"#,
        r#"{"text": "a", "usage": [1, 2]}"#,
        r#"{"toolCalls": [["id", "f", {}]]}"#,
    ]
    .join("\n");
    expect_test::expect![[r#"
        3:6: unknown field `txt`, expected one of `text`, `toolCalls`, `finish`, `usage`, `requestDigest`
        4:13: EOF while parsing a string
        5:12: invalid type: integer `1`, expected a string
        6:28: unknown variant `stalled`, expected one of `rate-limit`, `server`, `network`, `protocol`, `stall`, `empty`, `auth`, `client`, `context-overflow`, `unknown`
        7:34: unknown field `code`, expected one of `kind`, `message`, `retryAfterMs`
        8:35: unknown field `text`, expected `error` or `requestDigest`
        9:46: arguments are an object or a string
        10:28: missing field `arguments`
        11:1: a tool call without a name
        12:20: duplicate field `text`
        13:29: unknown variant `eos`, expected one of `stop`, `length`, `content-filter`
        14:42: not a valid digest (sha256: and 64 lower-case hex digits)
        15:1: neither text nor toolCalls (a provider's empty answer is {"error": {"kind": "empty"}})
        16:1: a second header
        17:1: invalid type: sequence, expected an object
        18:1: expected value
        19:15: trailing characters
        20:10: invalid type: sequence, expected an object
        21:23: invalid type: sequence, expected an object
        22:15: invalid type: sequence, expected an object"#]]
    .assert_eq(&faults(&text));
}

#[test]
fn faults_are_capped_and_counted() {
    let text = format!("{HEADER}\n{}", "{}\n".repeat(23));
    let faults = Cassette::parse(&text).unwrap_err();
    assert_eq!((faults.faults.len(), faults.more), (20, 3));
    assert!(faults.to_string().ends_with("\nand 3 more"));
}

#[test]
fn the_header_comes_first() {
    let missing = "the first line has to be the header: {\"cassette\": \"thcode.cassette/v1\"}";
    assert_eq!(faults(""), format!("1:1: {missing}"));
    assert_eq!(faults("# only\n\n"), format!("1:1: {missing}"));
    assert_eq!(faults("\n{\"text\": \"a\"}"), format!("2:1: {missing}"));
    assert!(faults(r#"{"cassette": "thcode.cassette/v2"}"#).contains("unknown variant"));
    assert!(faults(r#"{"cassette": "thcode.cassette/v1", "x": 1}"#).contains("unknown field"));
}

/// The schema that is published says the same as the reader.
#[test]
fn the_schema_accepts_what_is_read_and_refuses_the_rest() {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<CassetteLine>();
    let validator = jsonschema::draft202012::new(schema.as_value()).unwrap();
    for (line, good) in [
        (HEADER, true),
        (r#"{"text": "a"}"#, true),
        (r#"{"toolCalls": [{"name": "f", "arguments": {"a": 1}}]}"#, true),
        (r#"{"toolCalls": [{"name": "f", "arguments": "raw", "id": null}]}"#, true),
        (r#"{"error": {"kind": "context-overflow"}}"#, true),
        (r#"{"text": "a", "finish": "content-filter"}"#, true),
        (r#"{"cassette": "thcode.cassette/v2"}"#, false),
        (r#"{"txt": "a"}"#, false),
        (r#"{"toolCalls": [{"name": "f", "arguments": 1}]}"#, false),
        (r#"{"toolCalls": [{"name": "f"}]}"#, false),
        (r#"{"error": {"kind": "cassette-mismatch"}}"#, false),
        (r#"{"text": "a", "requestDigest": "sha256:0"}"#, false),
    ] {
        assert_eq!(read_line(line).is_ok(), good, "{line}");
        assert_eq!(validator.is_valid(&serde_json::from_str(line).unwrap()), good, "{line}");
    }
}
