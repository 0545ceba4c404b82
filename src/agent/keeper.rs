//! What a turn keeps: the journal of its calls, its sealed history, and the vault through which it
//! changes files. One for a run; whoever works with it holds it alone.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    contract::turn::{NormalizedMessage, Role},
    host::{CrashPoint, Host},
    id::{Digest, OperationId, SessionId, Timestamp, TurnId},
    journal::{DispatchCommitted, Event, JournalError, Log, Payload, Provenance},
    mutation::{self, About, Ended, Limits, MutationError, Protection, Vault},
    policy::{
        set::PolicySet,
        verdict::{Because, Decision, Verdict},
    },
    session::{self, SessionError, Start, StoredCall, StoredMessage, StoredRole},
    store::{Durability, Store, StoreError},
    tool::{Writing, command::Spawned},
    workspace::Root,
};

/// Why something can't be kept: the run can't go on.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal refused.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The session refused.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The vault refused.
    #[error(transparent)]
    Mutation(#[from] MutationError),
    /// A command was started, and what became of it can't be written down.
    #[error("what became of a command can't be recorded: {0}")]
    Unrecorded(Box<KeepError>),
}

impl KeepError {
    /// Whether an effect may have been made of which nothing could be recorded.
    pub(super) fn leaves_unknown(&self) -> bool {
        matches!(self, Self::Mutation(MutationError::Unsettled(_)) | Self::Unrecorded(_))
    }
}

/// What a turn may write.
#[derive(Debug, Clone, Copy)]
pub struct WriteSet {
    /// Distinct files.
    pub files: u32,
    /// Bytes.
    pub bytes: u64,
}

/// Everything that is kept of a run, with the store open.
#[derive(Debug)]
pub struct Keeper {
    host: Host,
    root: Arc<Root>,
    store: Store,
    log: Log,
    limits: Limits,
    write_set: WriteSet,
    policy: Arc<PolicySet>,
    session_id: SessionId,
    turn_id: TurnId,
    prompt_round: u32,
    /// What the model last read of a file, or what was last written.
    seen: HashMap<String, Digest>,
    /// Files that this turn has changed, and the bytes that it wrote.
    touched: BTreeMap<String, ()>,
    written: u64,
    /// Messages of the session that are kept already.
    kept: u32,
}

/// What a keeper is made of.
#[derive(Debug)]
pub struct Opened {
    /// The store, open for writing.
    pub store: Store,
    /// Its journal.
    pub log: Log,
    /// What the policy says about keeping.
    pub limits: Limits,
    /// What the turn may write.
    pub write_set: WriteSet,
    /// The policy that decides.
    pub policy: Arc<PolicySet>,
}

impl Keeper {
    /// Begins a run and its prompt round.
    pub fn begin(
        host: &Host,
        root: Arc<Root>,
        opened: Opened,
        start: Start,
        turn_id: TurnId,
        label: Option<&str>,
    ) -> Result<Self, KeepError> {
        let Opened { store, mut log, limits, write_set, policy } = opened;
        let session_id = start.session();
        let event = |payload| Event {
            session_id,
            turn_id: Some(turn_id),
            operation_id: None,
            parent_operation_id: None,
            provenance: Provenance::Deterministic,
            payload,
        };
        let (prompt_round, kept) = log.write(host, &store, Durability::Normal, |tx, stage| {
            let (prompt_round, row) = session::begin(host, &store, tx, start, turn_id, label)?;
            let tool_version = crate::contract::TOOL_VERSION.to_owned();
            let policy = policy.digest();
            stage.push(event(Payload::RunStarted { tool_version, pid: std::process::id(), policy }));
            stage.push(event(Payload::PromptSubmitted { prompt_round, row }));
            Ok::<_, KeepError>((prompt_round, session::count(tx, session_id)?))
        })?;
        Ok(Self {
            host: host.clone(),
            root,
            store,
            log,
            limits,
            write_set,
            policy,
            session_id,
            turn_id,
            prompt_round,
            seen: HashMap::new(),
            touched: BTreeMap::new(),
            written: 0,
            kept,
        })
    }

    /// The turn's ordinal in its session.
    pub fn prompt_round(&self) -> u32 {
        self.prompt_round
    }

    /// The turn.
    pub fn turn_id(&self) -> TurnId {
        self.turn_id
    }

    /// The session.
    pub fn session_id(&self) -> SessionId {
        self.session_id
    }

