//! A command that is written as one text: words and quotes alone. What a shell would expand, chain
//! or redirect isn't read here, so that nobody takes it for a word.

/// The words of a text that is nothing but words.
pub fn words(text: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut letters = text.chars().peekable();
    let mut word: Option<String> = None;
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => found.extend(word.take()),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        None => return Err(format!("the quote {letter} isn't closed")),
                        Some(end) if end == letter => break,
                        Some(inner @ ('$' | '`' | '\\')) if letter == '"' => {
                            return Err(format!("`{inner}` in double quotes is for a shell"));
                        }
                        Some(inner) if forbidden(inner) => return Err(not_shown(inner)),
                        Some(inner) => word.push(inner),
                    }
                }
            }
            // `find` and `xargs` take it for data, and so does a shell.
            '{' if letters.peek() == Some(&'}') => {
                letters.next();
                word.get_or_insert_default().push_str("{}");
            }
            '|' | '&' | ';' | '<' | '>' | '(' | ')' | '$' | '`' | '\\' | '*' | '?' | '[' | ']' | '{'
            | '}' => return Err(format!("`{letter}` is for a shell, and none reads this")),
            '~' | '#' if word.is_none() => {
                return Err(format!("`{letter}` is for a shell, and none reads this"));
            }
            letter if forbidden(letter) => return Err(not_shown(letter)),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    found.extend(word);
    match found.first().map(String::as_str) {
        None | Some("") => Err("there is no program".to_owned()),
        Some("!") => Err("`!` is for a shell, and none reads this".to_owned()),
        Some(first) if assigns(first) => {
            Err(format!("`{first}` sets a variable, which only a shell does"))
        }
        Some(_) => Ok(found),
    }
}

/// Control characters and those that turn the direction of writing or can't be seen.
fn forbidden(letter: char) -> bool {
    letter.is_control() || crate::floor::invisible(letter)
}

fn not_shown(letter: char) -> String {
    format!("the character U+{:04X} can't be seen", u32::from(letter))
}

fn assigns(word: &str) -> bool {
    let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    word.split_once('=').is_some_and(|(left, _)| {
        !left.is_empty() && left.chars().all(name) && !left.starts_with(|c: char| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_quotes() {
        for (text, expected) in [
            ("  git   push origin main", &["git", "push", "origin", "main"][..]),
            ("echo 'rm -rf /' \"a > b\"", &["echo", "rm -rf /", "a > b"]),
            ("r''m x", &["rm", "x"]),
            ("x a'b'\"c\"d ''", &["x", "abcd", ""]),
            ("find . -exec y {} +", &["find", ".", "-exec", "y", "{}", "+"]),
            ("a b#c d~e !", &["a", "b#c", "d~e", "!"]),
            ("./x --a=b", &["./x", "--a=b"]),
        ] {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_a_shell_would_read_is_no_word() {
        for text in [
            "",
            "  ",
            "''",
            "a | b",
            "a && b",
            "a; b",
            "a > b",
            "a < b",
            "a $x",
            "a `b`",
            "a $(b)",
            "a \\b",
            "a *",
            "a ?",
            "a [b]",
            "{a,b}",
            "~/x",
            "# x",
            "! a",
            "A=1 b",
            "a \"$x\"",
            "a 'b",
            "a\nb",
            "a\rb",
            "a 'b\u{0}'",
            "echo \u{202e} x",
        ] {
            assert!(words(text).is_err(), "{text:?}");
        }
    }
}
