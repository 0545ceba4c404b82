//! What a command says: always read to its end, so that it never waits for a reader; of it the head
//! and the tail are kept.

use std::collections::VecDeque;

use crate::tool::shown::{beginning, ending, shown};

/// Bytes of the head that are kept.
const HEAD: usize = 64 * 1024;
/// Bytes of the tail that are kept.
const TAIL: usize = 64 * 1024;

/// The output of a command, as far as it is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Output {
    /// Takes what came.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let room = HEAD.saturating_sub(self.head.len()).min(bytes.len());
        let (head, tail) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        self.tail.extend(tail);
        let surplus = self.tail.len().saturating_sub(TAIL);
        drop(self.tail.drain(..surplus));
    }

    /// All the bytes that came.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Head and tail as text, with a line between them that says what was left out.
    pub fn told(&self) -> String {
        let kept = u64::try_from(self.head.len() + self.tail.len()).unwrap_or(u64::MAX);
        let left_out = self.total.saturating_sub(kept);
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if left_out == 0 {
            return shown(&[self.head.as_slice(), &tail].concat());
        }
        format!(
            "{}\n[{left_out} of {} bytes left out here]\n{}",
            shown(beginning(&self.head)),
            self.total,
            shown(ending(&tail))
        )
    }

    /// The last bytes as text, at most so many.
    pub fn last(&self, most: usize) -> String {
        let all = self.head.iter().chain(&self.tail).copied();
        let skip = (self.head.len() + self.tail.len()).saturating_sub(most);
        let bytes: Vec<u8> = all.skip(skip).collect();
        shown(if skip == 0 { &bytes } else { ending(&bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_are_kept_and_the_rest_is_counted() {
        let mut output = Output::default();
        output.push(b"begin ");
        for _ in 0..10_000 {
            output.push(&[b'x'; 1000]);
        }
        output.push("ende\u{301}".as_bytes());
        assert_eq!(output.total(), 6 + 10_000_000 + 6);
        let told = output.told();
        assert!(told.starts_with("begin xxx") && told.ends_with("xxende\u{301}"), "kept at both ends");
        assert!(told.contains(&format!(
            "[{} of {} bytes left out here]",
            output.total() - 131_072,
            output.total()
        )));
        assert!(told.len() < 132_000);
        assert_eq!(output.last(6), "ende\u{301}");
    }

    #[test]
    fn what_is_not_utf_8_is_told_by_its_bytes() {
        let mut output = Output::default();
        output.push(b"caf\xe9\n");
        assert_eq!((output.told(), output.last(2)), ("caf\\xE9\n".to_owned(), "\\xE9\n".to_owned()));
    }

    #[test]
    fn what_fits_is_told_whole() {
        let mut output = Output::default();
        output.push(&[b'a'; HEAD]);
        output.push(&[b'b'; TAIL]);
        assert_eq!(output.told().len(), HEAD + TAIL);
        output.push(b"c");
        assert!(output.told().contains("[1 of 131073 bytes left out here]"));
    }
}
