//! `search_text`: lines that match, over the files that a walk comes to, each judged before it is
//! opened.

use std::{io, sync::atomic::Ordering};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    ToolContext, ToolError,
    bounded::Bounded,
    list_files::{path_glob, tell_skipped, told_path},
    resolve::{Resolved, read_of},
    shown::shown,
};
use crate::workspace::{EntryKind, Kind, Look, Skip, Spot, Step, Walk};

const NAME: &str = "search_text";
/// Matching lines that one call tells.
const MOST_HITS: usize = 200;
/// Bytes that one call tells.
const MOST_BYTES: usize = 256 * 1024;
/// Bytes of files that one call reads.
const MOST_READ: u64 = 1 << 30;
/// Bytes of one file that are searched; what lies behind is told as not searched.
const MOST_OF_A_FILE: u64 = 256 << 20;
/// Bytes of a pattern.
const LONGEST_PATTERN: usize = 64 * 1024;
/// Characters of a line that are told.
const LINE: usize = 400;
/// Memory for one line; a longer one can't be searched.
const HEAP: usize = 8 << 20;
/// Lines around a hit that can be asked for.
const MOST_CONTEXT: u32 = 20;

/// Searches text files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SearchText {
    /// A regular expression (Rust syntax), or literal text if `literal` is true.
    pub pattern: String,
    /// Whether the pattern is literal text. False if left out.
    pub literal: Option<bool>,
    /// The file or directory to search, relative to the workspace. All of it if left out.
    pub path: Option<String>,
    /// Only files whose path matches, such as "src/**/*.rs" or "*.md" (which matches at any depth).
    pub glob: Option<String>,
    /// Lines of context around each hit, up to 20. None if left out.
    pub context: Option<u32>,
}

pub(super) fn run(
    input: &SearchText,
    resolved: &Resolved,
    context: &ToolContext,
) -> Result<String, ToolError> {
    let given = input.path.as_deref().unwrap_or(".");
    let target = |problem| ToolError::Target { path: given.to_owned(), problem };
    let glob = input.glob.as_deref().map(path_glob).transpose()?;
    let mut search = Search::new(input)?;
    let look = resolved.look.as_ref().ok_or_else(|| target("this is neither a file nor a directory"))?;
    let Spot::Inside(start) = &look.spot else {
        return Err(target("this is outside the workspace"));
    };
    let mut walk = Walk::new(&context.root);
    match look.kind {
        Kind::Regular => {
            if let Err(why) = search.file(start, look, context) {
                walk.skip(why);
            }
        }
        Kind::Directory => {
            walk.below(start, &mut |_, entry| {
                if context.stop.load(Ordering::Relaxed) || search.full() {
                    return Step::Stop;
                }
                if !(context.judge)(&read_of(NAME, &entry.path, &entry.look)) {
                    return Step::Skip(Skip::Denied);
                }
                let wanted = glob.as_ref().is_none_or(|glob| glob.is_match(&entry.path));
                match entry.kind {
                    EntryKind::Directory => Step::Into,
                    EntryKind::File if wanted => match search.file(&entry.path, &entry.look, context) {
                        Ok(()) => Step::Over,
                        Err(why) => Step::Skip(why),
                    },
                    EntryKind::File | EntryKind::Link => Step::Over,
                }
            });
        }
        Kind::Absent => return Err(target("there is no such file or directory")),
        Kind::Special | Kind::Unknown => return Err(target("this is neither a file nor a directory")),
    }
    if context.stop.load(Ordering::Relaxed) {
        return Err(ToolError::Stopped);
    }
    let mut text = format!(
        "{} matching {} in {} of {} files",
        search.hits,
        if search.hits == 1 { "line" } else { "lines" },
        search.files_with_hits,
        search.files
    );
    if search.cut > 0 {
        let (cut, most) = (search.cut, MOST_OF_A_FILE >> 20);
        text.push_str(&format!(" (truncated: {cut} searched only in their first {most} MiB)"));
    }
    if search.full() {
        text.push_str(" (truncated: the search stopped at its limit; narrow pattern, path or glob)");
    }
    tell_skipped(&mut text, &walk.skipped);
    text.push('\n');
    text.push_str(&search.lines);
    Ok(text)
}

