//! The tools that exist: what is offered to the model, and what a call's arguments become.
//!
//! A tool that isn't built isn't here, so it is neither offered nor runnable.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Done, ToolContext, ToolError,
    args::{Arguments, BadArguments},
    command::RunCommand,
    finish::{self, Finish},
    list_files::{self, ListFiles},
    read_file::{self, ReadFile},
    resolve::Resolved,
    search_text::{self, SearchText},
    write_files::{CreateFile, DeleteFile, EditFile, Writing},
};

/// A tool that can be offered and run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Tells names.
    ListFiles,
    /// Tells content.
    ReadFile,
    /// Tells lines that match.
    SearchText,
    /// Makes a file.
    CreateFile,
    /// Changes a file.
    EditFile,
    /// Removes a file.
    DeleteFile,
    /// Runs a program.
    RunCommand,
    /// Ends the turn.
    Finish,
}

/// A call whose arguments were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Reads the tree; judged, then run.
    Read(Reading),
    /// Changes the tree; judged, sealed, journaled, then done.
    Write(Writing),
    /// Runs a program; judged, journaled, then done.
    Command(RunCommand),
    /// Ends the turn; touches nothing.
    Finish(Finish),
}

/// What reads the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Tells names.
    ListFiles(ListFiles),
    /// Tells content.
    ReadFile(ReadFile),
    /// Tells lines that match.
    SearchText(SearchText),
}

impl Tool {
    /// Every tool, in the order in which they are offered.
    pub const ALL: [Self; 8] = [
        Self::ListFiles,
        Self::ReadFile,
        Self::SearchText,
        Self::CreateFile,
        Self::EditFile,
        Self::DeleteFile,
        Self::RunCommand,
        Self::Finish,
    ];

    /// The tool of that name, by exact bytes.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ListFiles => "list_files",
            Self::ReadFile => "read_file",
            Self::SearchText => "search_text",
            Self::CreateFile => "create_file",
            Self::EditFile => "edit_file",
            Self::DeleteFile => "delete_file",
            Self::RunCommand => "run_command",
            Self::Finish => finish::NAME,
        }
    }

    /// What it does, for the model.
    pub fn description(self) -> &'static str {
        match self {
            Self::ListFiles => {
                "List files and directories below a directory of the workspace, by name. Respects \
                 .gitignore and .thcodeignore. Directories end in /, links in @."
            }
            Self::ReadFile => {
                "Read a text file of the workspace, in lines. At most 256 KiB a call; the first line of \
                 the result says which lines were given and how to get more."
            }
            Self::SearchText => {
                "Search the text files of the workspace for a regular expression (or literal text), \
                 line by line. At most 200 matching lines a call."
            }
            Self::CreateFile => {
                "Create a file of the workspace with exactly this content. Fails if anything is there."
            }
            Self::EditFile => {
                "Replace text in a file of the workspace. oldText must be there exactly (white space too) \
                 and once, unless expectedCount says otherwise; several edits apply together or not at \
                 all. In a file whose lines all end in CRLF, LF in your text stands for CRLF."
            }
            Self::DeleteFile => {
                "DESTRUCTIVE: remove a file of the workspace. Directories can't be removed."
            }
            Self::RunCommand => {
                "Run a program in the workspace and wait for its end: argv is the program and its words, \
                 and no shell reads them, so there are no pipes, redirects or globs. No input. Its output \
                 is told, of a long one the head and the tail. Only commands that the policy grants run; \
                 to read, list or search, use the other tools."
            }
            Self::Finish => {
                "End the turn. Call it once, alone, when the task is done or can't be done, with a \
                 summary for the person who reads the result. Nobody can answer questions."
            }
        }
    }

    /// Whether it may change something, so that plan mode neither offers nor runs it.
    pub fn mutating(self) -> bool {
        match self {
            Self::ListFiles | Self::ReadFile | Self::SearchText | Self::Finish => false,
            Self::CreateFile | Self::EditFile | Self::DeleteFile | Self::RunCommand => true,
        }
    }

    /// The JSON Schema of its input, generated from the type that its arguments are read into.
    pub fn input_schema(self) -> Value {
        match self {
            Self::ListFiles => schema_of::<ListFiles>(),
            Self::ReadFile => schema_of::<ReadFile>(),
            Self::SearchText => schema_of::<SearchText>(),
            Self::CreateFile => schema_of::<CreateFile>(),
            Self::EditFile => schema_of::<EditFile>(),
            Self::DeleteFile => schema_of::<DeleteFile>(),
            Self::RunCommand => schema_of::<RunCommand>(),
            Self::Finish => schema_of::<Finish>(),
        }
    }

    /// Reads a call's arguments into the tool's own type; nothing is coerced.
    pub fn action(self, arguments: Arguments) -> Result<Action, BadArguments> {
        Ok(match self {
            Self::ListFiles => Action::Read(Reading::ListFiles(typed(self, arguments)?)),
            Self::ReadFile => Action::Read(Reading::ReadFile(typed(self, arguments)?)),
            Self::SearchText => Action::Read(Reading::SearchText(typed(self, arguments)?)),
            Self::CreateFile => Action::Write(Writing::Create(typed(self, arguments)?)),
            Self::EditFile => Action::Write(Writing::edit(typed(self, arguments)?)),
            Self::DeleteFile => Action::Write(Writing::Delete(typed(self, arguments)?)),
            Self::RunCommand => Action::Command(typed(self, arguments)?),
            Self::Finish => Action::Finish(typed(self, arguments)?),
        })
    }
}

impl Reading {
    /// Does it, on the very things that were resolved and judged. Blocks.
    pub fn run(&self, resolved: &Resolved, context: &ToolContext) -> Result<Done, ToolError> {
        match self {
            Self::ListFiles(input) => list_files::run(input, resolved, context).map(Done::from),
            Self::ReadFile(input) => read_file::run(input, resolved, context),
            Self::SearchText(input) => search_text::run(input, resolved, context).map(Done::from),
        }
    }
}

fn typed<T: DeserializeOwned>(tool: Tool, arguments: Arguments) -> Result<T, BadArguments> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| BadArguments::form(format!("{}: {error}", tool.name())))
}

fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    for key in ["$schema", "title", "description"] {
        schema.remove(key);
    }
    schema.to_value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::call::ActionClass, tool::shape};

    #[test]
    fn a_tool_s_type_and_its_fields_agree() {
        for tool in Tool::ALL.into_iter().filter(|tool| *tool != Tool::Finish) {
            assert!(ActionClass::of_tool(tool.name()).is_some());
            let schema = tool.input_schema();
            let mut typed: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
            let mut known: Vec<_> =
                shape::fields(tool.name()).unwrap().iter().map(|(name, _)| (*name).to_owned()).collect();
            typed.sort();
            known.sort();
            assert_eq!(typed, known, "{}", tool.name());
            assert_eq!(schema["additionalProperties"], false, "unknown fields are refused");
        }
    }

    #[test]
    fn every_tool_name_of_the_policy_has_fields() {
        for (name, _) in crate::policy::call::BUILTIN_TOOLS {
            assert!(shape::fields(name).is_some(), "{name}");
        }
    }

    #[test]
    fn nothing_is_coerced() {
        let read = |text: &str| Tool::ReadFile.action(serde_json::from_str(text).unwrap());
        assert!(read(r#"{"path":"a","offset":1}"#).is_ok());
        for bad in [
            r#"{}"#,
            r#"{"path":1}"#,
            r#"{"Path":"a"}"#,
            r#"{"path":"a","offset":"1"}"#,
            r#"{"path":"a","x":1}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
