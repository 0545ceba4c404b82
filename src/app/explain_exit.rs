//! `explain-exit N`: class, meaning and next step of an exit code; also of one that a shell or an engine
//! gives to a process that a signal killed, since that is what a script has in its hand then.

use super::Fail;
use crate::contract::{CauseCode, ExitClass, Failure};

/// What a shell adds to the number of the signal that ended a process.
const BY_SIGNAL: u8 = 128;
/// The last signal that there is.
const LAST_SIGNAL: u8 = 64;

/// The signals of Linux by their number, from 1, and who sends them, where that is worth a guess.
const SIGNALS: [(&str, &str); 31] = [
    ("SIGHUP", "its terminal or connection went away?"),
    ("SIGINT", ""),
    ("SIGQUIT", ""),
    ("SIGILL", FAULT),
    ("SIGTRAP", ""),
    ("SIGABRT", FAULT),
    ("SIGBUS", FAULT),
    ("SIGFPE", FAULT),
    ("SIGKILL", "out of memory? a runner's timeout?"),
    ("SIGUSR1", ""),
    ("SIGSEGV", FAULT),
    ("SIGUSR2", ""),
    ("SIGPIPE", "what read its output ended?"),
    ("SIGALRM", ""),
    ("SIGTERM", "a second one, or a runner's timeout?"),
    ("SIGSTKFLT", ""),
    ("SIGCHLD", ""),
    ("SIGCONT", ""),
    ("SIGSTOP", ""),
    ("SIGTSTP", ""),
    ("SIGTTIN", ""),
    ("SIGTTOU", ""),
    ("SIGURG", ""),
    ("SIGXCPU", "a limit of its CPU time?"),
    ("SIGXFSZ", "a limit of a file's size?"),
    ("SIGVTALRM", ""),
    ("SIGPROF", ""),
    ("SIGWINCH", ""),
    ("SIGIO", ""),
    ("SIGPWR", ""),
    ("SIGSYS", "a system call that the container's profile forbids?"),
];

const FAULT: &str = "a fault of thcode or of the machine?";

/// The text for a code.
pub fn explain(code: u8) -> Result<String, Fail> {
    let Some(class) = ExitClass::of_code(code) else {
        return killed(code).ok_or_else(|| unknown(code));
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

/// The text for the code of a process that a signal killed.
fn killed(code: u8) -> Option<String> {
    let number = code.checked_sub(BY_SIGNAL).filter(|number| (1..=LAST_SIGNAL).contains(number))?;
    let known = usize::from(number).checked_sub(1).and_then(|at| SIGNALS.get(at));
    let name = known.map_or_else(|| format!("signal {number}"), |(name, _)| (*name).to_owned());
    let guess = known.map(|(_, guess)| *guess).filter(|guess| !guess.is_empty());
    let guess = guess.map(|guess| format!(" ({guess})")).unwrap_or_default();
    Some(format!(
        "killed by {name} ({code})\n\
         meaning:   the process was killed{guess} and could tell nothing: there is no document of it, and \
         files may have been changed\n\
         next step: `thcode recover` tells what it left; with a file of -o that was there before, see its \
         causeCode: `unfinished` is this very run\n\
         run again: once the cause is mended; the next run settles what can be proven of this one, a fresh \
         checkout has nothing to settle\n",
    ))
}

fn unknown(code: u8) -> Fail {
    let known: Vec<_> = ExitClass::ALL.iter().map(|class| class.code().to_string()).collect();
    let message = format!("thcode never exits with {code}");
    let failure = Failure::new(CauseCode::ExitCodeUnknown, message);
    let known = known.join(", ");
    Fail::usage(failure.action(format!(
        "its codes are {known}, and 128 + N where signal N killed it; a shell's own are 126 and 127 (it could \
         not be started), that of `timeout` is 124"
    )))
}
