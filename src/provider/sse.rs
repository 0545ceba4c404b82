//! Server-sent events out of a body's bytes. The grammar is `sse-stream`'s; ours are the limits
//! that keep memory bounded, and that a last event counts without a blank line behind it.

use std::io::Cursor;

use futures_util::{Stream, StreamExt, stream};
use sse_stream::SseByteStream;

use super::message::ProviderError;

/// The longest line. Bytes, without its end.
pub(super) const LONGEST_LINE: usize = 1 << 20;
/// The longest event: its lines together, comments apart. Bytes.
const LONGEST_EVENT: usize = 4 << 20;

/// An event that carries data.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Its type, where it states one.
    pub(super) name: Option<String>,
    /// Its data lines, joined by LF.
    pub(super) data: String,
}

/// The events of these bytes. A failure of the bytes comes through as it is, and ends the events.
pub(super) fn events(
    bytes: impl Stream<Item = Result<Vec<u8>, ProviderError>>,
) -> impl Stream<Item = Result<Event, ProviderError>> {
    let mut limits = Limits::default();
    let bounded = bytes.map(move |piece| {
        let piece = piece?;
        limits.take(&piece)?;
        Ok::<_, ProviderError>(Cursor::new(piece))
    });
    let end = stream::once(std::future::ready(Ok(Cursor::new(b"\n\n".to_vec()))));
    SseByteStream::new(bounded.chain(end)).filter_map(|event| {
        std::future::ready(match event {
            Ok(event) => event.data.map(|data| Ok(Event { name: event.event, data })),
            Err(sse_stream::Error::Body(source)) => {
                Some(Err(match source.downcast::<ProviderError>() {
                    Ok(own) => *own,
                    Err(_) => ProviderError::protocol("the event stream broke"),
                }))
            }
            Err(_) => Some(Err(ProviderError::protocol("the event stream isn't UTF-8"))),
        })
    })
}

/// How far the current line and event have come.
#[derive(Default)]
struct Limits {
    line: usize,
    event: usize,
    comment: bool,
    after_cr: bool,
}

impl Limits {
    fn take(&mut self, piece: &[u8]) -> Result<(), ProviderError> {
        for byte in piece {
            let lf_of_crlf = std::mem::replace(&mut self.after_cr, *byte == b'\r') && *byte == b'\n';
            match byte {
                b'\n' if lf_of_crlf => {}
                b'\n' | b'\r' => {
                    if self.line == 0 {
                        self.event = 0;
                    }
                    self.line = 0;
                }
                _ => self.grow(*byte)?,
            }
        }
        Ok(())
    }

    fn grow(&mut self, byte: u8) -> Result<(), ProviderError> {
        if self.line == 0 {
            self.comment = byte == b':';
        }
        self.line += 1;
        // Comments are thrown away; a stream of heartbeats isn't an event that grows.
        self.event += usize::from(!self.comment);
        if self.line > LONGEST_LINE {
            return Err(ProviderError::protocol("a line of the event stream is over 1 MiB"));
        }
        if self.event > LONGEST_EVENT {
            return Err(ProviderError::protocol("an event of the stream is over 4 MiB"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
