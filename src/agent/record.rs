//! The record of a turn as it grows: messages, events, operations, denials; at the end, the
//! `TurnResult`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    budget::{Spent, millis},
    risks::Risks,
    turn::TurnLimits,
};
use crate::{
    contract::{
        ExitClass, Failure, TOOL_VERSION,
        turn::{
            Allowance, Budget, Change, ChangeKind, CheckpointMade, CommandRun, Decision, Denial,
            Enforcement, ExcludedEffect, ExcludedEffects, NormalizedMessage, Operation, OperationStatus,
            PolicyInForce, ProviderInfo, Role, StopReason, Timing, ToolCall, TurnEvent, TurnResult,
            TurnResultSchema, Usage, Verification,
        },
    },
    host::Host,
    id::{MessageId, OperationId, SessionId, Timestamp, TurnId},
    mutation::{Applied, Coverage},
    policy::{command::shown, verdict::Verdict},
    provider::message::{Call, TokenUsage},
    tool::Resolved,
};

/// Bytes of one message or output that documents carry; the model saw it whole.
const MOST_TOLD: usize = 64 * 1024;
/// Bytes of a name, an id or a path.
const MOST_OF_A_NAME: usize = 1024;
/// Words of a command.
const MOST_WORDS: usize = 256;
/// Bytes that all messages together may have in a document, and all events together.
const MOST_IN_ALL: usize = 4 << 20;
/// What is left of a text at least, so that each says what it was.
const LEAST_TOLD: usize = 256;

/// What a turn has come to.
pub(super) struct Record {
    pub(super) session_id: SessionId,
    pub(super) turn_id: TurnId,
    pub(super) history: Vec<NormalizedMessage>,
    pub(super) iterations: u32,
    pub(super) provider_ms: u64,
    events: Vec<TurnEvent>,
    operations: Vec<Operation>,
    denials: Vec<Denial>,
    changes: BTreeMap<String, Change>,
    checkpoints: Vec<CheckpointMade>,
    excluded: ExcludedEffects,
    risks: Risks,
    /// Which denial a distinct call has, by tool and arguments.
    denied: BTreeMap<(String, String), usize>,
    rules_used: BTreeSet<String>,
    usage: Usage,
    pub(super) spent: Spent,
    pub(super) verification: Vec<Verification>,
    pub(super) structured_output: Option<serde_json::Value>,
    pub(super) retries: u32,
    pub(super) tool_calls: u32,
    started_at: Timestamp,
    started_ms: u128,
}

/// What the record doesn't know by itself.
pub(super) struct Ending {
    pub(super) stop_reason: StopReason,
    /// The final text, or the sentence that says why the turn stopped.
    pub(super) text: String,
    pub(super) failure: Option<Failure>,
    pub(super) exit_class: ExitClass,
    pub(super) label: Option<String>,
    pub(super) prompt_round: u32,
    pub(super) tolerated: bool,
    pub(super) limits: TurnLimits,
    pub(super) policy: PolicyInForce,
    pub(super) provider: ProviderInfo,
    pub(super) residual_risks: Vec<String>,
    pub(super) state_dir: Option<String>,
    pub(super) enforcement: Enforcement,
}

impl Record {
    pub(super) fn begin(
        host: &Host,
        session_id: SessionId,
        turn_id: TurnId,
        history: Vec<NormalizedMessage>,
    ) -> Self {
        Self {
            session_id,
            turn_id,
            history,
            iterations: 0,
            provider_ms: 0,
            events: Vec::new(),
            operations: Vec::new(),
            denials: Vec::new(),
            changes: BTreeMap::new(),
            checkpoints: Vec::new(),
            excluded: ExcludedEffects::default(),
            risks: Risks::default(),
            denied: BTreeMap::new(),
            rules_used: BTreeSet::new(),
            usage: Usage::default(),
            spent: Spent::default(),
            verification: Vec::new(),
            structured_output: None,
            retries: 0,
            tool_calls: 0,
            started_at: host.now(),
            started_ms: host.elapsed().as_millis(),
        }
    }

    pub(super) fn user(&mut self, host: &Host, content: &str) {
        self.message(host, Role::User, content, Vec::new(), None);
    }

