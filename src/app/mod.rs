//! The composition root: one function a verb, each returning a contract document.
