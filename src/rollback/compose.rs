//! Several checkpoints as one: per path the first image before and the last one after, and whether
//! they hang together.

use std::collections::BTreeMap;

use crate::{
    checkpoint::{StoredImage, StoredTarget},
    id::CheckpointId,
};

/// A path over some checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composed {
    /// Where, as raw bytes.
    pub path: Vec<u8>,
    /// The checkpoints, the oldest first.
    pub checkpoints: Vec<CheckpointId>,
    /// What stood there before the first: where it is restored from.
    pub first: StoredTarget,
    /// What the last one left.
    pub post: StoredImage,
    /// Whether each found what the one before had left. If not, somebody wrote in between.
    pub is_whole: bool,
}

impl Composed {
    /// What was done to the path, all in all.
    pub fn effect(&self) -> &'static str {
        match (&self.first.pre, &self.post) {
            (StoredImage::Absent, _) => "create",
            (StoredImage::Present { .. }, StoredImage::Present { .. }) => "edit",
            (StoredImage::Present { .. }, StoredImage::Absent) => "delete",
        }
    }
}

/// Composes checkpoints, the oldest first; by path.
pub fn compose(checkpoints: Vec<(CheckpointId, Vec<StoredTarget>)>) -> Vec<Composed> {
    let mut paths: BTreeMap<Vec<u8>, Composed> = BTreeMap::new();
    for (id, targets) in checkpoints {
        for target in targets {
            match paths.get_mut(&target.path) {
                Some(composed) => {
                    composed.is_whole &= composed.post.same_as(&target.pre);
                    composed.post = target.post;
                    composed.checkpoints.push(id);
                }
                None => {
                    let composed = Composed {
                        path: target.path.clone(),
                        checkpoints: vec![id],
                        post: target.post.clone(),
                        first: target,
                        is_whole: true,
                    };
                    paths.insert(composed.path.clone(), composed);
                }
            }
        }
    }
    paths.into_values().collect()
}