    pub(super) fn assistant(&mut self, host: &Host, content: &str, calls: &[Call]) {
        let calls = calls.iter().map(|call| ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        });
        self.message(host, Role::Assistant, content, calls.collect(), None);
        if !content.trim().is_empty() {
            self.text(content);
        }
    }

    pub(super) fn answer(&mut self, host: &Host, call_id: &str, content: &str) {
        self.message(host, Role::Tool, content, Vec::new(), Some(call_id.to_owned()));
    }

    fn message(
        &mut self,
        host: &Host,
        role: Role,
        content: &str,
        tool_calls: Vec<ToolCall>,
        tool_call_id: Option<String>,
    ) {
        let message_id = MessageId::from_uuid(host.uuid());
        let content = content.to_owned();
        self.history.push(NormalizedMessage { message_id, role, content, tool_calls, tool_call_id });
    }

    pub(super) fn text(&mut self, text: &str) {
        self.event(TurnEvent::Text { text: text.to_owned() });
    }

    pub(super) fn event(&mut self, mut event: TurnEvent) {
        // The messages hold what the next request needs; a second copy needn't be whole.
        cap_event(&mut event, MOST_TOLD);
        self.events.push(event);
    }

    pub(super) fn proposed(&mut self, host: &Host) -> OperationId {
        self.tool_calls += 1;
        OperationId::from_uuid(host.uuid())
    }

    pub(super) fn operation(&mut self, operation: Operation) {
        if let Some(rule) = operation.decision.as_ref().and_then(|decision| decision.rule_id.as_ref()) {
            self.rules_used.insert(rule.clone());
        }
        self.operations.push(operation);
    }

    /// Counts a denial; how often this very call has been denied.
    pub(super) fn denied(
        &mut self,
        operation_id: OperationId,
        call: &Call,
        resolved: &Resolved,
        verdict: &Verdict,
        decision: &Decision,
    ) -> u32 {
        let key = (call.name.clone(), call.arguments.clone());
        if let Some(denial) = self.denied.get(&key).and_then(|at| self.denials.get_mut(*at)) {
            denial.count += 1;
            return denial.count;
        }
        self.denied.insert(key, self.denials.len());
        let argv = resolved.command().map(|command| command.argv.clone());
        self.denials.push(Denial {
            operation_id,
            tool: call.name.clone(),
            path: if argv.is_some() { None } else { resolved.target() },
            argv,
            redacted: false,
            because: decision.because,
            cause: decision.cause.clone(),
            rule_id: decision.rule_id.clone(),
            file: decision.file.clone(),
            line: decision.line,
            reason: verdict.reason.clone(),
            suggest: verdict.suggest.clone(),
            count: 1,
        });
        1
    }

    /// Records a change that is there: what came of the file over the whole turn.
    pub(super) fn changed(&mut self, operation: &mut Operation, path: &str, applied: &Applied) {
        let checkpoint_id = match applied.coverage {
            Coverage::Checkpoint(id) => Some(id),
            Coverage::Unprotected => None,
        };
        self.risks.made(operation.target.as_deref());
        operation.checkpoint_id = checkpoint_id;
        operation.before = applied.before;
        operation.after = applied.after;
        match checkpoint_id {
            Some(checkpoint_id) => {
                let (operation_id, path) = (operation.operation_id, path.to_owned());
                self.checkpoints.push(CheckpointMade { checkpoint_id, operation_id, path });
            }
            None => self.excluded.unprotected.push(ExcludedEffect {
                target: path.to_owned(),
                reason: "its images are over the cap, and the policy accepts that".to_owned(),
            }),
        }
        let before = self.changes.remove(path);
        let bytes_before = before.as_ref().map_or(applied.bytes_before, |change| change.bytes_before);
        let covered = checkpoint_id.is_some() && before.as_ref().is_none_or(|change| change.covered);
        let kind = match (bytes_before, applied.bytes_after) {
            (None, Some(_)) => ChangeKind::Created,
            (Some(_), Some(_)) => ChangeKind::Edited,
            (Some(_), None) => ChangeKind::Deleted,
            // Made and removed again: nothing came of it.
            (None, None) => return,
        };
        let bytes_after = applied.bytes_after;
        let path = path.to_owned();
        let change =
            Change { path: path.clone(), kind, bytes_before, bytes_after, checkpoint_id, covered };
        self.changes.insert(path, change);
    }

    /// Records a command that was started: whatever it did, no rollback covers it.
    pub(super) fn commanded(&mut self, operation: &mut Operation, run: CommandRun) {
        self.ran(operation.target.as_deref().unwrap_or_default());
        operation.command = Some(run);
    }

    /// Records that a command was started: whatever it did, no rollback covers it.
    pub(super) fn ran(&mut self, shown: &str) {
        self.excluded.shell.push(ExcludedEffect {
            target: shown.to_owned(),
            reason: "what a command does is never protected".to_owned(),
        });
    }

    /// The files that this turn's tools changed, in the end.
    pub(super) fn changed_files(&self) -> usize {
        self.changes.len()
    }

    /// The calls that were denied, as a person would name them.
    pub(super) fn denied_calls(&self) -> Vec<String> {
        let told = self.denials.iter().map(|denial| {
            let command = denial.argv.as_deref().map(shown);
            let what = command.or_else(|| denial.path.clone()).unwrap_or_default();
            format!("{} {what}", denial.tool).trim_end().to_owned()
        });
        told.collect()
    }

    pub(super) fn any_command(&self) -> bool {
        !self.excluded.shell.is_empty()
    }

    /// The calls that were denied.
    pub(super) fn denials(&self) -> &[Denial] {
        &self.denials
    }

    /// Records that an operation's outcome can't be proven.
    pub(super) fn unproven(&mut self, operation_id: OperationId, tool: &str, target: Option<&str>) {
        self.risks.unproven(operation_id, tool, target);
    }

    /// Records that an operation of an earlier run stands whose outcome can't be proven.
    pub(super) fn earlier_unproven(&mut self) {
        self.risks.earlier_unproven = true;
    }

    /// Records that a change was not made.
    pub(super) fn not_made(&mut self, operation: &Operation, cause: &'static str) {
        self.risks.not_made(&operation.tool, operation.target.as_deref(), cause);
    }

    pub(super) fn any_unknown(&self) -> bool {
        self.risks.any_unknown()
    }

    /// What the document has to say beside the outcome.
    pub(super) fn risks(&self) -> Vec<String> {
        self.risks.told()
    }

    pub(super) fn any_unprotected(&self) -> bool {
        !self.excluded.unprotected.is_empty()
    }

    pub(super) fn any_denied(&self) -> bool {
        !self.denials.is_empty()
    }

    /// The turn's time so far.
    pub(super) fn elapsed(&self, host: &Host) -> Duration {
        let millis = host.elapsed().as_millis().saturating_sub(self.started_ms);
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    pub(super) fn tokens(&mut self, reported: Option<TokenUsage>) {
        match reported {
            Some(tokens) => {
                let add =
                    |sum: &mut Option<u64>, more| *sum = Some(sum.unwrap_or(0).saturating_add(more));
                add(&mut self.usage.input_tokens, tokens.input);
                add(&mut self.usage.output_tokens, tokens.output);
            }
            None => self.usage.replies_without_report += 1,
        }
    }

    pub(super) fn end(self, host: &Host, ending: Ending) -> TurnResult {
        let duration = host.elapsed().as_millis().saturating_sub(self.started_ms);
        let limits = ending.limits;
        let files_changed = u32::try_from(self.changes.len()).unwrap_or(u32::MAX);
        let policy =
            PolicyInForce { rules_used: self.rules_used.into_iter().collect(), ..ending.policy };
        let mut result = TurnResult {
            schema: TurnResultSchema,
            tool_version: TOOL_VERSION.to_owned(),
            text: ending.text,
            history: self.history,
            events: self.events,
            session_id: self.session_id,
            turn_id: self.turn_id,
            prompt_round: ending.prompt_round,
            label: ending.label,
            status: ending.stop_reason.status(!self.changes.is_empty()),
            stop_reason: ending.stop_reason,
            operations: self.operations,
            denials: self.denials,
            changes: self.changes.into_values().collect(),
            verification: self.verification,
            excluded_effects: self.excluded,
            checkpoints: self.checkpoints,
            usage: Usage { retries: self.retries, ..self.usage },
            budget: Budget {
                iterations: Allowance { used: self.iterations, limit: limits.iterations },
                max_output_tokens: limits.max_output_tokens,
                tool_calls: self.tool_calls,
                max_tool_calls: limits.limited.tool_calls,
                total_tokens: self.spent.tokens,
                estimated: self.spent.estimated,
                max_total_tokens: limits.limited.total_tokens,
                max_wall_time_ms: limits.limited.wall_time.map(millis),
                files_changed: Allowance { used: files_changed, limit: limits.write_set.files },
                max_bytes_written: limits.write_set.bytes,
            },
            state_dir: ending.state_dir,
            policy,
            enforcement: ending.enforcement,
            provider: ending.provider,
            timing: Timing {
                started_at: self.started_at,
                ended_at: host.now(),
                duration_ms: u64::try_from(duration).unwrap_or(u64::MAX),
                provider_ms: self.provider_ms,
            },
            residual_risks: ending.residual_risks,
            rollback: None,
            structured_output: self.structured_output,
            failure: ending.failure,
            exit_class: ending.exit_class,
            exit_code: if ending.tolerated { 0 } else { ending.exit_class.code() },
            tolerated: ending.tolerated,
        };
        cap(&mut result);
        result
    }
}

