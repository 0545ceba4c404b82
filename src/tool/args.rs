//! Strict reading of a call's arguments: what a lenient reader would resolve, this one refuses.
//!
//! A duplicate key is the classic: two readers pick two values, and one of them was judged.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The arguments of one tool call, read.
pub type Arguments = Map<String, Value>;

/// Limits that hold before anything is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentLimits {
    /// Bytes of the whole text.
    pub bytes: u64,
    /// Nesting of arrays and objects; the outermost object is 1.
    pub depth: u32,
}

/// Arguments that can't be read, so that the call was never judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BadArguments {
    /// Whether a limit was passed, rather than a rule of form.
    pub over_limit: bool,
    /// What is wrong, told to the model.
    pub message: String,
}

impl BadArguments {
    /// Something that isn't of the right form.
    pub fn form(message: impl Into<String>) -> Self {
        Self { over_limit: false, message: message.into() }
    }

    /// Something over a limit.
    pub fn limit(message: impl Into<String>) -> Self {
        Self { over_limit: true, message: message.into() }
    }
}

/// Reads the text of a call's arguments: one JSON object without duplicate keys, within the limits.
pub fn read(text: &str, limits: ArgumentLimits) -> Result<Arguments, BadArguments> {
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > limits.bytes {
        let most = limits.bytes;
        return Err(BadArguments::limit(format!("the arguments are over {most} bytes")));
    }
    if text.trim().is_empty() {
        return Err(BadArguments::form("the arguments are empty: send a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict { depth_left: limits.depth }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| {
            let message = error.to_string();
            if message.starts_with(TOO_DEEP) || message.starts_with("recursion limit") {
                BadArguments::limit(format!("the arguments are nested over {} deep", limits.depth))
            } else {
                BadArguments::form(format!("the arguments are not an acceptable JSON object: {message}"))
            }
        })?;
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(BadArguments::form("the arguments are not a JSON object")),
    }
}

const TOO_DEEP: &str = "nested too deep";

/// A JSON value without duplicate keys anywhere.
struct Strict {
    depth_left: u32,
}

impl Strict {
    fn deeper<E: de::Error>(&self) -> Result<Self, E> {
        self.depth_left
            .checked_sub(1)
            .map(|depth_left| Self { depth_left })
            .ok_or_else(|| E::custom(TOO_DEEP))
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.deeper()?)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(de::Error::custom(format!("the key {key:?} stands twice")));
            }
            let value = map.next_value_seed(self.deeper()?)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ArgumentLimits = ArgumentLimits { bytes: 1000, depth: 4 };

    #[test]
    fn reads_an_object_and_keeps_its_order() {
        let object = read(r#"{"b":[1,-2,3.5,null,true],"a":{"x":"y"}}"#, LIMITS).unwrap();
        assert_eq!(
            serde_json::to_string(&object).unwrap(),
            r#"{"b":[1,-2,3.5,null,true],"a":{"x":"y"}}"#
        );
    }

    #[test]
    fn refuses_what_a_lenient_reader_would_resolve() {
        for (text, part) in [
            (r#"{"path":"a","path":"b"}"#, "stands twice"),
            (r#"{"a":{"x":1,"\u0078":2}}"#, "stands twice"),
            (r#"{"a":[{"x":1,"x":1}]}"#, "stands twice"),
            (r#"{"path":"src/\ud800.rs"}"#, "hex escape"),
            (r#"{"path":"src/\udc00.rs"}"#, "surrogate"),
            (r#"{"path":"a"} x"#, "trailing"),
            (r#"{"path":"a""#, "EOF"),
            ("{'path':1}", "key must be a string"),
            ("{\"a\":NaN}", "expected value"),
            ("{\"a\":1e999}", "out of range"),
            ("[1]", "not a JSON object"),
            ("\"x\"", "not a JSON object"),
            ("", "empty"),
            ("  ", "empty"),
        ] {
            let bad = read(text, LIMITS).unwrap_err();
            assert!(bad.message.contains(part) && !bad.over_limit, "{text}: {bad:?}");
        }
    }

    #[test]
    fn limits_come_first() {
        let deep = |depth: usize| format!("{{\"a\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&deep(3), LIMITS).is_ok());
        let roomy = ArgumentLimits { bytes: 100_000, ..LIMITS };
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1000));
        for (text, limits) in [(deep(5), roomy), (deep(10_000), roomy), (long, LIMITS)] {
            let bad = read(&text, limits).unwrap_err();
            assert!(bad.over_limit, "{bad:?}");
        }
    }
}
