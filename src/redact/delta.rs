//! Scrubbing of a text that arrives in pieces: nothing of a secret goes out that a later piece
//! would have completed.

use super::Redactor;

/// Holds back the shortest end of what came that could belong to a secret.
///
/// All that it gives, put together, is what [`Redactor::scrub`] makes of all that it got.
#[derive(Debug)]
pub struct DeltaScrubber<'r> {
    redactor: &'r Redactor,
    held: String,
}

impl<'r> DeltaScrubber<'r> {
    pub(super) fn new(redactor: &'r Redactor) -> Self {
        Self { redactor, held: String::new() }
    }

    /// Takes a piece and gives what can be told by now, possibly nothing.
    pub fn push(&mut self, piece: &str) -> String {
        if self.redactor.secrets.is_empty() {
            return piece.to_owned();
        }
        self.held.push_str(piece);
        let mut hits = self.redactor.hits(&self.held);
        let mut cut = self.redactor.patterns().open_end(&self.held);
        // A match that reaches over the cut may grow: it waits as a whole.
        while let Some(last) = hits.pop_if(|hit| hit.span.end > cut) {
            cut = cut.min(last.span.start);
        }
        let rest = self.held.split_off(cut);
        let told = std::mem::replace(&mut self.held, rest);
        self.redactor.replaced(&told, &hits)
    }

    /// Gives what is left. What comes after is a new text.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.held);
        self.redactor.scrub(&rest).into_owned()
    }
}
