//! Who we are: keys from the places where people keep them, renewed before they end.
//!
//! The order is that of the other S3 tools: variables, a web identity, profile files, the container's service, the
//! instance's service. Rooms: [`profile`] (the two files), [`service`] (the two services), [`web_identity`], [`sso`],
//! [`process`] (a program of the user), [`ask`] and [`json`] (what several of them have in common).
//! Source: AWS SDKs and tools reference guide, "Standardized credential providers".

mod ask;
#[cfg(test)]
mod fake;
mod json;
mod process;
mod profile;
mod service;
mod sso;
mod web_identity;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use self::ask::Reach;
pub(super) use self::profile::Profile;
use self::profile::ProfileKeys;
use self::sso::SingleSignOn;
pub use self::web_identity::WebIdentity;
use super::aws;
use super::http::Proxies;
use super::limits::{KEYS_QUICK, KEYS_REST, RENEW_BEFORE};
use super::xml::Element;

/// One set of keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Names the owner; no secret.
    pub access_key: String,
    /// Signs; is never shown.
    pub secret_key: String,
    /// Goes with keys that end.
    pub session_token: Option<String>,
    /// When they end.
    pub expires: Option<SystemTime>,
}

impl Credentials {
    /// Keys without an end.
    pub fn permanent(access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        let (access_key, secret_key) = (access_key.into(), secret_key.into());
        Self { access_key, secret_key, session_token: None, expires: None }
    }

    fn is_fresh(&self, now: SystemTime) -> bool {
        self.expires.is_none_or(|end| now + RENEW_BEFORE < end)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({}, ..)", self.access_key)
    }
}

/// Where keys come from.
#[derive(Clone, Debug)]
pub enum CredentialSource {
    /// Requests are not signed.
    Anonymous,
    /// These.
    Keys(Credentials),
    /// The first place of the usual ones that has some.
    Found(Box<Environment>),
}

