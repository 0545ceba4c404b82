//! Secrets that say what they are: a prefix that an issuer gives to its keys, and what follows it.
//! One table. The formats are the issuers' own, as they document them.

use std::ops::Range;

use super::{class::Class, look};

/// A kind of token.
#[derive(Debug)]
pub(super) struct Token {
    /// What stands in its place.
    pub(super) label: &'static str,
    /// What comes before `head`, read backwards: a class, the fewest and the most of it.
    back: Option<(Class, usize, usize)>,
    /// What it is found by, in exactly this case.
    pub(super) head: &'static str,
    /// What follows.
    rest: &'static [Part],
}

/// A piece of a token.
#[derive(Debug)]
enum Part {
    /// So many bytes of a class, as many as there are.
    Run(Class, usize, usize),
    /// These bytes.
    Is(&'static str),
}

use Part::{Is, Run};

const fn token(label: &'static str, head: &'static str, rest: &'static [Part]) -> Token {
    Token { label, back: None, head, rest }
}

const fn behind(
    label: &'static str,
    back: (Class, usize, usize),
    head: &'static str,
    rest: &'static [Part],
) -> Token {
    Token { label, back: Some(back), head, rest }
}

/// So long that none is longer; what is longer is cut, and its rest found by nothing.
const MANY: usize = 4096;

const ALNUM: Class = Class::ALNUM;
const URL: Class = Class::URL;
const HEX: Class = Class::HEX;
const CAPS: Class = Class::CAPS;

/// Every kind, the longer prefix before the shorter one that it begins with.
pub(super) const TOKENS: &[Token] = &[
    // Clouds.
    token("aws-access-key-id", "AKIA", &[Run(CAPS, 16, 16)]),
    token("aws-access-key-id", "ASIA", &[Run(CAPS, 16, 16)]),
    token("aws-access-key-id", "ABIA", &[Run(CAPS, 16, 16)]),
    token("aws-access-key-id", "ACCA", &[Run(CAPS, 16, 16)]),
    token("aws-bedrock-key", "ABSKQmVkcm9ja0FQSUtleS", &[Run(Class::BASE64, 80, MANY)]),
    token("google-api-key", "AIza", &[Run(URL, 35, 35)]),
    token("google-oauth-secret", "GOCSPX-", &[Run(URL, 28, 28)]),
    token("google-oauth-token", "ya29.", &[Run(Class::URL, 20, MANY)]),
    behind("azure-client-secret", (Class::URL, 3, 3), "8Q~", &[Run(Class::TOKEN68, 31, 34)]),
    token("digitalocean-token", "dop_v1_", &[Run(HEX, 64, 64)]),
    token("digitalocean-token", "doo_v1_", &[Run(HEX, 64, 64)]),
    token("digitalocean-token", "dor_v1_", &[Run(HEX, 64, 64)]),
    token("databricks-token", "dapi", &[Run(HEX, 32, 32)]),
    token("heroku-key", "HRKU-", &[Run(URL, 36, 80)]),
    token("netlify-token", "nfp_", &[Run(ALNUM, 36, 40)]),
    token("supabase-key", "sbp_", &[Run(HEX, 40, 40)]),
    token("supabase-key", "sb_secret_", &[Run(URL, 28, 64)]),
    token("planetscale-token", "pscale_tkn_", &[Run(Class::TOKEN68, 32, 64)]),
    token("planetscale-token", "pscale_pw_", &[Run(Class::TOKEN68, 32, 64)]),
    token("planetscale-token", "pscale_oauth_", &[Run(Class::TOKEN68, 32, 64)]),
    token("tailscale-key", "tskey-auth-", &[Run(URL, 20, 80)]),
    token("tailscale-key", "tskey-api-", &[Run(URL, 20, 80)]),
    token("flyio-token", "fm2_", &[Run(Class::BASE64, 100, MANY)]),
    token("alibaba-key-id", "LTAI", &[Run(ALNUM, 20, 20)]),
    // Where code is kept and built.
    token("github-token", "ghp_", &[Run(ALNUM, 36, 255)]),
    token("github-token", "gho_", &[Run(ALNUM, 36, 255)]),
    token("github-token", "ghu_", &[Run(ALNUM, 36, 255)]),
    token("github-token", "ghs_", &[Run(ALNUM, 36, 255)]),
    token("github-token", "ghr_", &[Run(ALNUM, 36, 255)]),
    token("github-token", "github_pat_", &[Run(Class::WORD, 60, 255)]),
    token("gitlab-token", "glpat-", &[Run(Class::TOKEN68, 20, 300)]),
    token("gitlab-token", "gldt-", &[Run(URL, 20, 300)]),
    token("gitlab-token", "glrt-", &[Run(Class::TOKEN68, 20, 300)]),
    token("gitlab-token", "glcbt-", &[Run(URL, 20, 300)]),
    token("gitlab-token", "glptt-", &[Run(URL, 20, 300)]),
    token("gitlab-token", "glft-", &[Run(URL, 20, 300)]),
    token("gitlab-token", "glimt-", &[Run(URL, 20, 300)]),
    token("gitlab-token", "glagent-", &[Run(URL, 20, 300)]),
    token("gitlab-token", "glsoat-", &[Run(URL, 20, 300)]),
    token("gitlab-token", "gloas-", &[Run(URL, 20, 300)]),
    token("atlassian-token", "ATATT3", &[Run(Class::BASE64.or_url(), 60, MANY)]),
    token("buildkite-token", "bkua_", &[Run(HEX, 40, 40)]),
    token("circleci-token", "CCIPAT_", &[Run(Class::WORD, 40, 80)]),
    behind("terraform-token", (ALNUM, 14, 14), ".atlasv1.", &[Run(URL, 60, 80)]),
    token("pulumi-token", "pul-", &[Run(HEX, 40, 40)]),
    token("vault-token", "hvs.", &[Run(URL, 24, 300)]),
    token("vault-token", "hvb.", &[Run(URL, 100, 400)]),
    token("doppler-token", "dp.pt.", &[Run(ALNUM, 40, 44)]),
    token("doppler-token", "dp.st.", &[Run(Class::TOKEN68, 40, 80)]),
    token("sourcegraph-token", "sgp_", &[Run(Class::WORD, 40, 80)]),
    token("artifactory-key", "AKCp", &[Run(ALNUM, 64, 80)]),
    // Registries of packages and images.
    token("npm-token", "npm_", &[Run(ALNUM, 36, 36)]),
    token("pypi-token", "pypi-AgE", &[Run(URL, 50, MANY)]),
    token("rubygems-key", "rubygems_", &[Run(HEX, 48, 48)]),
    token("crates-io-token", "cio", &[Run(ALNUM, 32, 32)]),
    token("clojars-token", "CLOJARS_", &[Run(ALNUM, 60, 60)]),
    token("docker-token", "dckr_pat_", &[Run(URL, 24, 40)]),
    token("docker-token", "dckr_oat_", &[Run(URL, 24, 40)]),
    // Models.
    token("anthropic-key", "sk-ant-", &[Run(URL, 32, 300)]),
    token("openrouter-key", "sk-or-v1-", &[Run(HEX, 64, 64)]),
    token("openai-key", "sk-proj-", &[Run(URL, 40, 300)]),
    token("openai-key", "sk-svcacct-", &[Run(URL, 40, 300)]),
    token("openai-key", "sk-admin-", &[Run(URL, 40, 300)]),
    token("model-key", "sk-", &[Run(ALNUM, 32, 128)]),
    token("huggingface-token", "hf_", &[Run(ALNUM, 30, 40)]),
    token("groq-key", "gsk_", &[Run(ALNUM, 48, 60)]),
    token("xai-key", "xai-", &[Run(ALNUM, 70, 100)]),
    token("replicate-token", "r8_", &[Run(ALNUM, 37, 40)]),
    token("perplexity-key", "pplx-", &[Run(ALNUM, 40, 60)]),
    // Money.
    token("stripe-key", "sk_live_", &[Run(ALNUM, 16, 255)]),
    token("stripe-key", "sk_test_", &[Run(ALNUM, 16, 255)]),
    token("stripe-key", "rk_live_", &[Run(ALNUM, 16, 255)]),
    token("stripe-key", "rk_test_", &[Run(ALNUM, 16, 255)]),
    token("webhook-secret", "whsec_", &[Run(Class::BASE64, 24, 100)]),
    token("square-token", "sq0atp-", &[Run(URL, 22, 22)]),
    token("square-token", "sq0csp-", &[Run(URL, 43, 43)]),
    token("shopify-token", "shpat_", &[Run(HEX, 32, 32)]),
    token("shopify-token", "shpss_", &[Run(HEX, 32, 32)]),
    token("shopify-token", "shpca_", &[Run(HEX, 32, 32)]),
    token("shopify-token", "shppa_", &[Run(HEX, 32, 32)]),
    // Messages and mail.
    token("slack-token", "xoxb-", &[Run(URL, 20, 255)]),
    token("slack-token", "xoxp-", &[Run(URL, 20, 255)]),
    token("slack-token", "xoxa-", &[Run(URL, 20, 255)]),
    token("slack-token", "xoxr-", &[Run(URL, 20, 255)]),
    token("slack-token", "xoxs-", &[Run(URL, 20, 255)]),
    token("slack-token", "xoxe-", &[Run(URL, 20, 255)]),
    token("slack-token", "xapp-", &[Run(URL, 40, 255)]),
    token(
        "slack-webhook",
        "hooks.slack.com/services/",
        &[Run(CAPS, 8, 14), Is("/"), Run(CAPS, 8, 14), Is("/"), Run(ALNUM, 18, 32)],
    ),
    token(
        "discord-webhook",
        "discord.com/api/webhooks/",
        &[Run(Class::DIGIT, 17, 20), Is("/"), Run(URL, 60, 80)],
    ),
    behind("telegram-token", (Class::DIGIT, 8, 11), ":AA", &[Run(URL, 32, 36)]),
    token("twilio-key", "SK", &[Run(HEX, 32, 32)]),
    token("sendgrid-key", "SG.", &[Run(URL, 20, 24), Is("."), Run(URL, 39, 50)]),
    token("mailgun-key", "key-", &[Run(HEX, 32, 32)]),
    behind("mailchimp-key", (HEX, 32, 32), "-us", &[Run(Class::DIGIT, 1, 2)]),
    token("brevo-key", "xkeysib-", &[Run(HEX, 64, 64), Is("-"), Run(ALNUM, 16, 16)]),
    // Work and watch.
    token("linear-key", "lin_api_", &[Run(ALNUM, 32, 64)]),
    token("linear-key", "lin_oauth_", &[Run(ALNUM, 32, 64)]),
    token("notion-token", "ntn_", &[Run(ALNUM, 40, 60)]),
    token("airtable-token", "pat", &[Run(ALNUM, 14, 14), Is("."), Run(HEX, 64, 64)]),
    token("figma-token", "figd_", &[Run(URL, 36, 50)]),
    token("postman-key", "PMAK-", &[Run(HEX, 24, 24), Is("-"), Run(HEX, 34, 34)]),
    token("contentful-token", "CFPAT-", &[Run(URL, 40, 50)]),
    token("grafana-token", "glc_", &[Run(Class::BASE64, 32, 400)]),
    token("grafana-token", "glsa_", &[Run(ALNUM, 32, 32), Is("_"), Run(HEX, 8, 8)]),
    token("sentry-token", "sntrys_", &[Run(Class::BASE64.or_url(), 60, MANY)]),
    token("sentry-token", "sntryu_", &[Run(HEX, 64, 64)]),
    token("newrelic-key", "NRAK-", &[Run(CAPS, 27, 27)]),
    token("dynatrace-token", "dt0c01.", &[Run(CAPS, 24, 24), Is("."), Run(CAPS, 64, 64)]),
    // Keys and tokens of no one issuer.
    token("age-key", "AGE-SECRET-KEY-1", &[Run(CAPS, 58, 58)]),
    token("onepassword-token", "ops_eyJ", &[Run(URL, 200, MANY)]),
    token("jwt", "eyJ", &[Run(URL, 10, MANY), Is("."), Run(URL, 10, MANY), Is("."), Run(URL, 10, MANY)]),
];

impl Token {
    /// Whether this may be the first byte behind the head.
    pub(super) const fn follows(&self, byte: u8) -> bool {
        match self.rest {
            [Run(class, ..), ..] => class.has(byte),
            [Is(_), ..] | [] => true,
        }
    }

