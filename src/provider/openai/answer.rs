//! What kind of answer arrives. Servers that were asked for a stream may send plain JSON, and
//! proxies lose or change the content type, so the first byte has a say.

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answering {
    /// One JSON object.
    Json,
    /// Server-sent events.
    Events,
    /// No bytes, or white space.
    Nothing,
    /// Something else, an HTML page for instance.
    Other,
}

/// Tells by the content type (in lower case, without parameters), and where that is absent or
/// neither of the two, by the first byte. `{` begins no event, so it is JSON whatever the header.
pub(super) fn kind(content_type: Option<&str>, start: &[u8]) -> Answering {
    let Some(first) = start.iter().find(|byte| !byte.is_ascii_whitespace()) else {
        return Answering::Nothing;
    };
    match (content_type, first) {
        (_, b'{') | (Some("application/json"), _) => Answering::Json,
        (Some("text/event-stream"), _) => Answering::Events,
        // A comment, a byte order mark, or a field: data, event, id, retry.
        (_, b':' | 0xEF | b'd' | b'e' | b'i' | b'r') => Answering::Events,
        _ => Answering::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_and_first_byte_tell() {
        let (json, events, html) =
            (Some("application/json"), Some("text/event-stream"), Some("text/html"));
        for (content_type, start, expected) in [
            (json, " {", Answering::Json),
            (json, "nonsense", Answering::Json),
            (events, "data: x", Answering::Events),
            (events, "nonsense", Answering::Events),
            (events, "{\"error\":1}", Answering::Json),
            (None, "\n{", Answering::Json),
            (None, "\r\ndata:", Answering::Events),
            (html, ": ping", Answering::Events),
            (None, "\u{feff}data: x", Answering::Events),
            (html, "<html>", Answering::Other),
            (None, "[1]", Answering::Other),
            (json, "", Answering::Nothing),
            (events, " \n", Answering::Nothing),
        ] {
            assert_eq!(kind(content_type, start.as_bytes()), expected, "{content_type:?} {start:?}");
        }
    }
}
