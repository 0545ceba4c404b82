//! The difference of two images of a file as a unified diff: pure. What isn't text has none.

use std::time::Duration;

use similar::TextDiff;

/// From here on the shortest difference isn't looked for any more: a longer one is as true.
const PATIENCE: Duration = Duration::from_secs(2);
/// Unchanged lines that are shown around a change.
const CONTEXT: usize = 3;

/// What leads from one image to the other, as `patch` and `git apply` take it; `None` stands for no
/// file. Gives `None` where one of them isn't UTF-8 text.
pub fn unified(path: &str, from: Option<&[u8]>, to: Option<&[u8]>) -> Option<String> {
    let text = |image: Option<&[u8]>| match image {
        None => Some(String::new()),
        Some(bytes) if bytes.contains(&0) => None,
        Some(bytes) => String::from_utf8(bytes.to_vec()).ok(),
    };
    let (old, new) = (text(from)?, text(to)?);
    if from.is_some() == to.is_some() && old == new {
        return Some(String::new());
    }
    let name = |there: bool, side: &str| match there {
        true => format!("{side}/{path}"),
        false => "/dev/null".to_owned(),
    };
    let mut config = TextDiff::configure();
    let diff = config.timeout(PATIENCE).diff_lines(&old, &new);
    let header = (name(from.is_some(), "a"), name(to.is_some(), "b"));
    let hunks = diff.unified_diff().context_radius(CONTEXT).header(&header.0, &header.1).to_string();
    Some(hunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_a_new_file_and_a_removed_one() {
        let changed = unified("f", Some(b"a\nb\n"), Some(b"a\nc\n")).unwrap();
        assert_eq!(changed, "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
        let made = unified("f", None, Some(b"a\n")).unwrap();
        assert!(made.starts_with("--- /dev/null\n+++ b/f\n"), "{made}");
        let gone = unified("f", Some(b"a"), None).unwrap();
        assert!(gone.starts_with("--- a/f\n+++ /dev/null\n"), "{gone}");
        assert!(gone.contains("\\ No newline at end of file"), "{gone}");
        assert_eq!(unified("f", Some(b"a"), Some(b"a")).unwrap(), "");
        assert_eq!(unified("f", Some(b"a\0"), Some(b"a")), None);
        assert_eq!(unified("f", Some(b"\xff"), None), None);
    }
}
