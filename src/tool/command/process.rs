//! The process and all that comes of it: started after its intent is durable, watched, and ended as a
//! whole tree, also what has left its group or its session.
//!
//! This process is the reaper of all orphans below it, so that every descendant of a command stays
//! one of ours and is found by its parents.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, PipeReader, Read as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, set_child_subreaper,
        waitpid,
    },
};

use super::{Output, Prepared};
use crate::{host::signals::ends_with_us, journal::DispatchCommitted};

/// How often a signal is looked for while nothing happens.
const TICK: Duration = Duration::from_millis(40);
/// What processes have to end by themselves, once they are asked to.
const GRACE: Duration = Duration::from_millis(300);
/// How long all of them may take to be gone, once they are killed.
const KILLING: Duration = Duration::from_millis(1_000);
/// How long the rest of the output is waited for, once nobody is left to write it.
const DRAINING: Duration = Duration::from_millis(300);

/// A process that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spawned {
    /// Its id.
    pub pid: u32,
    /// Its session, 0 if its leader is outside the container.
    pub session: u32,
    /// When it started, in ticks since the boot: with the id it names one process for good.
    pub start_time: u64,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub how: How,
    /// What it said.
    pub output: Output,
    /// How long it took.
    pub duration: Duration,
    /// Processes that outlived it and were ended.
    pub background: u32,
    /// Processes that couldn't be ended: what they do isn't known.
    pub left: u32,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal that nobody here sent.
    Signalled(i32),
    /// Its time ran out.
    TimedOut,
    /// The run was asked to end.
    Stopped,
}

/// Why a command has no end.
#[derive(Debug)]
pub enum NoEnd<E> {
    /// It couldn't be started: nothing ran.
    Spawn(io::Error),
    /// Whoever had to keep that it runs couldn't; its processes were ended.
    Kept(E),
}

/// Starts a command and waits for its end. `started` is told the process before anything is waited
/// for.
pub fn run<E>(
    prepared: &Prepared,
    _intent: &DispatchCommitted,
    stop: &AtomicBool,
    started: impl FnOnce(Spawned) -> Result<(), E>,
) -> Result<Ended, NoEnd<E>> {
    let begun = Instant::now();
    let before = descendants();
    let (child, reader) = spawn(prepared).map_err(NoEnd::Spawn)?;
    ends_with_us(Some(child.id()));
    let mut watch = Watch { child, reader: Some(reader), before, output: Output::default() };
    if let Err(error) = started(spawned(&watch.child)) {
        watch.end_all();
        ends_with_us(None);
        return Err(NoEnd::Kept(error));
    }
    let (how, background, left) = watch.until_the_end(begun + prepared.timeout, stop);
    ends_with_us(None);
    Ok(Ended { how, output: watch.output, duration: begun.elapsed(), background, left })
}

