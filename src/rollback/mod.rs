//! Putting checkpointed changes back: what there is to put back, and what that would do to what stands
//! there now. A three-way comparison of before, after and now; what isn't as it was left belongs to
//! somebody else and is never overwritten. Pure: what stands is looked at by others.

mod compose;
mod decide;

pub use compose::{Composed, compose};
pub use decide::{Current, Facts, Images, decide, safe_choices};
