//! Who answers a model call: a trait-free choice of adapters behind one function, and their words.

pub mod message;
