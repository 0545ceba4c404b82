//! Where and how a command line that can't be read most likely wanted its document.

use std::{
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};

use super::{Ending, Output, OutputFormat, Stream};
use crate::host::{Host, own_file};

impl Output {
    /// What a command line that can't be read most likely meant.
    pub(in crate::cli) fn guessed(host: &Host, words: &[OsString]) -> Self {
        let mut format = host.text_var("THCODE_OUTPUT_FORMAT").and_then(|name| format_named(&name));
        let others: Vec<PathBuf> = words
            .iter()
            .skip(1)
            .flat_map(|word| word.to_string_lossy().split('=').map(PathBuf::from).collect::<Vec<_>>())
            .collect();
        let set = |value: String| !matches!(value.as_str(), "0" | "false" | "no" | "off");
        let mut json = host.text_var("THCODE_JSON").is_some_and(set);
        let mut file = host.var("THCODE_OUTPUT").map(PathBuf::from);
        let mut words = words.iter().skip(1).take_while(|word| *word != "--").peekable();
        while let Some(word) = words.next() {
            let text = word.to_string_lossy();
            let (flag, value) = match text.split_once('=') {
                Some((flag, value)) => (flag, Some(OsString::from(value))),
                None => (text.as_ref(), words.peek().map(|next| (*next).clone())),
            };
            match flag {
                "--json" => json = true,
                "--output-format" => {
                    format = value.and_then(|name| format_named(&name.to_string_lossy())).or(format);
                }
                "-o" | "--output" => file = value.map(PathBuf::from),
                _ => {}
            }
        }
        let format = match format {
            Some(OutputFormat::Text) | None if json => OutputFormat::Json,
            Some(format) => format,
            None => OutputFormat::Text,
        };
        // Named twice, the file is what is read as well.
        let same =
            |file: &PathBuf| others.iter().filter(|other| own_file::is_same(file, other)).count() > 1;
        let refused = Arc::new(AtomicBool::new(file.as_ref().is_some_and(same)));
        Self { format, file, refused, stream: Stream::default(), ending: Arc::new(Ending::new()) }
    }
}

fn format_named(name: &str) -> Option<OutputFormat> {
    clap::ValueEnum::from_str(name, false).ok()
}
