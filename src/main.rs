//! Ends the process, and nothing else: the only place that does.

use std::process::ExitCode;

fn main() -> ExitCode {
    thcode::cli::main()
}
