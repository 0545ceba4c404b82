//! The signals that ask for an end: the first is told, the second ends the process at once.
//!
//! They are heard by a thread of their own, and the first is answered on another, so that a second
//! one works whatever the others wait on. SIGHUP and the signals without a keyboard or a job
//! control behind them stay ignored if they were when the process started (`nohup`). SIGXFSZ is
//! taken and left, so that a write over the limit fails instead of killing.

use std::{
    io,
    os::unix::net::UnixStream,
    sync::{
        atomic::{AtomicI32, Ordering},
        mpsc,
    },
    thread,
};

use futures_util::{StreamExt as _, stream::SelectAll};
use rustix::process::{
    Pid, Signal as Number, getpid, getppid, kill_process, kill_process_group,
    set_parent_process_death_signal,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

/// The exit code of a process that a signal ended.
const CODE: i32 = 130;

/// File handles that listening takes beside a pair of sockets.
const HANDLES: usize = 6;

/// A signal, and what it means here.
#[derive(Clone, Copy)]
struct Known {
    name: &'static str,
    number: i32,
    /// Taken even if it was ignored at the start.
    always: bool,
    /// Sent by a person or an engine. The others come from timers and limits, again and again, so
    /// that they are no second signal.
    meant: bool,
}

const fn known(name: &'static str, number: Number, always: bool, meant: bool) -> Known {
    Known { name, number: number.as_raw(), always, meant }
}

/// Every signal that would end the process and can be caught, but for faults of the program.
const KNOWN: &[Known] = &[
    known("SIGINT", Number::INT, true, true),
    known("SIGTERM", Number::TERM, true, true),
    known("SIGQUIT", Number::QUIT, true, true),
    known("SIGHUP", Number::HUP, false, true),
    known("SIGUSR1", Number::USR1, false, true),
    known("SIGUSR2", Number::USR2, false, true),
    known("SIGPWR", Number::POWER, false, true),
    known("SIGSTKFLT", Number::STKFLT, false, true),
    known("SIGIO", Number::IO, false, false),
    known("SIGALRM", Number::ALARM, false, false),
    known("SIGVTALRM", Number::VTALARM, false, false),
    known("SIGPROF", Number::PROF, false, false),
    known("SIGXCPU", Number::XCPU, false, false),
];

/// The number of the first real-time signal that the C library doesn't use itself.
const FIRST_REAL_TIME: i32 = 34;

/// The real-time signals, which end a process that doesn't listen to them.
const REAL_TIME: [&str; 31] = [
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+16",
    "SIGRTMIN+17",
    "SIGRTMIN+18",
    "SIGRTMIN+19",
    "SIGRTMIN+20",
    "SIGRTMIN+21",
    "SIGRTMIN+22",
    "SIGRTMIN+23",
    "SIGRTMIN+24",
    "SIGRTMIN+25",
    "SIGRTMIN+26",
    "SIGRTMIN+27",
    "SIGRTMIN+28",
    "SIGRTMIN+29",
    "SIGRTMIN+30",
];

/// Begins to listen. The value becomes the name of the first signal that comes; `answer` is called
/// with it, and the process ends with the code that it gives, unless it has ended before.
pub fn listen(
    answer: impl FnOnce(&'static str) -> u8 + Send + 'static,
) -> io::Result<watch::Receiver<Option<&'static str>>> {
    try_handles()?;
    let (tell, heard) = watch::channel(None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let guard = runtime.enter();
    let ignored = ignored();
    let mut signals = SelectAll::new();
    let real_time = REAL_TIME.iter().zip(FIRST_REAL_TIME..);
    let real_time = real_time.map(|(&name, number)| Known { name, number, always: false, meant: true });
    for known in KNOWN.iter().copied().chain(real_time) {
        let bit = u32::try_from(known.number - 1).unwrap_or(0);
        if known.always || ignored.unbounded_shr(bit) & 1 == 0 {
            let signal = signal(SignalKind::from_raw(known.number))?;
            signals.push(Box::pin(each(signal, known)));
        }
    }
    let file_size = signal(SignalKind::from_raw(Number::XFSZ.as_raw()))?;
    drop(guard);
    let (first, answered) = mpsc::channel();
    thread::Builder::new().name("ending".to_owned()).spawn(move || {
        // An error says that nobody listens any more, which only the end of the process brings.
        if let Ok(name) = answered.recv() {
            exit(i32::from(answer(name)));
        }
    })?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        // Its handler stays for as long as the process lives.
        let _file_size = file_size;
        runtime.block_on(async {
            let Some(known) = signals.next().await else { return };
            tell.send_replace(Some(known.name));
            if first.send(known.name).is_err() {
                exit(CODE);
            }
            while let Some(known) = signals.next().await {
                if known.meant {
                    exit(CODE);
                }
            }
        });
    })?;
    Ok(heard)
}

/// The value of a process that doesn't listen: a signal ends it as it ends any other.
pub fn unheard() -> watch::Receiver<Option<&'static str>> {
    watch::channel(None).1
}

/// Has SIGTERM sent to this process when the one that started it ends.
pub fn end_with_parent() -> io::Result<()> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Number::TERM))?;
    // It may have ended just before that.
    if getppid() != parent {
        kill_process(getpid(), Number::TERM)?;
    }
    Ok(())
}

/// Listening takes some file handles, and where they are missing the library panics instead of
/// saying so. They are tried here first.
fn try_handles() -> io::Result<()> {
    let (one, other) = UnixStream::pair()?;
    let more: io::Result<Vec<UnixStream>> = (0..HANDLES).map(|_| one.try_clone()).collect();
    drop((other, more?));
    Ok(())
}

fn each(signal: Signal, known: Known) -> impl futures_util::Stream<Item = Known> {
    futures_util::stream::unfold(signal, move |mut signal| async move {
        signal.recv().await.map(|()| (known, signal))
    })
}

/// The process group of the command that runs, or 0: it must not outlive an end at once.
static COMMAND: AtomicI32 = AtomicI32::new(0);

/// Says which process group is to be killed where a signal ends this process at once; `None` once it is
/// gone.
pub fn ends_with_us(group: Option<u32>) {
    let group = group.and_then(|group| i32::try_from(group).ok());
    COMMAND.store(group.unwrap_or(0), Ordering::SeqCst);
}

#[expect(clippy::exit, reason = "a signal ends the process whatever the main thread waits on")]
fn exit(code: i32) {
    if let Some(group) = Pid::from_raw(COMMAND.load(Ordering::SeqCst)) {
        // One that is gone already is as good.
        kill_process_group(group, Number::KILL).ok();
    }
    std::process::exit(code);
}

/// The signals that are ignored, the lowest bit being signal 1.
fn ignored() -> u64 {
    super::own_status("SigIgn:", 16).unwrap_or(0)
}