    /// The history of the session before this turn.
    pub fn history(&self) -> Result<Vec<NormalizedMessage>, KeepError> {
        let stored = session::history(&self.store, self.store.keys(), self.session_id)?;
        Ok(stored.into_iter().map(normalized).collect())
    }

    /// The state directory.
    pub fn state_dir(&self) -> String {
        self.store.dir().display().to_string()
    }

    /// A place where the process dies if a test asked for it.
    pub(super) fn crash_point(&self, point: CrashPoint) {
        self.host.crash_point(point);
    }

    /// Remembers what the model has read of a file.
    pub(super) fn saw(&mut self, path: &str, digest: Digest) {
        self.seen.insert(path.to_owned(), digest);
    }

    /// Journals a call that ends without an effect.
    pub(super) fn note(
        &mut self,
        operation: OperationId,
        events: Vec<Payload>,
    ) -> Result<(), KeepError> {
        self.note_as(Provenance::Model, operation, events)
    }

    /// As [`Keeper::note`], where somebody else than the model may have proposed it.
    pub(super) fn note_as(
        &mut self,
        proposer: Provenance,
        operation: OperationId,
        events: Vec<Payload>,
    ) -> Result<(), KeepError> {
        let template = self.event(operation, Provenance::Deterministic, Payload::OperationSucceeded {});
        self.log.write(&self.host, &self.store, Durability::Normal, |_, stage| {
            for payload in events {
                let provenance = match payload {
                    Payload::OperationProposed { .. } => proposer,
                    _ => Provenance::Deterministic,
                };
                stage.push(Event { payload, provenance, ..template.clone() });
            }
            Ok::<_, KeepError>(())
        })
    }

    /// Why the turn may not write this as well, if it may not.
    pub(super) fn over_write_set(&self, path: &str, writing: &Writing) -> Option<String> {
        let files = u32::try_from(self.touched.len()).unwrap_or(u32::MAX);
        if !self.touched.contains_key(path) && files >= self.write_set.files {
            return Some(format!(
                "the turn may change {} files, and {path} would be one more",
                self.write_set.files
            ));
        }
        let bytes = self.written.saturating_add(writing.bytes());
        (bytes > self.write_set.bytes).then(|| {
            format!(
                "the turn may write {} bytes, and {path} would make it {bytes}",
                self.write_set.bytes
            )
        })
    }

    /// Makes a change that was proposed and allowed.
    pub(super) fn change(
        &mut self,
        operation_id: OperationId,
        path: &str,
        writing: &Writing,
    ) -> Result<Ended, KeepError> {
        let about = About {
            session_id: self.session_id,
            turn_id: self.turn_id,
            prompt_round: self.prompt_round,
            operation_id,
        };
        let seen = self.seen.get(path).copied();
        let mut vault =
            Vault { host: &self.host, root: &self.root, store: &mut self.store, log: &mut self.log };
        let protection = match self.policy.unprotected_up_to(path) {
            Some(most) => Protection::WaivedUpTo(most),
            None => Protection::Required,
        };
        let limits = Limits { protection, ..self.limits };
        let ended = mutation::mutate(&mut vault, about, &writing.change(path), seen, limits)?;
        if let Ended::Applied(applied) = &ended {
            self.touched.insert(path.to_owned(), ());
            self.written = self.written.saturating_add(applied.bytes_after.unwrap_or(0));
            match applied.after {
                Some(after) => drop(self.seen.insert(path.to_owned(), after)),
                None => drop(self.seen.remove(path)),
            }
        }
        Ok(ended)
    }

    /// Makes a command's intent durable: from here on it may run.
    pub(super) fn dispatch_command(
        &mut self,
        operation: OperationId,
    ) -> Result<DispatchCommitted, KeepError> {
        let about = self.event(operation, Provenance::Deterministic, Payload::OperationSucceeded {});
        Ok(self.log.dispatch_command(&self.host, &mut self.store, &about, operation)?)
    }

    /// Journals the process of a command.
    pub(super) fn spawned(&mut self, operation: OperationId, spawned: Spawned) -> Result<(), KeepError> {
        let Spawned { pid, session, start_time } = spawned;
        let boot_id = self.host.boot_id().to_owned();
        let event = Payload::CommandSpawned {
            pid,
            process_session: session,
            start_time,
            boot_id: boot_id.to_owned(),
        };
        self.note(operation, vec![event])
    }

