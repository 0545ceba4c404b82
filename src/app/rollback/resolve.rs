//! One conflict, settled as the operator wants it. Overwriting blindly, going on and trying again aren't
//! among the choices: what is written here is written as any change is, over exactly what was seen, and
//! with a checkpoint.

use std::{io::Read as _, path::PathBuf};

use super::{
    Meant, Selected,
    apply::{Settled, Writer, about, broken, settled},
    desk::Desk,
    observe,
    plan::{Plan, Target},
};
use crate::{
    app::{Common, Ended, Fail, input},
    checkpoint::{Capacity, StoredCheckpoint},
    contract::{
        CauseCode, ExitClass, Failure,
        rollback::{ApplyTargetOutcome, InverseOperation},
    },
    diff,
    host::Host,
    id::Digest,
    journal::JournalError,
    mutation::{self, Change, Coverage, Ended as Changed, Limits, MOST_EDITED_BYTES, Protection, Vault},
    store::Durability,
    workspace::Root,
};

/// What is to be done about a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Leave the file as it is.
    SkipTarget,
    /// Show what putting it back would change, as a patch without known secrets.
    ExportSanitizedPatch,
    /// The file's new content is in this file.
    UserAuthoredResolution(PathBuf),
    /// Put what stood there before under this name, where nothing stands.
    RebaseNewPath(String),
}

impl Choice {
    fn token(&self) -> &'static str {
        match self {
            Self::SkipTarget => "skip-target",
            Self::ExportSanitizedPatch => "export-sanitized-patch",
            Self::UserAuthoredResolution(_) => "user-authored-resolution",
            Self::RebaseNewPath(_) => "rebase-new-path",
        }
    }
}

/// Carries out a choice about one file of a checkpoint.
pub fn resolve(
    host: &Host,
    common: &Common,
    checkpoint: &str,
    path: &str,
    choice: &Choice,
) -> Result<Ended, Fail> {
    let content = match choice {
        Choice::UserAuthoredResolution(file) => Some(authored(file)?),
        Choice::SkipTarget | Choice::ExportSanitizedPatch | Choice::RebaseNewPath(_) => None,
    };
    let writes = match choice {
        Choice::UserAuthoredResolution(_) | Choice::RebaseNewPath(_) => true,
        Choice::SkipTarget | Choice::ExportSanitizedPatch => false,
    };
    let mut writer = if writes { Some(Writer::open(host, common)?) } else { None };
    let meant = Meant { checkpoints: vec![checkpoint.to_owned()], ..Meant::default() };
    let selected = Selected { only: vec![path.to_owned()], ..Selected::default() };
    // The reader's snapshot is let go before anything is written.
    let (plan, open, state_dir, before) = {
        let desk = Desk::open(host, common)?;
        let plan = Plan::make(host, common, &desk, &meant, &selected)?;
        let target = one(&plan, path)?;
        let before = match choice {
            Choice::SkipTarget | Choice::UserAuthoredResolution(_) => None,
            Choice::ExportSanitizedPatch | Choice::RebaseNewPath(_) => before(&desk, target)?,
        };
        (plan, desk.ledger.open_operations(), desk.state_dir.clone(), before)
    };
    let target = one(&plan, path)?;
    let mut made = Settled { outcome: skipped(choice), ..Settled::default() };
    match choice {
        Choice::SkipTarget => {}
        Choice::ExportSanitizedPatch => {
            made.patch = Some(patch(&plan.root, target, before.as_deref())?);
        }
        Choice::UserAuthoredResolution(_) => {
            let content = content.unwrap_or_default();
            let seen = target.told.current_state.digest;
            let path = target.told.path.as_str();
            let change = match target.told.current_state.state.as_str() {
                "absent" => Change::Create { path, content: &content },
                _ => Change::Replace { path, content: &content },
            };
            made = write(host, writer.as_mut(), &plan, &change, seen)?;
        }
        Choice::RebaseNewPath(new) => {
            let content = before.ok_or_else(|| {
                refused(path, "nothing stood there before, so there is nothing to put elsewhere")
            })?;
            let new = super::plan::inside(&plan.root, new)?;
            if let Some(boundary) = observe::boundary(&plan.root, &new, false) {
                return Err(refused(&new, &format!("no rollback may write there ({boundary})")));
            }
            let change = Change::Create { path: &new, content: &content };
            made = write(host, writer.as_mut(), &plan, &change, None)?;
        }
    }
    if let Some(writer) = writer {
        made.notes = writer.notes.clone();
        writer.close()?;
    }
    let message = format!("{}: {}", choice.token(), done(choice));
    Ok(Ended::RollbackApply(Box::new(settled(common, plan, (made, message), (open, state_dir)))))
}

fn done(choice: &Choice) -> &'static str {
    match choice {
        Choice::SkipTarget => "left as it is",
        Choice::ExportSanitizedPatch => "shown, and left as it is",
        Choice::UserAuthoredResolution(_) => "it has the operator's content",
        Choice::RebaseNewPath(_) => "what stood there before is under the new name",
    }
}

