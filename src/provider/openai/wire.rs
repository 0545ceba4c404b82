//! The request as it goes out: its JSON, built once and in one order, so that equal requests are
//! equal bytes.

use serde::Serialize;
use serde_json::Value;

use super::super::{
    message::{Call, Message, ProviderError, ProviderErrorKind, Request},
    preset::OutputLimit,
};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(flatten)]
    params: &'a serde_json::Map<String, Value>,
}

/// Fields of the body that are this program's to fill.
pub(super) const OWN_FIELDS: &[&str] = &[
    "model",
    "messages",
    "tools",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "stream_options",
    "n",
];

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: &'a str,
    },
    Assistant {
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    arguments: String,
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    function: WireSpec<'a>,
}

#[derive(Serialize)]
struct WireSpec<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

/// The body of the request.
pub(super) fn body(
    model: &str,
    output_limit: OutputLimit,
    params: &serde_json::Map<String, Value>,
    request: &Request,
) -> Result<Vec<u8>, ProviderError> {
    let limit = Some(request.max_output_tokens);
    let (max_tokens, max_completion_tokens) = match output_limit {
        OutputLimit::MaxTokens => (limit, None),
        OutputLimit::MaxCompletionTokens => (None, limit),
    };
    let system = WireMessage::System { content: &request.system };
    let body = Body {
        model,
        messages: std::iter::once(system).chain(request.messages.iter().map(message)).collect(),
        tools: request
            .tools
            .iter()
            .map(|tool| WireTool {
                r#type: "function",
                function: WireSpec {
                    name: &tool.name,
                    description: &tool.description,
                    parameters: &tool.input_schema,
                },
            })
            .collect(),
        max_tokens,
        max_completion_tokens,
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        params,
    };
    serde_json::to_vec(&body).map_err(|_| {
        ProviderError::new(ProviderErrorKind::Client, "the request can't be written as JSON")
    })
}

fn message(message: &Message) -> WireMessage<'_> {
    match message {
        Message::User { content } => WireMessage::User { content },
        Message::Assistant { content, calls } => WireMessage::Assistant {
            // Some servers refuse an empty text, none refuses null beside calls.
            content: (!content.is_empty() || calls.is_empty()).then_some(content),
            tool_calls: calls.iter().map(call).collect(),
        },
        Message::Tool { call_id, content } => WireMessage::Tool { tool_call_id: call_id, content },
    }
}

fn call(call: &Call) -> WireCall<'_> {
    WireCall {
        id: &call.id,
        r#type: "function",
        function: WireFunction { name: &call.name, arguments: arguments(&call.arguments) },
    }
}

/// Arguments as the model wrote them. Servers parse what they are given back and refuse the whole
/// request if it isn't an object: one malformed call would end the run. It goes back as the one
/// field of an object instead, and the model still sees what it wrote.
fn arguments(written: &str) -> String {
    match serde_json::from_str::<Value>(written) {
        Ok(Value::Object(_)) => written.to_owned(),
        _ => serde_json::json!({ "malformed_arguments": written }).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::super::message::ToolSpec, *};

    fn call(id: &str, arguments: &str) -> Call {
        Call { id: id.to_owned(), name: "read_file".to_owned(), arguments: arguments.to_owned() }
    }

    fn request() -> Request {
        Request {
            system: "be brief".to_owned(),
            messages: vec![
                Message::User { content: "do it".to_owned() },
                Message::Assistant {
                    content: String::new(),
                    calls: vec![call("a", r#"{"path": "x",  "path": "y"}"#), call("b", "{\"path\": ")],
                },
                Message::Tool { call_id: "a".to_owned(), content: "one".to_owned() },
                Message::Tool { call_id: "b".to_owned(), content: "two".to_owned() },
                Message::Assistant { content: "done".to_owned(), calls: vec![] },
            ],
            tools: vec![ToolSpec {
                name: "read_file".to_owned(),
                description: "reads".to_owned(),
                input_schema: json!({"type": "object"}),
            }],
            max_output_tokens: 99,
        }
    }

    #[test]
    fn the_body_is_these_very_bytes() {
        let bytes = body("m", OutputLimit::MaxTokens, &serde_json::Map::new(), &request()).unwrap();
        expect_test::expect![[r#"{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"do it"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"read_file","arguments":"{\"path\": \"x\",  \"path\": \"y\"}"}},{"id":"b","type":"function","function":{"name":"read_file","arguments":"{\"malformed_arguments\":\"{\\\"path\\\": \"}"}}]},{"role":"tool","tool_call_id":"a","content":"one"},{"role":"tool","tool_call_id":"b","content":"two"},{"role":"assistant","content":"done"}],"tools":[{"type":"function","function":{"name":"read_file","description":"reads","parameters":{"type":"object"}}}],"max_tokens":99,"stream":true,"stream_options":{"include_usage":true}}"#]].assert_eq(&String::from_utf8(bytes).unwrap());
    }

    #[test]
    fn the_limit_has_its_field_and_no_tools_no_list() {
        let request = Request { tools: vec![], messages: vec![], ..request() };
        let bytes =
            body("m", OutputLimit::MaxCompletionTokens, &serde_json::Map::new(), &request).unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(body["max_completion_tokens"], 99);
        assert_eq!(body.get("max_tokens"), None);
        assert_eq!(body.get("tools"), None);
    }
}