/// The variables that say where keys are, read once at the start.
#[derive(Clone, Default)]
pub struct Environment {
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`.
    pub keys: Option<Credentials>,
    /// `AWS_PROFILE`; without it `default`. A profile that is named is used before `keys`.
    pub profile: Option<String>,
    /// `AWS_SHARED_CREDENTIALS_FILE`, else `~/.aws/credentials`.
    pub credentials_file: Option<PathBuf>,
    /// `AWS_CONFIG_FILE`, else `~/.aws/config`.
    pub config_file: Option<PathBuf>,
    /// `AWS_WEB_IDENTITY_TOKEN_FILE`, `AWS_ROLE_ARN`, `AWS_ROLE_SESSION_NAME`. Not used where a profile is named.
    pub web_identity: Option<WebIdentity>,
    /// `AWS_ENDPOINT_URL_STS`, else that of the region, else that of AWS.
    pub token_service: Option<String>,
    /// `AWS_REGION` or `AWS_DEFAULT_REGION`, else what the profile says.
    pub region: Option<String>,
    /// What a program of the user is started with: on other hosts it would not have the variables of the caller.
    pub handed: Vec<(String, String)>,
    /// `~/.aws/sso/cache`: the logins of `aws sso login`.
    pub sso_cache: Option<PathBuf>,
    /// `AWS_ENDPOINT_URL_SSO`, else that of the login's region.
    pub sso_portal: Option<String>,
    /// `AWS_CA_BUNDLE`: trusted instead of the system's certificates.
    pub ca_file: Option<PathBuf>,
    /// For what is asked with TLS.
    pub proxies: Proxies,
    /// `AWS_CONTAINER_CREDENTIALS_FULL_URI`, or the relative one at the usual address.
    pub container: Option<String>,
    /// `AWS_CONTAINER_AUTHORIZATION_TOKEN`, or what stands in `.._TOKEN_FILE`.
    pub container_token: Option<ContainerToken>,
    /// `AWS_EC2_METADATA_SERVICE_ENDPOINT`; `None` with `AWS_EC2_METADATA_DISABLED=true`.
    pub instance: Option<String>,
}

/// How we prove to a container's service who we are.
#[derive(Clone)]
pub enum ContainerToken {
    /// As it is.
    Text(String),
    /// In a file that is read each time, since it is renewed.
    File(PathBuf),
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("keys", &self.keys)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

/// Of roles that we take without being told another name, in the logs of the service.
const SESSION_NAME: &str = "hayase";

/// Variables that programs which print keys read.
const HANDED: [&str; 13] = [
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_CA_BUNDLE",
    "HOME",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
];

const CONTAINER_HOST: &str = "http://169.254.170.2";
const INSTANCE_HOST: &str = "http://169.254.169.254";

impl Environment {
    /// Asks `variable` for each name above; empty values count as not set.
    pub fn read(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let said = |name: &str| variable(name).filter(|value| !value.is_empty());
        let home = said("HOME").map(|home| PathBuf::from(home).join(".aws"));
        let file = |name: &str, usual: &str| {
            said(name).map(PathBuf::from).or_else(|| home.as_ref().map(|home| home.join(usual)))
        };
        let keys = said("AWS_ACCESS_KEY_ID").zip(said("AWS_SECRET_ACCESS_KEY"));
        let keys = keys.map(|(access_key, secret_key)| Credentials {
            session_token: said("AWS_SESSION_TOKEN"),
            ..Credentials::permanent(access_key, secret_key)
        });
        let relative = said("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let token_file = said("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        let token_file = token_file.map(|path| ContainerToken::File(path.into()));
        let token = said("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(ContainerToken::Text);
        let off = said("AWS_EC2_METADATA_DISABLED").is_some_and(|v| v.eq_ignore_ascii_case("true"));
        let instance = said("AWS_EC2_METADATA_SERVICE_ENDPOINT");
        let session = said("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| SESSION_NAME.to_owned());
        let web_identity = said("AWS_ROLE_ARN").zip(said("AWS_WEB_IDENTITY_TOKEN_FILE"));
        let region = said("AWS_REGION").or_else(|| said("AWS_DEFAULT_REGION"));
        let handed = HANDED.iter().filter_map(|name| Some(((*name).to_owned(), said(name)?)));
        Self {
            keys,
            profile: said("AWS_PROFILE"),
            credentials_file: file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config_file: file("AWS_CONFIG_FILE", "config"),
            web_identity: web_identity.map(|(role, file)| WebIdentity {
                role,
                token_file: file.into(),
                session,
            }),
            token_service: said("AWS_ENDPOINT_URL_STS"),
            region,
            handed: handed.collect(),
            sso_cache: home.as_ref().map(|home| home.join("sso/cache")),
            sso_portal: said("AWS_ENDPOINT_URL_SSO"),
            ca_file: said("AWS_CA_BUNDLE").map(PathBuf::from),
            proxies: Proxies::default(),
            container: relative
                .map(|path| format!("{CONTAINER_HOST}{path}"))
                .or_else(|| said("AWS_CONTAINER_CREDENTIALS_FULL_URI")),
            container_token: token_file.or(token),
            instance: (!off).then(|| instance.unwrap_or_else(|| INSTANCE_HOST.into())),
        }
    }

    /// The first place that has keys; the explanation tells what each place said.
    fn find(&self) -> Result<Credentials, String> {
        if let (Some(keys), None) = (&self.keys, &self.profile) {
            return Ok(keys.clone());
        }
        // Who sets one of these up means it: where it fails, keys of somebody else would be a surprise.
        if let (Some(identity), None) = (&self.web_identity, &self.profile) {
            return self.by_web_identity(identity, self.region.as_deref());
        }
        if let Some(found) = self.by_profile() {
            return found;
        }
        let mut tried = vec!["no AWS_ACCESS_KEY_ID".to_owned(), "no keys in a profile".to_owned()];
        if let Some(uri) = &self.container {
            match service::from_container(uri, self.container_token.as_ref(), self.reach()) {
                Ok(keys) => return Ok(keys),
                Err(why) => tried.push(format!("the container's service at {uri}: {why}")),
            }
        }
        if let Some(host) = &self.instance {
            match service::from_instance(host, self.reach()) {
                Ok(keys) => return Ok(keys),
                Err(why) => tried.push(format!("the instance's service at {host}: {why}")),
            }
        }
        Err(tried.join("; "))
    }

    /// `None` where there is no profile, or one that says nothing of keys, and none was named.
    fn by_profile(&self) -> Option<Result<Credentials, String>> {
        let name = self.profile.as_deref().unwrap_or("default");
        let Profile { keys, region, .. } = Profile::load(self);
        let region = self.region.as_deref().or(region.as_deref());
        let found = match keys {
            ProfileKeys::None if self.profile.is_none() => return None,
            ProfileKeys::None => Err("it has no keys in the profile files".to_owned()),
            ProfileKeys::Here(keys) => Ok(keys),
            ProfileKeys::WebIdentity(identity) => self.by_web_identity(&identity, region),
            ProfileKeys::SingleSignOn(login) => self.by_single_sign_on(&login),
            ProfileKeys::Process(command) => process::run(&command, &self.handed)
                .map_err(|why| format!("credential_process: {why}")),
            ProfileKeys::Unknown(why) => Err(why),
        };
        Some(found.map_err(|why| format!("the profile `{name}`: {why}")))
    }

    /// How services on the internet are reached.
    fn reach(&self) -> Reach<'_> {
        Reach { ca_file: self.ca_file.as_deref(), proxies: &self.proxies }
    }

    fn by_web_identity(
        &self,
        identity: &WebIdentity,
        region: Option<&str>,
    ) -> Result<Credentials, String> {
        let service = match (&self.token_service, region) {
            (Some(service), _) => service.clone(),
            (None, Some(region)) => format!("https://{}", aws::host("sts", region)),
            (None, None) => "https://sts.amazonaws.com".to_owned(),
        };
        web_identity::ask(identity, &service, self.reach())
            .map_err(|why| format!("the token service at {service}: {why}"))
    }

    fn by_single_sign_on(&self, login: &SingleSignOn) -> Result<Credentials, String> {
        let cache =
            self.sso_cache.as_ref().ok_or("single sign-on needs $HOME, where logins are")?;
        sso::ask(login, cache, self.sso_portal.as_deref(), self.reach())
            .map_err(|why| format!("single sign-on: {why}"))
    }
}

/// A source with what it gave last.
#[derive(Debug)]
pub(super) struct Provider {
    source: CredentialSource,
    last: Mutex<Given>,
}

/// What a source gave.
#[derive(Debug, Default)]
struct Given {
    keys: Option<Credentials>,
    /// Until then it is not asked again: it took long, and its last answer is this.
    rests: Option<(Instant, Result<(), String>)>,
}

impl Given {
    /// Keys that have not ended, or why there are none.
    fn valid(&self, now: SystemTime, why: &str) -> Result<Credentials, String> {
        let valid = self.keys.as_ref().filter(|keys| keys.expires.is_none_or(|end| now < end));
        valid.cloned().ok_or_else(|| why.to_owned())
    }

    /// The answer of a source that rests.
    fn resting(&self) -> Option<&Result<(), String>> {
        self.rests.as_ref().filter(|(until, _)| Instant::now() < *until).map(|(_, answer)| answer)
    }

    /// Asks; a source that takes long rests afterwards, since a program or a service that is slow or hangs would hold up each
    /// request of each thread.
    fn ask(&mut self, find: impl FnOnce() -> Result<Credentials, String>) -> Result<(), String> {
        let begin = Instant::now();
        let found = find();
        let took = begin.elapsed();
        let answer = found.map(|keys| self.keys = Some(keys));
        self.rests = (took > KEYS_QUICK).then(|| (Instant::now() + KEYS_REST, answer.clone()));
        answer
    }
}

impl Provider {
    pub(super) fn new(source: CredentialSource) -> Self {
        Self { source, last: Mutex::default() }
    }

    /// Keys for a request that is signed now; `None` when requests are not signed.
    ///
    /// # Errors
    /// An explanation of every place that had none.
    pub(super) fn current(&self, now: SystemTime) -> Result<Option<Credentials>, String> {
        let environment = match &self.source {
            CredentialSource::Anonymous => return Ok(None),
            CredentialSource::Keys(keys) => return Ok(Some(keys.clone())),
            CredentialSource::Found(environment) => environment,
        };
        // Held while a service is asked, so that many threads ask once.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = last.keys.as_ref().filter(|keys| keys.is_fresh(now)) {
            return Ok(Some(keys.clone()));
        }
        let answer = match last.resting() {
            Some(answer) => answer.clone(),
            None => last.ask(|| environment.find()),
        };
        // One that stumbles in the last minutes of a lease is asked again later.
        let why = answer.err().unwrap_or_else(|| "the keys have ended".to_owned());
        last.valid(now, &why).map(Some)
    }

    /// The server did not like `refused`: true when other keys are there by now.
    pub(super) fn renew(&self, refused: &str) -> bool {
        let CredentialSource::Found(environment) = &self.source else { return false };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let are_others = |keys: &Option<Credentials>| {
            keys.as_ref().is_some_and(|keys| identity(keys) != refused)
        };
        if are_others(&last.keys) {
            return true;
        }
        last.resting().is_none()
            && last.ask(|| environment.find()).is_ok()
            && are_others(&last.keys)
    }
}

/// Tells one set of keys from another.
pub(super) fn identity(keys: &Credentials) -> String {
    format!("{} {}", keys.access_key, keys.session_token.as_deref().unwrap_or(""))
}

/// The keys in `text`, read as what a program prints, a token service answers, a sign-on service answers.
pub(super) fn parsed(text: &str) -> [Result<Credentials, String>; 3] {
    let of_token_service =
        Element::parse(text.as_bytes()).and_then(|answer| web_identity::parse(&answer));
    [process::parse(text), of_token_service, sso::parse(text)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment::read(&|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn variables_come_first_unless_a_profile_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("credentials");
        std::fs::write(&file, "[p]\naws_access_key_id = FILE\naws_secret_access_key = s\n")
            .unwrap();
        let file = file.to_str().unwrap();
        let variables = [
            ("AWS_ACCESS_KEY_ID", "ENV"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("AWS_SESSION_TOKEN", "t"),
            ("AWS_SHARED_CREDENTIALS_FILE", file),
            ("AWS_PROFILE", "p"),
        ];
        let keys = environment(&variables[..4]).find().unwrap();
        assert_eq!((keys.access_key.as_str(), keys.session_token.as_deref()), ("ENV", Some("t")));
        assert_eq!(environment(&variables).find().unwrap().access_key, "FILE");
        let missing = environment(&[("AWS_PROFILE", "no"), ("AWS_SHARED_CREDENTIALS_FILE", file)]);
        assert!(missing.find().unwrap_err().contains("`no`"));
    }

    #[test]
    fn a_web_identity_comes_before_profiles_that_nobody_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("credentials");
        std::fs::write(&file, "[default]\ncredential_process = exit 7\n").unwrap();
        let file = file.to_str().unwrap();
        let variables = [
            ("AWS_SHARED_CREDENTIALS_FILE", file),
            ("AWS_ROLE_ARN", "r"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/nonexistent/token"),
            ("AWS_REGION", "eu-west-1"),
            ("AWS_PROFILE", "default"),
        ];
        let why = environment(&variables[..4]).find().unwrap_err();
        assert!(
            why.contains(
                "https://sts.eu-west-1.amazonaws.com: read the token in /nonexistent/token"
            ),
            "{why}"
        );
        let why = environment(&variables).find().unwrap_err();
        assert!(
            why.contains("`default`: credential_process: it ended with exit status: 7"),
            "{why}"
        );
    }

    #[test]
    fn a_source_that_takes_long_is_asked_once_for_all_requests() {
        let keys = r#"printf '{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "s", "Expiration": "%s"}'"#;
        let until = |end: &str| format!("{keys} $(date -u -d '{end}' +%Y-%m-%dT%H:%M:%SZ)");
        // Keys that end soon are to be renewed, and are good until they end.
        for (prints, is_good) in [
            (until("+2 minutes"), true),
            (until("-2 minutes"), false),
            ("exit 1".to_owned(), false),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let (config, count) = (directory.path().join("config"), directory.path().join("count"));
            let command = format!("echo >> {}; sleep 0.2; {prints}", count.display());
            std::fs::write(&config, format!("[default]\ncredential_process = {command}\n"))
                .unwrap();
            let environment = environment(&[("AWS_CONFIG_FILE", config.to_str().unwrap())]);
            let provider = Provider::new(CredentialSource::Found(Box::new(environment)));
            for _ in 0..5 {
                assert_eq!(provider.current(SystemTime::now()).is_ok(), is_good, "{prints}");
                assert!(!provider.renew("A "), "the same keys are no others");
            }
            assert_eq!(std::fs::read_to_string(&count).unwrap().lines().count(), 1, "{prints}");
        }
    }

    #[test]
    fn nothing_found_says_where_was_looked() {
        let why = environment(&[("AWS_EC2_METADATA_DISABLED", "true")]).find().unwrap_err();
        assert!(why.contains("AWS_ACCESS_KEY_ID") && why.contains("profile"), "{why}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let keys = Credentials::permanent("AKID", "hidden");
        let source = CredentialSource::Found(Box::new(Environment {
            keys: Some(keys),
            ..Environment::default()
        }));
        let shown = format!("{source:?}");
        assert!(shown.contains("AKID") && !shown.contains("hidden"), "{shown}");
    }
}