    /// The two events of a call that was judged.
    pub(super) fn judged(&self, tool: &str, class: &str, verdict: &Verdict) -> Vec<Payload> {
        let outcome = match verdict.decision {
            Decision::Allow => "allow",
            Decision::Ask => "ask",
            Decision::Deny => "deny",
        };
        let because = match verdict.because {
            Because::Rule => "rule",
            Because::Matrix => "matrix",
            Because::Floor => "floor",
            Because::Default => "default",
            Because::Unresolved => "unresolved",
            Because::Limit => "limit",
            Because::BadArguments => "bad-arguments",
        };
        vec![
            proposed(tool, class),
            Payload::PolicyDecisionRecorded {
                outcome: outcome.to_owned(),
                because: because.to_owned(),
                rule_id: verdict.rule.as_ref().map(|rule| rule.id.clone()),
                line: verdict.rule.as_ref().map(|rule| rule.line),
                policy: self.policy.digest(),
            },
        ]
    }

    /// Keeps the messages of the session that aren't kept yet.
    pub(super) fn keep(&mut self, history: &[NormalizedMessage]) -> Result<(), KeepError> {
        let from = usize::try_from(self.kept).unwrap_or(usize::MAX);
        let new: Vec<StoredMessage> = history.iter().skip(from).map(stored).collect();
        if new.is_empty() {
            return Ok(());
        }
        let (session, turn, kept) = (self.session_id, self.turn_id, self.kept);
        self.store.tx(Durability::Normal, |tx| {
            session::append(&self.host, &self.store, tx, session, turn, kept, &new)
        })?;
        self.kept = self.kept.saturating_add(u32::try_from(new.len()).unwrap_or(u32::MAX));
        Ok(())
    }

    /// Ends the run: everything before it becomes durable, the anchor follows, the WAL is emptied.
    pub(super) fn end(
        &mut self,
        stop_reason: &str,
        exit_code: u8,
        at: Timestamp,
    ) -> Result<(), KeepError> {
        let event = Event {
            session_id: self.session_id,
            turn_id: Some(self.turn_id),
            operation_id: None,
            parent_operation_id: None,
            provenance: Provenance::Deterministic,
            payload: Payload::RunEnded {
                stop_reason: stop_reason.to_owned(),
                exit_code,
                ended_at: at,
                messages: self.kept,
            },
        };
        let turn = self.turn_id;
        self.log.write(&self.host, &self.store, Durability::Full, |tx, stage| {
            session::end(tx, turn, stop_reason, exit_code, at)?;
            stage.push(event);
            Ok::<_, KeepError>(())
        })?;
        self.host.crash_point(CrashPoint::RunEnded);
        self.store.anchor(self.log.head())?;
        self.host.crash_point(CrashPoint::EndAnchored);
        self.store.finish()?;
        self.host.crash_point(CrashPoint::Tidied);
        Ok(())
    }

    fn event(&self, operation: OperationId, provenance: Provenance, payload: Payload) -> Event {
        Event {
            session_id: self.session_id,
            turn_id: Some(self.turn_id),
            operation_id: Some(operation),
            parent_operation_id: None,
            provenance,
            payload,
        }
    }
}

/// The event of a proposal. A name that is no tool's is foreign text, and isn't kept in clear.
pub(super) fn proposed(tool: &str, class: &str) -> Payload {
    let known = crate::policy::call::ActionClass::of_tool(tool).is_some();
    let tool = if known { tool } else { "unknown" };
    Payload::OperationProposed { tool: tool.to_owned(), action_class: class.to_owned() }
}

fn stored(message: &NormalizedMessage) -> StoredMessage {
    StoredMessage {
        message_id: message.message_id,
        role: match message.role {
            Role::User => StoredRole::User,
            Role::Assistant => StoredRole::Assistant,
            Role::Tool => StoredRole::Tool,
        },
        content: message.content.clone(),
        tool_calls: message
            .tool_calls
            .iter()
            .map(|call| StoredCall {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
            })
            .collect(),
        tool_call_id: message.tool_call_id.clone(),
    }
}

fn normalized(message: StoredMessage) -> NormalizedMessage {
    NormalizedMessage {
        message_id: message.message_id,
        role: match message.role {
            StoredRole::User => Role::User,
            StoredRole::Assistant => Role::Assistant,
            StoredRole::Tool => Role::Tool,
        },
        content: message.content,
        tool_calls: message
            .tool_calls
            .into_iter()
            .map(|call| crate::contract::turn::ToolCall {
                id: call.id,
                name: call.name,
                arguments: call.arguments,
            })
            .collect(),
        tool_call_id: message.tool_call_id,
    }
}
