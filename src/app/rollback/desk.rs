//! A store that is read for a rollback: which checkpoints there are, what each is good for, and which
//! of them the caller means.

use std::collections::BTreeSet;

use super::Meant;
use crate::{
    app::{Common, Fail, state},
    checkpoint::{self, Material, RetentionState, StoredCheckpoint, StoredTarget, retained},
    contract::{CauseCode, ExitClass, Failure, store_report::Authenticity},
    crypto::Keys,
    host::Host,
    id::{CheckpointId, SessionId},
    journal::{self, Ledger},
    session,
    store::{ReadStore, Rows as _, View},
};

/// A store that is read, and everything in it that a rollback may be about.
pub(super) struct Desk {
    pub(super) store: ReadStore,
    pub(super) keys: Option<Keys>,
    pub(super) ledger: Ledger,
    /// The newest first.
    pub(super) checkpoints: Vec<StoredCheckpoint>,
    pub(super) unreadable: u32,
    pub(super) workspace: String,
    pub(super) state_dir: String,
    pub(super) usage: u64,
}

/// What can be said of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Eligible,
    Expired,
    Corrupt,
    Locked,
    NotApplied,
}

impl Desk {
    pub(super) fn open(host: &Host, common: &Common) -> Result<Self, Fail> {
        let place = state::place_to_read(host, common)?;
        let store = ReadStore::open(&place.dir)?;
        store.hold_still()?;
        state::anchored(&store)?;
        let keys = state::keys_if_any(&store, &state::key_source(host, &place, &common.state));
        let ledger = journal::ledger(&store, keys.as_ref().map(|keys| &keys.journal))?;
        let (checkpoints, unreadable) = checkpoint::list(&store)?;
        let (workspace, _) = store.made_for()?;
        let usage = "SELECT ifnull(sum(stored), 0) FROM blob";
        let usage: i64 = store.first(usage, [], |row| row.get(0))?.unwrap_or(0);
        let usage = u64::try_from(usage).unwrap_or(0);
        let state_dir = place.dir.display().to_string();
        Ok(Self { store, keys, ledger, checkpoints, unreadable, workspace, state_dir, usage })
    }

    pub(super) fn view(&self) -> Result<Option<View<'_, ReadStore>>, Fail> {
        Ok(self.keys.as_ref().map(|keys| self.store.view(keys)).transpose()?)
    }

    pub(super) fn authenticity(&self) -> Authenticity {
        match self.keys {
            Some(_) => Authenticity::Verified,
            None => Authenticity::UnverifiedNoKey,
        }
    }

    /// Whether a checkpoint is what was kept, as deep as the key reaches.
    pub(super) fn standing(&self, checkpoint: &StoredCheckpoint) -> Result<Standing, Fail> {
        let Some((digest, became)) = self.ledger.checkpoints.get(&checkpoint.checkpoint_id) else {
            return Ok(Standing::Corrupt);
        };
        let says = match checkpoint.took_effect {
            Some(true) => "committed",
            Some(false) => "failed",
            None => "pending",
        };
        if says != *became {
            return Ok(Standing::Corrupt);
        }
        let material =
            checkpoint::material(&self.store, self.view()?, checkpoint.checkpoint_id, *digest)?;
        Ok(match material {
            Material::Corrupt | Material::Missing => Standing::Corrupt,
            Material::Locked => Standing::Locked,
            Material::Complete if checkpoint.took_effect != Some(true) => Standing::NotApplied,
            Material::Complete if !self.is_retained(checkpoint) => Standing::Expired,
            Material::Complete => Standing::Eligible,
        })
    }

    /// Whether its window still holds. Rounds that changed nothing don't count.
    fn is_retained(&self, checkpoint: &StoredCheckpoint) -> bool {
        let none = BTreeSet::new();
        let rounds = self.ledger.rounds.get(&checkpoint.session_id).unwrap_or(&none);
        let state = retained(checkpoint.retention, checkpoint.prompt_round, rounds);
        state == RetentionState::Retained
    }

    pub(super) fn session(&self, text: &str) -> Result<SessionId, Fail> {
        Ok(session::find(&self.store, self.keys.as_ref(), text)?)
    }

    /// The files of a checkpoint that were changed. Where it was made for several, some may not have
    /// been.
    pub(super) fn targets(
        &self,
        view: View<'_, ReadStore>,
        id: CheckpointId,
    ) -> Result<Vec<StoredTarget>, Fail> {
        let mut targets = checkpoint::targets(view, id)?;
        if let Some(changed) = self.ledger.parts.get(&id) {
            targets.retain(|target| changed.contains(&target.ordinal));
        }
        Ok(targets)
    }

    /// The checkpoint that a text names.
    pub(super) fn find(&self, text: &str) -> Result<&StoredCheckpoint, Fail> {
        let wanted = text.to_ascii_lowercase();
        let named = text.parse::<CheckpointId>().ok();
        let is_prefix = text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let fits = |id: CheckpointId| match named {
            Some(named) => id == named,
            None => is_prefix && id.random_part().starts_with(&wanted),
        };
        let mut found = self.checkpoints.iter().filter(|stored| fits(stored.checkpoint_id));
        let shown: String = text.chars().take(60).collect();
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => Err(not_found(format!("no checkpoint has the id {shown:?}"))),
            (Some(_), Some(_)) => {
                Err(not_found(format!("more than one checkpoint begins like {shown:?}")))
            }
        }
    }

    /// The checkpoints that are meant, the oldest first.
    pub(super) fn meant(&self, meant: &Meant) -> Result<Vec<&StoredCheckpoint>, Fail> {
        let session = meant.session.as_deref().map(|text| self.session(text)).transpose()?;
        let of_session =
            |stored: &&StoredCheckpoint| session.is_none_or(|session| stored.session_id == session);
        let mut found: Vec<&StoredCheckpoint> = Vec::new();
        if let Some(turn) = meant.turn_id {
            found.extend(self.checkpoints.iter().filter(|stored| stored.turn_id == turn));
        }
        let last = meant.checkpoints.iter().any(|text| text == "last");
        for text in meant.checkpoints.iter().filter(|text| *text != "last") {
            found.push(self.find(text)?);
        }
        if last || (found.is_empty() && (meant.turn.is_some() || session.is_some())) {
            // The session of the newest one, unless another is named.
            let of = session.or_else(|| self.checkpoints.first().map(|newest| newest.session_id));
            let of = self.checkpoints.iter().filter(|stored| Some(stored.session_id) == of);
            let newest = of.clone().map(|stored| stored.prompt_round).max();
            let round = if last { newest } else { meant.turn };
            found.extend(
                of.filter(of_session)
                    .filter(|stored| round.is_none_or(|round| stored.prompt_round == round)),
            );
        }
        found.sort_by_key(|stored| stored.checkpoint_id);
        found.dedup_by_key(|stored| stored.checkpoint_id);
        Ok(found)
    }
}

fn not_found(message: String) -> Fail {
    let failure = Failure::new(CauseCode::CheckpointNotFound, message);
    Fail {
        class: ExitClass::Blocked,
        failure: failure.action("`thcode rollback list` tells what there is, with full ids"),
    }
}
