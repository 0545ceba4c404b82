//! Who answers: from the caller's options to a provider, or to the reason why there is none.
//!
//! Nothing is chosen silently: no provider named is a usage error that lists what there is, and a
//! cassette answers only where the caller named one.

use std::{path::PathBuf, time::Duration};

use super::{Fail, input};
use crate::{
    contract::{CauseCode, Failure, turn::ProviderInfo},
    host::Host,
    provider::{
        Provider, SettingsError,
        cassette::Cassette,
        openai::{OpenAi, Settings, is_free_field},
        preset::{PRESETS, Preset},
        scripted::Scripted,
    },
    redact::Secret,
};

/// A cassette has at most this many bytes.
const MOST_BYTES: u64 = 256 << 20;
/// Bytes of a variable's name.
const LONGEST_VARIABLE: usize = 128;
/// What a cassette's "model" can hold: replies are fixed, so the context must not be cut.
const SCRIPTED_CONTEXT: u64 = 1_000_000;

/// What the caller says about who answers.
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// The preset's name.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The API's base URL.
    pub base_url: Option<String>,
    /// The variable that holds the key.
    pub api_key_env: Option<String>,
    /// The tokens that the model can hold.
    pub context_limit: Option<u64>,
    /// Replies from a file.
    pub cassette: Option<PathBuf>,
    /// More headers, as NAME=env:VARIABLE.
    pub headers: Vec<String>,
    /// More fields of the request, as NAME=VALUE.
    pub params: Vec<String>,
    /// How long the provider may stay silent.
    pub stall_timeout: Duration,
}

impl ProviderOptions {
    pub(super) fn is_named(&self) -> bool {
        self.provider.is_some() || self.cassette.is_some()
    }
}

/// The variables that hold a provider's key, which no command is given.
pub(super) fn key_variables(options: &ProviderOptions) -> Vec<String> {
    let known = PRESETS.iter().filter_map(|preset| preset.key_variable).map(str::to_owned);
    known.chain(options.api_key_env.clone()).chain(header_variables(&options.headers)).collect()
}

/// The variables that the caller's headers name.
pub fn header_variables(headers: &[String]) -> Vec<String> {
    let variable = |text: &String| Some(text.split_once("=env:")?.1.to_owned());
    headers.iter().filter_map(variable).collect()
}

fn headers(host: &Host, stated: &[String]) -> Result<Vec<(String, Secret<String>)>, Fail> {
    let refused = |message: String| {
        let failure = Failure::new(CauseCode::BadArgument, message);
        Fail::usage(
            failure.action("write --header NAME=env:VARIABLE, and put the value into the variable"),
        )
    };
    let one = |text: &String| {
        // What has another form may hold the value itself, and isn't shown.
        let (name, variable) = text
            .split_once("=env:")
            .ok_or_else(|| refused("--header has another form than NAME=env:VARIABLE".to_owned()))?;
        is_variable(variable, "--header")?;
        let value = host.text_var(variable).ok_or_else(|| {
            refused(format!("the header {name} needs the variable {variable}, which is unset or empty"))
        })?;
        Ok((name.to_owned(), Secret::new(value)))
    };
    stated.iter().map(one).collect()
}

/// Fields of the request: a value that is JSON is that, any other is a text.
fn params(stated: &[String]) -> Result<serde_json::Map<String, serde_json::Value>, Fail> {
    let mut params = serde_json::Map::new();
    for text in stated {
        let field = text.split_once('=').filter(|(name, _)| is_free_field(name));
        let fresh = field.is_some_and(|(name, value)| {
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            params.insert(name.to_owned(), value).is_none()
        });
        if !fresh {
            let name = text.split('=').next().unwrap_or_default();
            let message = format!(
                "--param {name}: it has the form NAME=VALUE, once for each name, and \
                not for a field that thcode fills itself"
            );
            let failure = Failure::new(CauseCode::BadArgument, message);
            return Err(Fail::usage(failure.action("for instance --param temperature=0")));
        }
    }
    Ok(params)
}

/// Who answers, and what documents say of it.
pub(super) struct Chosen {
    /// The provider; or why it can't be asked, which only a run tells.
    pub(super) provider: Result<Provider, Failure>,
    pub(super) info: ProviderInfo,
    pub(super) context_limit: u64,
}

pub(super) fn choose(host: &Host, options: &ProviderOptions) -> Result<Chosen, Fail> {
    if let Some(variable) = &options.api_key_env {
        is_variable(variable, "--api-key-env")?;
    }
    match (&options.cassette, &options.provider) {
        (Some(_), Some(name)) if name != "scripted" => {
            let message = format!("--cassette and --provider {name} can't both answer");
            Err(Fail::usage(
                Failure::new(CauseCode::BadArgument, message).action("leave one of them out"),
            ))
        }
        (Some(path), _) => scripted(path, options),
        (None, Some(name)) => named(host, name, options),
        (None, None) => Err(Fail::usage(missing(host))),
    }
}

