//! Scrubbing of a text that arrives in pieces: nothing of a secret goes out that a later piece
//! would have completed.

use super::{Redactor, shape};

/// The most that is held back for the sake of a shape. No secret but a private key comes near it.
const MOST_HELD: usize = 64 * 1024;
/// How much stays back when that is reached.
const KEPT_BACK: usize = 8 * 1024;

/// Holds back the shortest end of what came that could belong to a known secret, and the words that
/// could belong to one that is known by its shape: the last one, and after a word such as `password` the
/// line.
///
/// All that it gives, put together, is what [`Redactor::scrub`] makes of all that it got; but where more
/// than 64 KiB would have to be held back, what is older is told as if it had ended there.
#[derive(Debug)]
pub struct DeltaScrubber<'r> {
    redactor: &'r Redactor,
    held: String,
    /// How long `held` must be to be looked at again, unless a line ends: so that a long line in small
    /// pieces isn't read again for each.
    next_look: usize,
}

impl<'r> DeltaScrubber<'r> {
    pub(super) fn new(redactor: &'r Redactor) -> Self {
        Self { redactor, held: String::new(), next_look: 0 }
    }

    /// Takes a piece and gives what can be told by now, possibly nothing.
    pub fn push(&mut self, piece: &str) -> String {
        if self.redactor.idle() {
            return piece.to_owned();
        }
        self.held.push_str(piece);
        if self.held.len() < self.next_look && !piece.contains('\n') {
            return String::new();
        }
        let mut hits = self.redactor.hits(&self.held);
        let mut cut = self.sure();
        // A match that reaches over the cut may grow: it waits as a whole.
        while let Some(last) = hits.pop_if(|hit| hit.span.end > cut) {
            cut = self.word(cut.min(last.span.start));
        }
        let rest = self.held.split_off(cut);
        let told = std::mem::replace(&mut self.held, rest);
        self.next_look = self.held.len() + self.held.len() / 8;
        self.redactor.replaced(&told, &hits)
    }

    /// Gives what is left. What comes after is a new text.
    pub fn finish(&mut self) -> String {
        self.next_look = 0;
        let rest = std::mem::take(&mut self.held);
        self.redactor.scrub(&rest).into_owned()
    }

    /// Up to where nothing that comes can change what is hidden.
    fn sure(&self) -> usize {
        let known = self.redactor.patterns().open_end(&self.held);
        if !self.redactor.shapes {
            return known;
        }
        if self.held.len() > MOST_HELD {
            return known.min(self.held.floor_char_boundary(self.held.len() - KEPT_BACK));
        }
        self.word(known.min(shape::open_end(&self.held)))
    }

    /// Where the word begins that this place is in: what a shape says of its end depends on what stands
    /// before. In a text that has grown too long, the place itself.
    fn word(&self, at: usize) -> usize {
        if !self.redactor.shapes || self.held.len() > MOST_HELD {
            return at;
        }
        shape::word_start(self.held.as_bytes(), at)
    }
}
