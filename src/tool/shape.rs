//! The fields that each built-in tool's input may have: what a call is checked against when it is
//! judged without being run (`policy explain`, examples, recorded calls), and may be partial.
//!
//! A call that is run is read into the tool's own type instead; a test holds the two together.

use serde_json::Value;

use super::args::{Arguments, BadArguments};

/// The JSON type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// A string.
    Text,
    /// An integer from 0.
    Count,
    /// `true` or `false`.
    Flag,
    /// An array.
    List,
}

impl FieldType {
    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Count => value.is_u64(),
            Self::Flag => value.is_boolean(),
            Self::List => value.is_array(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Count => "an integer from 0",
            Self::Flag => "true or false",
            Self::List => "an array",
        }
    }
}

/// The fields of a built-in tool; `None` for a tool that doesn't exist.
pub fn fields(tool: &str) -> Option<&'static [(&'static str, FieldType)]> {
    use FieldType::{Count, Flag, List, Text};
    let fields: &'static [(&str, FieldType)] = match tool {
        "list_files" => &[("path", Text), ("glob", Text), ("depth", Count)],
        "read_file" => &[("path", Text), ("offset", Count), ("limit", Count)],
        "search_text" => {
            &[("pattern", Text), ("literal", Flag), ("path", Text), ("glob", Text), ("context", Count)]
        }
        "create_file" => &[("path", Text), ("content", Text)],
        "edit_file" => &[("path", Text), ("edits", List)],
        "delete_file" => &[("path", Text)],
        "run_command" => &[("argv", List), ("cwd", Text), ("timeoutMs", Count)],
        "fetch_url" => &[("url", Text), ("maxBytes", Count)],
        _ => return None,
    };
    Some(fields)
}

/// Checks that every field that is there is one of the tool's and of its type. Fields that aren't
/// there are nobody's fault here.
pub fn check(tool: &str, arguments: &Arguments) -> Result<(), BadArguments> {
    let Some(fields) = fields(tool) else { return Ok(()) };
    for (name, value) in arguments {
        let Some((_, kind)) = fields.iter().find(|(field, _)| field == name) else {
            let known: Vec<_> = fields.iter().map(|(field, _)| *field).collect();
            let known = known.join(", ");
            return Err(BadArguments::form(format!("{tool} has no field {name:?}; it has {known}")));
        };
        if !kind.fits(value) {
            return Err(BadArguments::form(format!(
                "the field {name:?} of {tool} must be {}",
                kind.name()
            )));
        }
    }
    Ok(())
}
