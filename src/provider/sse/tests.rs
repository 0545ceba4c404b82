//! The event stream, cut at every place.

use std::pin::pin;

use proptest::prelude::*;

use super::*;
use crate::provider::message::ProviderErrorKind;

/// The data of all events, or the first failure.
fn read(pieces: &[&[u8]]) -> Result<Vec<String>, ProviderError> {
    let pieces: Vec<_> = pieces.iter().map(|piece| Ok(piece.to_vec())).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut events = pin!(events(stream::iter(pieces)));
        let mut all = Vec::new();
        while let Some(event) = events.next().await {
            all.push(event?.data);
        }
        Ok(all)
    })
}

/// The same, whole, in two pieces cut at each byte, and byte by byte.
#[track_caller]
fn reads(bytes: &[u8], expected: &[&str]) {
    assert_eq!(read(&[bytes]).unwrap(), expected);
    for at in 0..=bytes.len() {
        let (one, two) = bytes.split_at(at);
        assert_eq!(read(&[one, two]).unwrap(), expected, "cut at {at}");
    }
    assert_eq!(read(&bytes.chunks(1).collect::<Vec<_>>()).unwrap(), expected, "byte by byte");
}

#[test]
fn every_line_end_and_every_cut() {
    reads(b"data: a\n\ndata: b\n\n", &["a", "b"]);
    reads(b"data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
    reads(b"data: a\r\rdata: b\r\r", &["a", "b"]);
    reads(b"data: a\r\n\ndata: b\n\r\n", &["a", "b"]);
}

#[test]
fn bom_comments_and_several_data_lines() {
    reads(b"\xEF\xBB\xBFdata: a\n\n", &["a"]);
    reads(b"\xEF\xBB\xBF: hello\r\n\r\ndata:a\r\n\r\n", &["a"]);
    reads(b": c\ndata: a\n: d\ndata:  b\ndata\n\n:\n\n", &["a\n b\n"]);
    reads(b"event: x\nid: 1\nretry: 5\nother: y\ndata: a\n\nid: 2\n\n", &["a"]);
    reads("data: ก😀é\n\n".as_bytes(), &["ก😀é"]);
}

#[test]
fn a_last_event_counts_without_a_blank_line() {
    for end in ["", "\n", "\r", "\r\n"] {
        reads(format!("data: a\n\ndata: b{end}").as_bytes(), &["a", "b"]);
    }
    reads(b"", &[]);
}

#[test]
fn the_type_of_an_event_is_told() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let bytes = stream::iter([Ok(b"event: error\ndata: a\n\ndata: b\n\n".to_vec())]);
    let names: Vec<_> =
        runtime.block_on(events(bytes).map(|event| event.unwrap().name).collect::<Vec<_>>());
    assert_eq!(names, [Some("error".to_owned()), None]);
}

#[test]
fn what_is_not_utf8_is_a_protocol_error() {
    let failed = read(&[b"data: a\n\ndata: \xff\n\n"]).unwrap_err();
    assert_eq!(failed.kind, ProviderErrorKind::Protocol);
}

#[test]
fn a_line_may_have_its_length_and_not_a_byte_more() {
    let line = |length: usize| {
        let mut line = b"data: ".to_vec();
        line.resize(length, b'x');
        line.extend(b"\n\n");
        line
    };
    let longest = line(LONGEST_LINE);
    for size in [longest.len(), 4096, 1023] {
        let pieces: Vec<_> = longest.chunks(size).collect();
        assert_eq!(read(&pieces).unwrap().concat().len(), LONGEST_LINE - 6);
    }
    let failed = read(&[&line(LONGEST_LINE + 1)]).unwrap_err();
    assert_eq!(failed, ProviderError::protocol("a line of the event stream is over 1 MiB"));
    // Not only data lines.
    let mut comment = vec![b':'; LONGEST_LINE + 1];
    assert_eq!(read(&[&comment]).unwrap_err().kind, ProviderErrorKind::Protocol);
    comment.truncate(LONGEST_LINE);
    comment.extend(b"\ndata: a\n\n");
    assert_eq!(read(&[&comment]).unwrap(), ["a"]);
}

#[test]
fn an_event_of_many_lines_is_bounded_and_heartbeats_are_not() {
    let lines = b"data: 0123456789\n".repeat(LONGEST_EVENT / 16 + 1);
    assert_eq!(
        read(&[&lines]).unwrap_err(),
        ProviderError::protocol("an event of the stream is over 4 MiB")
    );
    let pings = b": ping 0123456789\r\n".repeat(LONGEST_EVENT / 16 + 1);
    assert_eq!(read(&[b"data: a\r\n", &pings, b"\r\n"]).unwrap(), ["a"]);
    let events = b"data: 0123456789\r\n\r\n".repeat(LONGEST_EVENT / 16 + 1);
    assert_eq!(read(&[&events]).unwrap().len(), LONGEST_EVENT / 16 + 1);
}

#[test]
fn a_failure_of_the_bytes_comes_through() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let broken = ProviderError::new(ProviderErrorKind::Network, "reset");
    let bytes = stream::iter([Ok(b"data: a\n\ndata: b".to_vec()), Err(broken.clone())]);
    let all: Vec<_> = runtime.block_on(events(bytes).collect());
    assert_eq!(all.len(), 2, "no half event");
    assert_eq!(all.last().unwrap(), &Err(broken));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cuts_change_nothing(
        text in "((data|event|:|x)?(: ?)?[a-zéก]{0,3}(\n|\r|\r\n){0,2}){0,12}",
        cuts in prop::collection::vec(1..5usize, 1..6),
    ) {
        let whole = read(&[text.as_bytes()]).unwrap();
        let (mut rest, mut pieces) = (text.as_bytes(), Vec::new());
        for step in cuts.iter().cycle() {
            let (piece, later) = rest.split_at((*step).min(rest.len()));
            pieces.push(piece);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(read(&pieces).unwrap(), whole);
    }

    #[test]
    fn garbage_is_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(read(&[&bytes]));
    }
}
