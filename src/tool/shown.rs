//! Bytes as the text that is shown of them: what isn't UTF-8 as `\xNN`, so that nothing is made up
//! and nothing is lost.

/// All of them.
pub(super) fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02X}"));
        }
    }
    text
}

/// The beginning of something longer: without the character that it was cut in.
pub(super) fn beginning(bytes: &[u8]) -> &[u8] {
    let cut = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    let is_begun = std::str::from_utf8(cut).is_err_and(|error| error.error_len().is_none());
    let whole = if is_begun { bytes.len().saturating_sub(cut.len()) } else { bytes.len() };
    bytes.get(..whole).unwrap_or(bytes)
}

/// The end of something longer: without what is left of the character that it was cut in.
pub(super) fn ending(bytes: &[u8]) -> &[u8] {
    let left = bytes.iter().take(3).take_while(|byte| matches!(byte, 0x80..=0xBF)).count();
    bytes.get(left..).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_utf_8_is_shown_by_its_bytes() {
        assert_eq!(shown(b"caf\xe9 \xff\xfe ok"), "caf\\xE9 \\xFF\\xFE ok");
        assert_eq!(shown("é\u{fffd}\0".as_bytes()), "é\u{fffd}\0");
    }

    #[test]
    fn a_cut_leaves_no_part_of_a_character() {
        let text = "aé€😀z".as_bytes();
        for at in 0..=text.len() {
            let (head, tail) = text.split_at(at);
            assert!(!shown(beginning(head)).contains('\\'), "{at}");
            assert!(!shown(ending(tail)).contains('\\'), "{at}");
        }
        assert_eq!(shown(beginning(b"ab\xff")), "ab\\xFF", "that was no character");
    }
}
