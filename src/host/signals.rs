//! The signals that ask for an end: the first is told, the second ends the process at once.
//!
//! They are heard by a thread of their own, so that a second one works whatever the others wait on.
//! SIGHUP that was ignored when the process started (`nohup`) stays ignored.

use std::io;

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

/// The exit code of a process that a signal ended.
const CODE: i32 = 130;

/// Begins to listen. The value becomes the name of the first signal that comes.
pub fn listen() -> io::Result<watch::Receiver<Option<&'static str>>> {
    let (tell, heard) = watch::channel(None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let guard = runtime.enter();
    let mut int = signal(SignalKind::interrupt())?;
    let mut term = signal(SignalKind::terminate())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut hup = if hup_is_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
    drop(guard);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            let first = next(&mut int, &mut term, &mut quit, hup.as_mut()).await;
            tell.send_replace(Some(first));
            next(&mut int, &mut term, &mut quit, hup.as_mut()).await;
        });
        #[expect(
            clippy::exit,
            reason = "a second signal ends the process whatever the main thread waits on"
        )]
        std::process::exit(CODE);
    })?;
    Ok(heard)
}

async fn next(
    int: &mut Signal,
    term: &mut Signal,
    quit: &mut Signal,
    hup: Option<&mut Signal>,
) -> &'static str {
    let hang_up = async {
        match hup {
            Some(hup) => hup.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = int.recv() => "SIGINT",
        _ = term.recv() => "SIGTERM",
        _ = quit.recv() => "SIGQUIT",
        _ = hang_up => "SIGHUP",
    }
}

/// The kernel tells the ignored signals as a mask in which SIGHUP (1) is the lowest bit.
fn hup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
