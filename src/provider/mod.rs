//! Who answers a model call: a trait-free choice of adapters behind one function, and their words.
//!
//! Asks once and tells what came; when to ask again is the caller's. A vendor's words never leave
//! this room, and neither does the key.

use self::{
    message::{ProviderError, Reply, Request},
    openai::OpenAi,
    scripted::Scripted,
};
use crate::id::Digest;

pub mod cassette;
mod endpoint;
mod failure;
pub mod message;
pub mod openai;
pub mod preset;
pub mod scripted;
mod sse;

pub use endpoint::SettingsError;

/// Somebody who answers.
#[derive(Debug)]
pub enum Provider {
    /// An endpoint that speaks chat completions.
    OpenAi(Box<OpenAi>),
    /// A cassette: no key, no network.
    Scripted(Scripted),
}

impl Provider {
    /// Asks the model once. The pieces of the text go to `on_delta` as they arrive; they are no
    /// reply until this returns one. Dropping the future gives up.
    pub async fn complete(
        &mut self,
        request: &Request,
        on_delta: &mut dyn FnMut(&str),
    ) -> Result<Reply, ProviderError> {
        match self {
            Self::OpenAi(openai) => openai.complete(request, on_delta).await,
            Self::Scripted(scripted) => scripted.complete(request, on_delta),
        }
    }

    /// The digest of the last request: of the bytes that were sent, or of [`Request::digest`] where
    /// nothing is sent.
    pub fn request_digest(&self) -> Option<Digest> {
        match self {
            Self::OpenAi(openai) => openai.request_digest(),
            Self::Scripted(scripted) => scripted.request_digest(),
        }
    }
}