fn missing(host: &Host) -> Failure {
    let presets = PRESETS.iter().map(|preset| match preset.key_variable {
        None => format!("{} (no key needed)", preset.name),
        Some(variable) if host.var(variable).is_some() => format!("{} ({variable} is set)", preset.name),
        Some(variable) => format!("{} ({variable} is not set)", preset.name),
    });
    let presets: Vec<String> = presets.collect();
    Failure::new(CauseCode::ProviderMissing, "no provider was named")
        .action(format!("name one with --provider: {}", presets.join(", ")))
        .action("replay replies from a file with --cassette FILE")
}

fn scripted(path: &std::path::Path, options: &ProviderOptions) -> Result<Chosen, Fail> {
    let text = input::read_text(path, MOST_BYTES)?;
    let cassette = Cassette::parse(&text).map_err(|error| {
        let message = format!("the cassette {} can't be read:\n{error}", path.display());
        let failure = Failure::new(CauseCode::CassetteInvalid, message);
        Fail::usage(failure.action("`thcode schema print cassette` tells the form of its lines"))
    })?;
    Ok(Chosen {
        provider: Ok(Provider::Scripted(Scripted::new(cassette))),
        info: ProviderInfo { name: "scripted".to_owned(), model: None, base_url_host: None },
        context_limit: options.context_limit.unwrap_or(SCRIPTED_CONTEXT),
    })
}

fn named(host: &Host, name: &str, options: &ProviderOptions) -> Result<Chosen, Fail> {
    let Some(preset) = Preset::named(name) else {
        let message = format!("there is no provider {name:?}");
        let failure = Failure::new(CauseCode::ProviderUnknown, message);
        return Err(Fail::usage(failure.action(format!("name one of {}", Preset::names()))));
    };
    let needs = |what: &str, action: &str| {
        let message = format!("the provider {name} needs {what}");
        Fail::usage(Failure::new(CauseCode::ProviderSettingMissing, message).action(action))
    };
    let model = options.model.as_deref().or(preset.model);
    let model = model.ok_or_else(|| needs("a model", "name it with --model"))?.to_owned();
    let base_url = options.base_url.as_deref().or(preset.base_url);
    let base_url =
        base_url.ok_or_else(|| needs("a base URL", "name it with --base-url https://host/v1"))?;
    let context_limit =
        options.context_limit.or_else(|| preset.context_limit(&model)).ok_or_else(|| {
            needs(
                &format!("the context limit of the model {model}, which isn't known here"),
                "state it with --context-limit TOKENS",
            )
        })?;
    let (key, no_key) = match options.api_key_env.as_deref().or(preset.key_variable) {
        None => (None, None),
        Some(variable) => match host.text_var(variable) {
            Some(key) => (Some(Secret::new(key)), None),
            None => (None, Some(key_missing(name, variable, preset.key_variable == Some(variable)))),
        },
    };
    let settings = Settings {
        base_url: base_url.to_owned(),
        model: model.clone(),
        key,
        output_limit: preset.output_limit,
        headers: headers(host, &options.headers)?,
        params: params(&options.params)?,
        stall_timeout: options.stall_timeout,
    };
    let openai = OpenAi::new(host.clone(), settings).map_err(|error| {
        let cause = match error {
            SettingsError::BaseUrl | SettingsError::NotHttps | SettingsError::Userinfo => {
                CauseCode::BaseUrlRefused
            }
            SettingsError::Key => CauseCode::KeyUnusable,
            SettingsError::Header(_) => CauseCode::BadArgument,
        };
        Fail::usage(Failure::new(cause, error.to_string()))
    })?;
    let info = ProviderInfo {
        name: name.to_owned(),
        model: Some(model),
        base_url_host: Some(openai.authority()),
    };
    let provider = match no_key {
        Some(failure) => Err(failure),
        None => Ok(Provider::OpenAi(Box::new(openai))),
    };
    Ok(Chosen { provider, info, context_limit })
}

/// What isn't a variable's name may be the key itself, and isn't shown.
fn is_variable(name: &str, flag: &str) -> Result<(), Fail> {
    let mut bytes = name.bytes();
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let fits = bytes.next().is_some_and(letter)
        && bytes.all(|byte| letter(byte) || byte.is_ascii_digit())
        && name.len() <= LONGEST_VARIABLE;
    if fits {
        return Ok(());
    }
    let message = format!("{flag} holds no variable's name (it is not shown, since it may be a key)");
    let failure = Failure::new(CauseCode::BadArgument, message);
    Err(Fail::usage(failure.action(
        "put the key into a variable and give the variable's name: letters, digits and _, 128 at most",
    )))
}

fn key_missing(provider: &str, variable: &str, own: bool) -> Failure {
    // A key of letters and digits passes for a name; those of variables are in capitals.
    let capitals = |name: &str| !name.bytes().any(|byte| byte.is_ascii_lowercase());
    let variable =
        if own || capitals(variable) { variable } else { "that --api-key-env names (not shown)" };
    let message =
        format!("the provider {provider} needs a key, and the variable {variable} is unset or empty");
    Failure::new(CauseCode::KeyMissing, message)
        .action(format!(
            "set {variable} in the job's environment (a secret of the pipeline), never as an argument"
        ))
        .action("name another variable with --api-key-env")
}