fn spawn(prepared: &Prepared) -> io::Result<(Child, PipeReader)> {
    set_child_subreaper(Some(getpid()))?;
    // What the caller of this process left open isn't the command's.
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(&prepared.executable);
    command
        .args(&prepared.words)
        // The very directory that was judged, whatever its path is by now.
        .current_dir(format!("/proc/self/fd/{}", prepared.directory.as_raw_fd()))
        .env_clear()
        .envs(prepared.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let child = command.spawn()?;
    // The command holds the writing end, and with it its copies here.
    drop(command);
    Ok((child, reader))
}

fn spawned(child: &Child) -> Spawned {
    let pid = child.id();
    // Not getsid: in a container the leader of the session may be outside, and has no id in here.
    let stat = stat(pid);
    Spawned {
        pid,
        session: stat.as_ref().map_or(0, |stat| stat.session),
        start_time: stat.map_or(0, |stat| stat.start_time),
    }
}

/// A command at work.
struct Watch {
    child: Child,
    /// Until its end was read.
    reader: Option<PipeReader>,
    /// Processes below this one that aren't the command's.
    before: BTreeSet<u32>,
    output: Output,
}

impl Watch {
    /// How it ended, how many processes it left behind, and how many of them couldn't be ended.
    fn until_the_end(&mut self, deadline: Instant, stop: &AtomicBool) -> (How, u32, u32) {
        let pidfd = pid_of(&self.child).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let early = loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                let how = match (status.code(), status.signal()) {
                    (Some(code), _) => How::Exited(code),
                    (None, signal) => How::Signalled(signal.unwrap_or(0)),
                };
                let (background, left) = self.end_all();
                return (how, background, left);
            }
            if stop.load(Ordering::Relaxed) {
                break How::Stopped;
            }
            let now = Instant::now();
            if now >= deadline {
                break How::TimedOut;
            }
            self.pump(TICK.min(deadline - now), pidfd.as_ref());
        };
        for pid in self.alive() {
            signal(pid, Signal::TERM);
        }
        let patience = Instant::now() + GRACE;
        while Instant::now() < patience && !self.alive().is_empty() {
            self.pump(Duration::from_millis(10), None);
            self.reap();
        }
        let (_, left) = self.end_all();
        (early, 0, left)
    }

    /// Reads what is there, or waits for it a while, or for the end of the process.
    fn pump(&mut self, patience: Duration, pidfd: Option<&OwnedFd>) {
        let Some(reader) = &mut self.reader else {
            match pidfd {
                Some(pidfd) => wait_for(&mut [PollFd::new(pidfd, PollFlags::IN)], patience),
                None => thread::sleep(patience),
            }
            return;
        };
        let readable = {
            let reader = PollFd::from_borrowed_fd(reader.as_fd(), PollFlags::IN);
            let mut watched = vec![reader];
            watched.extend(pidfd.map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
            wait_for(&mut watched, patience);
            watched.first().is_some_and(|reader| !reader.revents().is_empty())
        };
        if !readable {
            return;
        }
        let mut bytes = vec![0; 64 * 1024];
        match reader.read(&mut bytes) {
            Ok(0) => self.reader = None,
            Ok(count) => self.output.push(bytes.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.reader = None,
        }
    }

    /// Kills all that is left of the command and reads what it still said: how many processes there
    /// were beside the first, and how many can't be killed.
    fn end_all(&mut self) -> (u32, u32) {
        let mut seen = BTreeSet::new();
        let deadline = Instant::now() + KILLING;
        let mut left = loop {
            self.reap();
            let alive = self.alive();
            if alive.is_empty() || Instant::now() >= deadline {
                break alive;
            }
            for pid in alive {
                signal(pid, Signal::KILL);
                seen.insert(pid);
            }
            self.pump(Duration::from_millis(5), None);
        };
        let deadline = Instant::now() + DRAINING;
        while self.reader.is_some() && Instant::now() < deadline {
            self.pump(Duration::from_millis(10), None);
        }
        self.reap();
        left.retain(|pid| self.alive().contains(pid));
        seen.remove(&self.child.id());
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        (count(seen.len()), count(left.len()))
    }

    /// Takes the ends of processes, so that none is counted that is none any more.
    fn reap(&mut self) {
        // The first one's end stays with its handle.
        drop(self.child.try_wait());
        for (pid, stat) in below_this_process() {
            let orphan = stat.dead && stat.parent == std::process::id() && pid != self.child.id();
            if let (true, Some(pid)) = (orphan && !self.before.contains(&pid), pid_from(pid)) {
                // Gone meanwhile is as good.
                waitpid(Some(pid), WaitOptions::NOHANG).ok();
            }
        }
    }

    /// The processes of the command that run.
    fn alive(&self) -> Vec<u32> {
        let below = below_this_process().into_iter();
        let alive = below.filter(|(pid, stat)| !stat.dead && !self.before.contains(pid));
        alive.map(|(pid, _)| pid).collect()
    }
}

fn wait_for(watched: &mut [PollFd<'_>], patience: Duration) {
    let patience = Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: patience.subsec_nanos().into(),
    };
    // An interruption is looked at like everything else, in the next round.
    poll(watched, Some(&patience)).ok();
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = pid_from(pid) {
        // One that is gone needs no signal; one that can't be reached is counted as left.
        kill_process(pid, signal).ok();
    }
}

fn pid_from(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

fn pid_of(child: &Child) -> Option<Pid> {
    pid_from(child.id())
}

/// What the kernel says of a process.
struct Stat {
    parent: u32,
    session: u32,
    /// Ended, and not yet waited for.
    dead: bool,
    start_time: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, a parenthesis too.
    let after = text.iter().rposition(|byte| *byte == b')')?;
    let rest = String::from_utf8_lossy(text.get(after + 1..)?).into_owned();
    let mut fields = rest.split_ascii_whitespace();
    let dead = matches!(fields.next()?, "Z" | "X" | "x");
    let parent = fields.next()?.parse().ok()?;
    // The parent is field 4, the session field 6, the start time field 22.
    let session = fields.nth(1)?.parse().ok()?;
    let start_time = fields.nth(15)?.parse().ok()?;
    Some(Stat { parent, session, dead, start_time })
}

fn descendants() -> BTreeSet<u32> {
    below_this_process().into_keys().collect()
}

/// Every process below this one.
fn below_this_process() -> BTreeMap<u32, Stat> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        if let Some((pid, stat)) = pid.and_then(|pid| Some((pid, stat(pid)?))) {
            all.insert(pid, stat);
        }
    }
    let mut ours = BTreeSet::from([std::process::id()]);
    loop {
        let more: Vec<u32> = all
            .iter()
            .filter(|(pid, stat)| ours.contains(&stat.parent) && !ours.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            break;
        }
        ours.extend(more);
    }
    ours.remove(&std::process::id());
    all.retain(|pid, _| ours.contains(pid));
    all
}
