//! The turn: loop, context, gate. The model proposes; only this loop acts.
