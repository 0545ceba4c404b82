//! `key new`.

use super::Fail;
use crate::{crypto::encode_new_key, host::Host};

/// A fresh key in its textual form, and the end of its line.
pub fn fresh(host: &Host) -> Result<String, Fail> {
    let key = encode_new_key(host).map_err(crate::store::StoreError::from)?;
    Ok(format!("{}\n", key.expose()))
}
