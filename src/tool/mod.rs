//! The tools that a model may propose: their schemas, their reading of arguments, their doing.