    /// The token whose head is here, if it is one: whole, with nothing of its kind on either side, and
    /// not a picture of one (`ghp_xxxx…`).
    pub(super) fn at(&self, text: &[u8], at: usize) -> Option<Range<usize>> {
        let head_end = at + self.head.len();
        if text.get(at..head_end)? != self.head.as_bytes() {
            return None;
        }
        let mut start = at;
        if let Some((class, fewest, most)) = self.back {
            let length = class.behind(text, at, most + 1);
            if !(fewest..=most).contains(&length) {
                return None;
            }
            start = at - length;
        } else if self.joined(text, at) {
            return None;
        }
        let mut end = head_end;
        let mut last = None;
        for part in self.rest {
            match part {
                Run(class, fewest, most) => {
                    let length = class.ahead(text, end, *most);
                    if length < *fewest {
                        return None;
                    }
                    end += length;
                    last = Some(*class);
                }
                Is(bytes) => {
                    if !text.get(end..)?.starts_with(bytes.as_bytes()) {
                        return None;
                    }
                    end += bytes.len();
                    last = None;
                }
            }
        }
        let goes_on = text.get(end).is_some_and(|byte| last.is_some_and(|_| Class::WORD.has(*byte)));
        let drawn = look::distinct(text.get(head_end..end)?) < 6 && self.back.is_none();
        (!goes_on && !drawn).then_some(start..end)
    }