/// Cuts what documents carry of long texts; each cut says so.
fn cap(result: &mut TurnResult) {
    let mut room = MOST_IN_ALL;
    let most = |room: usize| room.clamp(LEAST_TOLD, MOST_TOLD);
    for message in &mut result.history {
        cut(&mut message.content, most(room));
        room = room.saturating_sub(message.content.len());
        for call in &mut message.tool_calls {
            cut(&mut call.id, MOST_OF_A_NAME);
            cut(&mut call.name, MOST_OF_A_NAME);
            cut(&mut call.arguments, most(room));
            room = room.saturating_sub(call.arguments.len());
        }
        if let Some(id) = &mut message.tool_call_id {
            cut(id, MOST_OF_A_NAME);
        }
    }
    let mut room = MOST_IN_ALL;
    for event in &mut result.events {
        room = room.saturating_sub(cap_event(event, most(room)));
    }
    for operation in &mut result.operations {
        cut(&mut operation.tool, MOST_OF_A_NAME);
        if let Some(target) = &mut operation.target {
            cut(target, MOST_OF_A_NAME);
        }
        if let Some(run) = &mut operation.command {
            run.argv.iter_mut().for_each(|word| cut(word, MOST_OF_A_NAME));
            run.argv.truncate(MOST_WORDS);
        }
    }
    for denial in &mut result.denials {
        cut(&mut denial.tool, MOST_OF_A_NAME);
        if let Some(path) = &mut denial.path {
            cut(path, MOST_OF_A_NAME);
        }
        cap_words(&mut denial.argv);
    }
}

