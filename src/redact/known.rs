//! Which variables of an environment hold secrets: by their names, and passwords inside URLs.
//! Pure: the environment comes in as a value.

/// A name that contains one of these (in any case) holds a secret.
const SAYS_SECRET: &[&str] = &["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
/// So does one that ends so.
const ENDS_SECRET: &[&str] = &["_PAT", "_DSN", "_JWT", "_WEBHOOK_URL"];
/// And so do these.
const IS_SECRET: &[&str] = &["AWS_ACCESS_KEY_ID", "DOCKER_AUTH_CONFIG"];
/// A name that ends so says where a secret is or what it is called, not what it is.
const ENDS_HARMLESS: &[&str] = &["_FILE", "_PATH", "_DIR", "_ENV", "_ID", "_NAME"];
/// What a plain path begins with. A value of base64 may begin with a slash as well.
const PATH_ROOTS: &[&str] = &[
    "./",
    "../",
    "~/",
    "/bin/",
    "/builds/",
    "/dev/",
    "/etc/",
    "/github/",
    "/home/",
    "/lib/",
    "/mnt/",
    "/opt/",
    "/private/",
    "/proc/",
    "/root/",
    "/run/",
    "/srv/",
    "/sys/",
    "/tmp/",
    "/usr/",
    "/Users/",
    "/var/",
    "/workspace/",
];

/// The values of these variables that count as secrets, each with the name of its variable, in
/// the order of the names.
///
/// By name: it contains KEY, TOKEN, SECRET, PASSWORD, PASSWD or CREDENTIAL, ends in `_PAT`,
/// `_DSN`, `_JWT` or `_WEBHOOK_URL`, or is `AWS_ACCESS_KEY_ID` or `DOCKER_AUTH_CONFIG`; not if it
/// ends in `_FILE`, `_PATH`, `_DIR`, `_ENV`, `_ID` or `_NAME`, nor if the value is a plain path,
/// `true` or `false`, or a number of fewer than eight digits. By value, whatever the name: the
/// password of a URL (`https://user:password@host`), as it stands and percent-decoded.
pub fn known_secrets(vars: &[(String, String)]) -> Vec<(String, String)> {
    let mut sorted: Vec<_> = vars.iter().collect();
    sorted.sort();
    let mut secrets = Vec::new();
    for (name, value) in sorted {
        if names_a_secret(name) && !harmless(value.trim()) {
            secrets.push((name.clone(), value.clone()));
        }
        if let Some(password) = url_password(value) {
            let decoded = percent_decoded(password);
            secrets.push((name.clone(), password.to_owned()));
            secrets.extend(decoded.filter(|plain| plain != password).map(|plain| (name.clone(), plain)));
        }
    }
    secrets
}

fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    IS_SECRET.contains(&name.as_str())
        || (!ENDS_HARMLESS.iter().any(|end| name.ends_with(end))
            && (SAYS_SECRET.iter().any(|word| name.contains(word))
                || ENDS_SECRET.iter().any(|end| name.ends_with(end))))
}

fn harmless(value: &str) -> bool {
    let number = value.len() < 8 && value.bytes().all(|byte| byte.is_ascii_digit());
    let path =
        !value.contains(char::is_whitespace) && PATH_ROOTS.iter().any(|root| value.starts_with(root));
    number || path || value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false")
}

fn url_password(value: &str) -> Option<&str> {
    let (scheme, rest) = value.trim().split_once("://")?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    if scheme.is_empty() || !scheme.bytes().all(plain) {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    let (userinfo, _) = authority.rsplit_once('@')?;
    let (_, password) = userinfo.split_once(':')?;
    Some(password)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        match rest {
            [] => return String::from_utf8(bytes).ok(),
            [b'%', high, low, after @ ..] => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                let byte = u8::try_from(digit(high)? * 16 + digit(low)?).ok()?;
                bytes.push(byte);
                rest = after;
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str, value: &str) -> Vec<String> {
        known_secrets(&[(name.to_owned(), value.to_owned())])
            .into_iter()
            .map(|(_, value)| value)
            .collect()
    }

    #[test]
    fn names_that_say_secret_are_known_and_others_not() {
        for name in [
            "OPENAI_API_KEY",
            "github_token",
            "CI_JOB_TOKEN",
            "DB_PASSWORD",
            "MYSQL_PASSWD",
            "CLIENT_SECRET",
            "GOOGLE_CREDENTIALS",
            "AZURE_DEVOPS_EXT_PAT",
            "SENTRY_DSN",
            "SLACK_WEBHOOK_URL",
            "AWS_ACCESS_KEY_ID",
        ] {
            assert_eq!(known(name, "hunter2hunter2"), ["hunter2hunter2"], "{name}");
        }
        for name in ["PATH", "SSH_KEY_PATH", "TOKEN_FILE", "SECRET_ID", "PATTERN", "HOME", "KEY_NAME"] {
            assert!(known(name, "hunter2hunter2").is_empty(), "{name}");
        }
    }

    #[test]
    fn harmless_values_are_not_known() {
        for value in ["true", "FALSE", "1234567", "/home/me/.ssh/id", "~/key", "./key"] {
            assert!(known("MY_KEY", value).is_empty(), "{value}");
        }
        for value in ["12345678", "/aB3dEfGhIjK", "/home/me/a b"] {
            assert_eq!(known("MY_KEY", value), [value]);
        }
    }

    #[test]
    fn the_password_of_a_url_is_known_whatever_the_name() {
        assert_eq!(
            known("DATABASE_URL", "postgres://me:p%40ss:w0rd@db/x"),
            ["p%40ss:w0rd", "p@ss:w0rd"]
        );
        assert_eq!(known("HTTPS_PROXY", "http://u:pa@ss@proxy:3128"), ["pa@ss"]);
        for value in ["https://host/a:b@c", "https://user@host/", "no url: a:b@c", "://a:b@c"] {
            assert!(known("X", value).is_empty(), "{value}");
        }
    }
}