struct Search {
    matcher: RegexMatcher,
    searcher: Searcher,
    lines: String,
    hits: usize,
    files: u64,
    files_with_hits: u64,
    /// Files that were not searched to their end.
    cut: u64,
    bytes_read: u64,
}

impl Search {
    fn new(input: &SearchText) -> Result<Self, ToolError> {
        if input.pattern.len() > LONGEST_PATTERN {
            let message = format!("it is over {LONGEST_PATTERN} bytes");
            return Err(ToolError::Pattern { what: "pattern", message });
        }
        let matcher = RegexMatcherBuilder::new()
            .fixed_strings(input.literal == Some(true))
            .line_terminator(Some(b'\n'))
            .size_limit(10 << 20)
            .dfa_size_limit(10 << 20)
            .build(&input.pattern)
            .map_err(|error| ToolError::Pattern { what: "pattern", message: error.to_string() })?;
        let around = usize::try_from(input.context.unwrap_or(0).min(MOST_CONTEXT)).unwrap_or(0);
        let searcher = SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .before_context(around)
            .after_context(around)
            .line_number(true)
            .heap_limit(Some(HEAP))
            .build();
        Ok(Self {
            matcher,
            searcher,
            lines: String::new(),
            hits: 0,
            files: 0,
            files_with_hits: 0,
            cut: 0,
            bytes_read: 0,
        })
    }

    fn full(&self) -> bool {
        self.hits >= MOST_HITS || self.lines.len() >= MOST_BYTES || self.bytes_read >= MOST_READ
    }

    /// Searches one file; the reason if it must be left out.
    fn file(&mut self, path: &str, look: &Look, context: &ToolContext) -> Result<(), Skip> {
        let file = context.root.open_file(look).map_err(|_| Skip::Unreadable)?;
        let budget = MOST_READ.saturating_sub(self.bytes_read).min(MOST_OF_A_FILE);
        let mut file = Bounded::new(file, look.bytes, budget, &context.stop);
        let (mark, hits_before) = (self.lines.len(), self.hits);
        let told = told_path(path);
        let mut hits =
            Hits { path: &told, lines: &mut self.lines, count: &mut self.hits, binary: false };
        let searched = self.searcher.search_reader(&self.matcher, &mut file, &mut hits);
        self.bytes_read = self.bytes_read.saturating_add(file.count());
        let skip = match searched {
            Ok(()) if hits.binary => Some(Skip::Binary),
            Ok(()) => None,
            // The searcher's one error of its own is a line that its memory can't hold.
            Err(error) if error.raw_os_error().is_none() => Some(Skip::LineTooLong),
            Err(_) => Some(Skip::Unreadable),
        };
        if let Some(why) = skip {
            self.lines.truncate(mark);
            self.hits = hits_before;
            return Err(why);
        }
        self.cut += u64::from(file.is_cut());
        self.files += 1;
        self.files_with_hits += u64::from(self.hits > hits_before);
        Ok(())
    }
}

struct Hits<'a> {
    path: &'a str,
    lines: &'a mut String,
    count: &'a mut usize,
    binary: bool,
}

impl Hits<'_> {
    fn tell(&mut self, mark: char, number: Option<u64>, line: &[u8]) {
        let line = shown(line);
        let line = line.trim_end_matches(['\n', '\r']);
        let shown: String = line.chars().take(LINE).collect();
        let cut = if shown.len() < line.len() { " [line cut]" } else { "" };
        let number = number.unwrap_or(0);
        self.lines.push_str(&format!("{}{mark}{number}{mark}{shown}{cut}\n", self.path));
    }
}

impl Sink for Hits<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.tell(':', found.line_number(), found.bytes());
        *self.count += 1;
        Ok(*self.count < MOST_HITS && self.lines.len() < MOST_BYTES)
    }

    fn context(&mut self, _: &Searcher, around: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.tell('-', around.line_number(), around.bytes());
        Ok(self.lines.len() < MOST_BYTES)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.lines.push_str("--\n");
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.binary = true;
        Ok(false)
    }
}
