//! The providers that are known by name: one table. A name that isn't in it is nobody, never a
//! silent choice.

/// What is known of a provider beforehand. What it leaves open has to be stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// The name that chooses it.
    pub name: &'static str,
    /// The base URL of its API.
    pub base_url: Option<&'static str>,
    /// The model that answers unless another is named.
    pub model: Option<&'static str>,
    /// The variable that holds the key; `None` where none is needed.
    pub key_variable: Option<&'static str>,
    /// How it takes the limit of a reply.
    pub output_limit: OutputLimit,
    /// What `model` takes, request and reply together. Tokens.
    model_context_limit: Option<u64>,
}

/// The field of a request that limits the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputLimit {
    /// `max_tokens`: what every compatible server knows.
    MaxTokens,
    /// `max_completion_tokens`: what OpenAI's newer models insist on.
    MaxCompletionTokens,
}

/// Every preset.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "typhoon",
        base_url: Some("https://api.opentyphoon.ai/v1"),
        model: Some("typhoon-v2.5-instruct"),
        key_variable: Some("TYPHOON_API_KEY"),
        output_limit: OutputLimit::MaxTokens,
        // Lower than the model could take: the vendor names no figure for the served model.
        model_context_limit: Some(32_768),
    },
    Preset {
        name: "openai",
        base_url: Some("https://api.openai.com/v1"),
        model: Some("gpt-4.1"),
        key_variable: Some("OPENAI_API_KEY"),
        output_limit: OutputLimit::MaxCompletionTokens,
        model_context_limit: Some(1_047_576),
    },
    Preset {
        name: "ollama",
        base_url: Some("http://127.0.0.1:11434/v1"),
        model: None,
        key_variable: None,
        output_limit: OutputLimit::MaxTokens,
        model_context_limit: None,
    },
    Preset {
        name: "openrouter",
        base_url: Some("https://openrouter.ai/api/v1"),
        model: None,
        key_variable: Some("OPENROUTER_API_KEY"),
        output_limit: OutputLimit::MaxTokens,
        model_context_limit: None,
    },
    Preset {
        name: "custom",
        base_url: None,
        model: None,
        key_variable: None,
        output_limit: OutputLimit::MaxTokens,
        model_context_limit: None,
    },
];

impl Preset {
    /// The preset of exactly this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// Every name, for a person who wrote another.
    pub fn names() -> String {
        let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        names.join(", ")
    }

    /// What the model takes, where that is known: of the preset's own model alone. Tokens.
    pub fn context_limit(&self, model: &str) -> Option<u64> {
        self.model_context_limit.filter(|_| self.model == Some(model))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_by_its_exact_spelling_alone() {
        for preset in PRESETS {
            assert_eq!(Preset::named(preset.name), Some(preset));
        }
        for name in ["OpenAI", "openai ", "gpt", ""] {
            assert_eq!(Preset::named(name), None, "{name}");
        }
        assert_eq!(Preset::names(), "typhoon, openai, ollama, openrouter, custom");
    }

    #[test]
    fn a_limit_is_known_of_the_model_that_it_belongs_to() {
        let typhoon = Preset::named("typhoon").unwrap();
        assert_eq!(typhoon.context_limit("typhoon-v2.5-instruct"), Some(32_768));
        assert_eq!(typhoon.context_limit("another"), None);
        assert_eq!(Preset::named("ollama").unwrap().context_limit(""), None);
        for preset in PRESETS {
            assert_eq!(preset.model_context_limit.is_some(), preset.model.is_some(), "{}", preset.name);
        }
    }
}
