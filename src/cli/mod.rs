//! The command line: arguments in, one document out.

use std::process::ExitCode;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