    /// Whether the head is the end of a longer word. Where the token itself may hold a hyphen, one in
    /// front joins as well: a line of `-eyJ-eyJ-eyJ` is then one word, not a million of them.
    fn joined(&self, text: &[u8], at: usize) -> bool {
        let class = match self.rest.first() {
            Some(Run(class, ..)) if class.has(b'-') => Class::URL,
            _ => Class::WORD,
        };
        class.behind(text, at, 1) == 1
    }
}

#[cfg(test)]
impl Token {
    /// Whether it is found from its middle.
    pub(super) fn is_read_backwards(&self) -> bool {
        self.back.is_some()
    }

    /// A token of this kind, of the fewest characters, taken from these.
    pub(super) fn example(&self, drawn: &str) -> String {
        let of = |class: Class, length: usize| {
            let fits = drawn.bytes().filter(|byte| class.has(*byte)).map(char::from);
            fits.collect::<Vec<_>>().into_iter().cycle().take(length).collect::<String>()
        };
        let mut text = self.back.map_or_else(String::new, |(class, fewest, _)| of(class, fewest));
        text.push_str(self.head);
        for part in self.rest {
            match part {
                Run(class, fewest, _) => text.push_str(&of(*class, *fewest)),
                Is(bytes) => text.push_str(bytes),
            }
        }
        text
    }
}