fn cap_words(argv: &mut Option<Vec<String>>) {
    if let Some(argv) = argv {
        argv.iter_mut().for_each(|word| cut(word, MOST_OF_A_NAME));
        argv.truncate(MOST_WORDS);
    }
}

/// Cuts an event's text; gives the bytes that are left of it.
fn cap_event(event: &mut TurnEvent, most: usize) -> usize {
    match event {
        TurnEvent::Text { text } => {
            cut(text, most);
            text.len()
        }
        TurnEvent::ToolResult { tool, output, .. } => {
            cut(tool, MOST_OF_A_NAME);
            cut(output, most);
            output.len()
        }
        TurnEvent::ToolStart { tool, .. } | TurnEvent::Ask { tool, .. } => {
            cut(tool, MOST_OF_A_NAME);
            0
        }
        TurnEvent::Retry { .. } | TurnEvent::BudgetNotice { .. } => 0,
    }
}

const MARK: &str = " bytes in all]";

/// Cuts a text, once: one that was cut already keeps its mark, which tells the first length.
fn cut(text: &mut String, most: usize) {
    if text.len() <= most {
        return;
    }
    let old = text.rfind("\n[cut: ").filter(|_| text.ends_with(MARK));
    let mark = match old.and_then(|at| text.get(at..)) {
        Some(mark) if mark.len() < 64 => mark.to_owned(),
        _ => format!("\n[cut: {}{MARK}", text.len()),
    };
    if text.len() <= most + mark.len() && old.is_some() {
        return;
    }
    text.truncate(text.floor_char_boundary(most));
    text.push_str(&mark);
}

/// An operation that never came to a verdict.
pub(super) fn unjudged(operation_id: OperationId, call: &Call, status: OperationStatus) -> Operation {
    Operation {
        operation_id,
        tool: call.name.clone(),
        action_class: None,
        target: None,
        decision: None,
        status,
        checkpoint_id: None,
        before: None,
        after: None,
        command: None,
    }
}