fn skipped(choice: &Choice) -> ApplyTargetOutcome {
    ApplyTargetOutcome::Skipped { reason_code: choice.token().to_owned() }
}

/// The operator's content.
fn authored(file: &std::path::Path) -> Result<Vec<u8>, Fail> {
    input::read(file, MOST_EDITED_BYTES)
        .map_err(|message| Fail::usage(Failure::new(CauseCode::InputUnreadable, message)))
}

fn refused(path: &str, why: &str) -> Fail {
    let failure = Failure::new(CauseCode::ResolutionRefused, format!("{path}: {why}"));
    Fail {
        class: ExitClass::Blocked,
        failure: failure.action("`thcode rollback analyze` tells how the file stands"),
    }
}

/// The one file, if a choice may be carried out on it.
fn one<'p>(plan: &'p Plan, path: &str) -> Result<&'p Target, Fail> {
    let target = plan.targets.first().filter(|target| target.composed.is_some());
    let target = target.ok_or_else(|| refused(path, "it isn't a file of that checkpoint"))?;
    match target.boundary {
        Some(boundary) => Err(refused(path, &format!("no rollback may touch it ({boundary})"))),
        None => Ok(target),
    }
}

/// What stood there before, whole; `None` where nothing did.
fn before(desk: &Desk, target: &Target) -> Result<Option<Vec<u8>>, Fail> {
    let path = &target.told.path;
    let Some(composed) = &target.composed else { return Ok(None) };
    let Some(view) = desk.view()? else { return Ok(None) };
    if target.told.pre_image.bytes.unwrap_or(0) > MOST_EDITED_BYTES {
        return Err(refused(path, &format!("it was over {MOST_EDITED_BYTES} bytes")));
    }
    observe::whole(view, &composed.first.pre)
        .ok_or_else(|| refused(path, "what stood there before can't be opened"))
}

/// What putting the file back would change in it.
fn patch(root: &Root, target: &Target, before: Option<&[u8]>) -> Result<String, Fail> {
    let path = &target.told.path;
    let now = match target.told.current_state.state.as_str() {
        "absent" => None,
        _ => Some(current(root, target).ok_or_else(|| refused(path, "it can't be read"))?),
    };
    diff::unified(path, now.as_deref(), before)
        .ok_or_else(|| refused(path, "it isn't text, so that there is no patch of it"))
}

fn current(root: &Root, target: &Target) -> Option<Vec<u8>> {
    let file = root.open_file(&root.look(&target.told.path)).ok()?;
    let mut bytes = Vec::new();
    file.take(MOST_EDITED_BYTES + 1).read_to_end(&mut bytes).ok()?;
    let fits = u64::try_from(bytes.len()).is_ok_and(|length| length <= MOST_EDITED_BYTES);
    let same = target.told.current_state.digest == Some(Digest::of(&bytes));
    (fits && same).then_some(bytes)
}

/// Makes the operator's change: an operation with a checkpoint, as any other.
fn write(
    host: &Host,
    writer: Option<&mut Writer>,
    plan: &Plan,
    change: &Change<'_>,
    seen: Option<Digest>,
) -> Result<Settled, Fail> {
    let (Some(writer), Some(newest)) = (writer, plan.checkpoints.last()) else {
        return Err(Fail::internal("a choice that writes has no writer".to_owned()));
    };
    let about = about(host, newest);
    let events = mutation::ordered(about, ("rollback-resolve", "operator:resolve", plan.policy));
    writer.log.write(host, &writer.store, Durability::Normal, |_, stage| {
        events.into_iter().for_each(|event| stage.push(event));
        Ok::<_, JournalError>(())
    })?;
    let mut vault = Vault { host, root: &plan.root, store: &mut writer.store, log: &mut writer.log };
    let ended = mutation::mutate(&mut vault, about, change, seen, limits(newest))
        .map_err(|error| broken(about.operation_id, error))?;
    let operation_id = Some(about.operation_id);
    match ended {
        Changed::Applied(applied) => {
            let checkpoint = match applied.coverage {
                Coverage::Checkpoint(id) => Some(id),
                Coverage::Unprotected => None,
            };
            let outcome = ApplyTargetOutcome::Applied { inverse_operation: InverseOperation::None };
            Ok(Settled { outcome, operation_id, checkpoint, ..Settled::default() })
        }
        Changed::Refused(refusal) | Changed::Failed(refusal) => {
            let mut fail = refused(change.path(), &refusal.message);
            fail.failure.operation_id = operation_id;
            Err(fail)
        }
        Changed::Unknown(refusal) => {
            let mut failure =
                Failure::new(CauseCode::OutcomeUnproven, refusal.message).action("thcode recover");
            failure.operation_id = operation_id;
            Err(Fail { class: ExitClass::UnknownOutcome, failure })
        }
    }
}

fn limits(of: &StoredCheckpoint) -> Limits {
    Limits {
        capacity: Capacity::MOST,
        retention: of.retention,
        break_hard_links: false,
        protection: Protection::Required,
    }
}
