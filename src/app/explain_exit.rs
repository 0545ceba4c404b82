//! `explain-exit N`: class, meaning and next step of an exit code.

use super::Fail;
use crate::contract::{CauseCode, ExitClass, Failure};

/// The text for a code.
pub fn explain(code: u8) -> Result<String, Fail> {
    let Some(class) = ExitClass::of_code(code) else {
        let known: Vec<_> = ExitClass::ALL.iter().map(|class| class.code().to_string()).collect();
        let message = format!("thcode never exits with {code}");
        let failure = Failure::new(CauseCode::ExitCodeUnknown, message);
        return Err(Fail::usage(failure.action(format!("its codes are {}", known.join(", ")))));
    };
    let rerun = match code % 10 == 5 {
        true => "yes, unchanged, on a fresh checkout",
        false => "no: without a change it will end the same way or needs a person first",
    };
    let rerun = if class == ExitClass::Success {
        "there is nothing to run again"
    } else if class == ExitClass::Cancelled {
        "as you like: nothing but the signal speaks against it"
    } else {
        rerun
    };
    Ok(format!(
        "{} ({code})\nmeaning:   {}\nnext step: {}\nrun again: {rerun}\n",
        class.token(),
        class.meaning(),
        class.next_step(),
    ))
}
