//! The prompt: from the command line, a file or standard input; bounded in size and in time.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use crate::host::is_special_file;

/// Bytes that a prompt may have.
pub const MOST_BYTES: usize = 10 << 20;

/// Where the prompt comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptSource {
    /// Given on the command line.
    Text(String),
    /// A file.
    File(PathBuf),
    /// Standard input, up to its end.
    Stdin,
}

/// Why there is no prompt.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// It is empty or white space alone.
    #[error("the prompt is empty")]
    Empty,
    /// It is too large.
    #[error("the prompt is over 10 MiB (10,485,760 bytes)")]
    TooLarge,
    /// It isn't UTF-8.
    #[error("the prompt is not valid UTF-8: the first bad byte is byte {at}")]
    NotUtf8 {
        /// The offset of the first byte that isn't, from 0.
        at: usize,
    },
    /// The file can't be read.
    #[error("the prompt file {} can't be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is a FIFO, a device or a directory.
    #[error("the prompt file {} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// Standard input failed.
    #[error("standard input can't be read: {0}")]
    Stdin(io::Error),
    /// Standard input is a terminal, and nobody is asked anything here.
    #[error("standard input is a terminal; the prompt is never read from one")]
    Terminal,
    /// Standard input stayed open and silent.
    #[error("standard input gave nothing for {} s and stayed open", .0.as_secs())]
    Silent(Duration),
    /// A signal asked for an end.
    #[error("stopped by {0}")]
    Signalled(&'static str),
}

/// Reads the prompt. `stopped` tells the signal that asked for an end, once one did.
pub fn read(
    source: &PromptSource,
    patience: Duration,
    stopped: &dyn Fn() -> Option<&'static str>,
) -> Result<String, PromptError> {
    let bytes = match source {
        PromptSource::Text(text) => text.clone().into_bytes(),
        PromptSource::File(path) => from_file(path)?,
        PromptSource::Stdin => from_stdin(patience, stopped)?,
    };
    if bytes.len() > MOST_BYTES {
        return Err(PromptError::TooLarge);
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| PromptError::NotUtf8 { at: error.utf8_error().valid_up_to() })?;
    if text.trim().is_empty() { Err(PromptError::Empty) } else { Ok(text) }
}

fn from_file(path: &Path) -> Result<Vec<u8>, PromptError> {
    let unreadable = |source| PromptError::Unreadable { path: path.to_owned(), source };
    if path.is_dir() || is_special_file(path) {
        return Err(PromptError::NotAFile(path.to_owned()));
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX) + 1;
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(unreadable)?;
    Ok(bytes)
}

fn from_stdin(
    patience: Duration,
    stopped: &dyn Fn() -> Option<&'static str>,
) -> Result<Vec<u8>, PromptError> {
    let mut stdin = io::stdin().lock();
    if stdin.is_terminal() {
        return Err(PromptError::Terminal);
    }
    let (mut bytes, mut chunk) = (Vec::new(), vec![0u8; 64 * 1024]);
    let mut heard = Instant::now();
    loop {
        if let Some(signal) = stopped() {
            return Err(PromptError::Signalled(signal));
        }
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let slice = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        match poll(&mut fds, Some(&slice)) {
            Ok(0) if heard.elapsed() >= patience => return Err(PromptError::Silent(patience)),
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(PromptError::Stdin(errno.into())),
        }
        match stdin.read(&mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(read) => {
                heard = Instant::now();
                bytes.extend(chunk.iter().take(read));
                if bytes.len() > MOST_BYTES {
                    return Err(PromptError::TooLarge);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(PromptError::Stdin(error)),
        }
    }
}
