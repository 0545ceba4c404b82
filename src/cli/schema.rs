//! `thcode schema`.

use std::path::PathBuf;

use clap::Subcommand;

use super::output::Product;
use crate::app::{self, Fail};

/// What to do with the published schemas.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  thcode schema print turn-result")]
pub(super) enum SchemaVerb {
    /// List the published schemas.
    #[command(after_help = "Example:\n  thcode schema list --json")]
    List,
    /// Print one schema, and nothing else.
    #[command(after_help = "Example:\n  thcode schema print turn-result")]
    Print {
        /// The schema's name.
        name: String,
    },
    /// Check a JSON file against a schema; violations are told without the file's content.
    #[command(after_help = "Example:\n  thcode schema validate turn-result result.json")]
    Validate {
        /// The schema's name.
        name: String,
        /// The JSON file.
        file: PathBuf,
    },
}

pub(super) fn dispatch(verb: SchemaVerb) -> Result<Product, Fail> {
    match verb {
        SchemaVerb::List => Ok(Product::Document(app::schema::list())),
        SchemaVerb::Print { name } => {
            let text = app::schema::print(&name)?.to_owned();
            Ok(Product::Text { verb: "schema print", text })
        }
        SchemaVerb::Validate { name, file } => {
            app::schema::validate(&name, &file).map(Product::Document)
        }
    }
}
