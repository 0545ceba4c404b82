//! Commands that a CI system reads out of a job's log: `::error::`, `##[group]`, `##vso[…]`,
//! `##teamcity[…]`.
//!
//! A runner reads them wherever they stand, so the text of a model or a tool that reaches the log
//! must not hold one. The double number sign counts anywhere in a line, the double colon where a
//! line begins.

/// How a character is written otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// For a person: `\u{23}`.
    Text,
    /// Within a string of JSON, where it means the same: `\u0023`.
    Json,
}

/// The text with one character of each such command spelled out.
pub fn disarm(text: &str, spelling: Spelling) -> String {
    let mut out = String::with_capacity(text.len());
    let mut line_begins = true;
    for (at, char) in text.char_indices() {
        let rest = text.get(at..).unwrap_or_default();
        let armed = match char {
            ':' => line_begins && rest.starts_with("::"),
            '#' => out.ends_with('#') && opens_a_command(rest.get(1..).unwrap_or_default()),
            _ => false,
        };
        match (armed, spelling) {
            (false, _) => out.push(char),
            (true, Spelling::Text) => out.extend(char.escape_unicode()),
            (true, Spelling::Json) => out.push_str(&format!("\\u{:04x}", u32::from(char))),
        }
        line_begins = matches!(char, '\n' | '\r') || line_begins && char.is_whitespace();
    }
    out
}

/// `[` or `name[`: what follows `##` in a command.
fn opens_a_command(rest: &str) -> bool {
    rest.trim_start_matches(|char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.'))
        .starts_with('[')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_spelled_out_and_all_else_stays() {
        for (text, shown) in [
            ("::set-env name=X::1", "\\u{3a}:set-env name=X::1"),
            ("a\n \t::error::b", "a\n \t\\u{3a}:error::b"),
            ("a\r::error::b", "a\r\\u{3a}:error::b"),
            ("##vso[task.setvariable variable=a]b", "#\\u{23}vso[task.setvariable variable=a]b"),
            ("see ##[error]", "see #\\u{23}[error]"),
            ("###[error]", "##\\u{23}[error]"),
            ("##teamcity[x ##vso[y", "#\\u{23}teamcity[x #\\u{23}vso[y"),
            ("std::fs and a::b", "std::fs and a::b"),
            ("## Heading [link]\n### Next", "## Heading [link]\n### Next"),
            ("#[derive(Debug)]", "#[derive(Debug)]"),
        ] {
            assert_eq!(disarm(text, Spelling::Text), shown, "{text:?}");
        }
    }

    #[test]
    fn in_json_it_means_the_same() {
        let value = serde_json::json!({"text": "::a\n##vso[b]##[c] \\##[d]"});
        for text in
            [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()]
        {
            let shown = disarm(&text, Spelling::Json);
            assert!(!shown.contains("##["), "{shown}");
            assert!(!shown.contains("##vso["), "{shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }
}
