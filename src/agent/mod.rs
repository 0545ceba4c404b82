//! The turn: loop, context, gate, record. The model proposes; only this loop acts.
//!
//! The gate is the sole place where a call is decided and a tool is run. Nothing here writes a file
//! or prints a byte: what happens is told to an observer, what happened stands in the `TurnResult`.

mod act;
mod ask;
mod budget;
mod command;
mod context;
mod end;
mod gate;
mod hold;
mod keeper;
mod record;
mod risks;
mod turn;
mod watch;

pub use budget::Limited;
pub use gate::{argument_limits, decision_of};
pub use hold::{Expectations, ExpectedChanges};
pub use keeper::{KeepError, Keeper, Opened, WriteSet};
pub use turn::{NotBegun, Setup, TurnInput, TurnLimits, TurnState, run_turn};
pub use watch::Stop;
