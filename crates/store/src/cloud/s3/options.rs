//! What a user may say about an S3 store, and what the environment says where the user is silent.
//!
//! Words win over `AWS_*` variables, in the spellings of boto, s3fs and the AWS settings. Secrets are read and never
//! shown: neither in messages nor by `Debug`.

use crate::StoreOptions;
use crate::cloud::connector::Connector;
use crate::cloud::words;
use crate::http::{options as http, tls};
use forebay_core::{Error, Result};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key, AwsCredential, AwsCredentialProvider};
use object_store::{RetryConfig, StaticCredentialProvider};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use url::{Host, Url};

/// Words of our own, before those that carry `aws_`.
pub(super) const WORDS: &[&str] = &[
    "endpoint",
    "endpoint_url",
    "region",
    "access_key_id",
    "key",
    "secret_access_key",
    "secret",
    "session_token",
    "token",
    "anonymous",
    "anon",
    "virtual_hosted_style",
    "allow_http",
    "request_payer",
];

/// Words of the AWS settings that mean what they mean there.
const AWS_WORDS: &[&str] = &[
    "aws_endpoint_url",
    "aws_endpoint_url_s3",
    "aws_region",
    "aws_default_region",
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "aws_skip_signature",
    "aws_virtual_hosted_style_request",
    "aws_allow_http",
    "aws_request_payer",
    "aws_role_arn",
    "aws_role_session_name",
    "aws_web_identity_token_file",
    "aws_endpoint_url_sts",
    "aws_container_credentials_relative_uri",
    "aws_container_credentials_full_uri",
    "aws_container_authorization_token_file",
    "aws_metadata_endpoint",
    "aws_imdsv1_fallback",
];

/// Where a bucket is and how requests to it are signed.
#[derive(Clone)]
pub(super) struct Place {
    /// Address of the bucket, without a `/` at its end.
    pub(super) bucket_url: String,
    /// Address of the service, for messages.
    pub(super) endpoint: String,
    pub(super) region: String,
    /// Whether reading is paid by us: a header says that we agree.
    pub(super) request_payer: bool,
    /// `None`: requests are not signed.
    pub(super) credentials: Option<AwsCredentialProvider>,
}

impl Place {
    /// Reads the words for the store `s3://bucket`, with the environment behind them.
    pub(super) fn from_words(root: &str, bucket: &str, options: &StoreOptions) -> Result<Self> {
        Self::with(AmazonS3Builder::from_env(), root, bucket, options)
    }

    fn with(environment: AmazonS3Builder, root: &str, bucket: &str, options: &StoreOptions) -> Result<Self> {
        http::refuse_unknown(options, "s3", &[WORDS, http::WORDS, tls::WORDS, AWS_WORDS])?;
        if bucket.contains(['@', '?', '#', '%'])
            || bucket.chars().any(|c| c.is_control() || c.is_whitespace())
        {
            return Err(Error::invalid_config(format!("open `{root}`: that is no name of a bucket")));
        }
        let builder = configure(environment, options)?;
        let text = |key: Key| builder.get_config_value(&key).filter(|value| !value.is_empty());
        let switch = |key: Key| text(key).map_or(Ok(false), |value| words::switch(key.as_ref(), &value));

        let region = text(Key::Region).unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = text(Key::S3Endpoint).or_else(|| text(Key::Endpoint));
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let allow_http = switch(Key::Client(object_store::ClientConfigKey::AllowHttp))?;
        let url = check_endpoint(&endpoint, allow_http, root)?;
        let bucket_url = address_of(&url, bucket, switch(Key::VirtualHostedStyleRequest)?)
            .ok_or_else(|| no_endpoint(root, "it cannot carry the bucket's name before its host"))?;
        let credentials =
            if switch(Key::SkipSignature)? { None } else { Some(credentials(builder.clone(), root)?) };
        let endpoint = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self {
            bucket_url,
            endpoint,
            region,
            request_payer: is_payer(text(Key::RequestPayer)),
            credentials,
        })
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let signed = self.credentials.is_some();
        f.debug_struct("Place")
            .field("bucket_url", &self.bucket_url)
            .field("region", &self.region)
            .field("signed", &signed)
            .finish_non_exhaustive()
    }
}

/// Puts the words over the environment.
fn configure(mut builder: AmazonS3Builder, options: &StoreOptions) -> Result<AmazonS3Builder> {
    let spellings: [(Key, &[&str]); 7] = [
        (Key::Region, &["region", "aws_region", "aws_default_region"]),
        (Key::AccessKeyId, &["access_key_id", "key", "aws_access_key_id"]),
        (Key::SecretAccessKey, &["secret_access_key", "secret", "aws_secret_access_key"]),
        (Key::Token, &["session_token", "token", "aws_session_token"]),
        (Key::SkipSignature, &["anonymous", "anon", "aws_skip_signature"]),
        (Key::VirtualHostedStyleRequest, &["virtual_hosted_style", "aws_virtual_hosted_style_request"]),
        (Key::RequestPayer, &["request_payer", "aws_request_payer"]),
    ];
    let given = |names: &[&str]| names.iter().any(|name| options.contains_key(*name));
    // A token belongs to its key: one of the environment must not be sent with a key of the user's.
    if given(spellings[1].1) && !given(spellings[3].1) {
        builder = builder.with_config(Key::Token, "");
    }
    for name in AWS_WORDS {
        if let (Some(value), Ok(key)) = (options.get(*name), name.parse::<Key>()) {
            builder = builder.with_config(key, value.clone());
        }
    }
    for (key, names) in spellings {
        if let Some(value) = words::one_of(options, names)? {
            builder = builder.with_config(key, value);
        }
    }
    let endpoints = ["endpoint", "endpoint_url", "aws_endpoint_url", "aws_endpoint_url_s3"];
    if let Some(endpoint) = words::one_of(options, &endpoints)? {
        // Both, because the environment may hold the one that would win.
        builder = builder.with_config(Key::Endpoint, endpoint).with_config(Key::S3Endpoint, endpoint);
    }
    if let Some(value) = words::one_of(options, &["allow_http", "aws_allow_http"])? {
        builder = builder.with_allow_http(words::switch("allow_http", value)?);
    }
    Ok(builder)
}

fn credentials(builder: AmazonS3Builder, root: &str) -> Result<AwsCredentialProvider> {
    let text = |key: Key| builder.get_config_value(&key).filter(|value| !value.is_empty());
    match (text(Key::AccessKeyId), text(Key::SecretAccessKey)) {
        (Some(key_id), Some(secret_key)) => {
            let token = text(Key::Token);
            Ok(Arc::new(StaticCredentialProvider::new(AwsCredential { key_id, secret_key, token })))
        }
        (None, None) => {
            // Roles of the machine, the container or the pod, asked for when the first request needs them. Few tries:
            // a machine without a role should say so soon.
            let retry = RetryConfig {
                max_retries: 2,
                retry_timeout: Duration::from_secs(10),
                ..RetryConfig::default()
            };
            // What was said about TLS is about the store; whoever hands out secrets is always checked.
            let connector = Connector::default();
            let builder = builder.with_bucket_name("-").with_retry(retry).with_http_connector(connector);
            let store = builder.build().map_err(|error| {
                Error::invalid_config(format!("open `{root}`: the options do not fit together"))
                    .with_source(error)
            })?;
            Ok(Arc::clone(store.credentials()))
        }
        (key, _) => {
            let (here, missing) = if key.is_some() {
                ("access_key_id", "secret_access_key")
            } else {
                ("secret_access_key", "access_key_id")
            };
            Err(Error::invalid_config(format!("open `{root}`: there is an `{here}` but no `{missing}`")))
        }
    }
}

/// Plain HTTP shows bytes and requests to everyone on the way, so beyond this machine it has to be wanted.
fn check_endpoint(endpoint: &str, allow_http: bool, root: &str) -> Result<Url> {
    let Ok(url) = Url::parse(endpoint) else { return Err(no_endpoint(root, "it is no URL")) };
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(no_endpoint(root, "it carries more than scheme, host and path"));
    }
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => IpAddr::V4(ip).is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).is_loopback(),
        None => return Err(no_endpoint(root, "it names no host")),
    };
    match url.scheme() {
        "https" => Ok(url),
        "http" if allow_http || is_loopback => Ok(url),
        "http" => Err(no_endpoint(root, "it is plain HTTP to another machine")
            .with_hint("say `allow_http=true` if the network may see and change what is read")),
        _ => Err(no_endpoint(root, "its scheme is neither https nor http")),
    }
}

fn no_endpoint(root: &str, why: &str) -> Error {
    Error::invalid_config(format!("open `{root}`: its `endpoint` cannot be used: {why}"))
}

/// The bucket's address: below the endpoint, or before its host.
fn address_of(endpoint: &Url, bucket: &str, virtual_hosted: bool) -> Option<String> {
    let mut url = endpoint.clone();
    if virtual_hosted {
        let host = endpoint.host_str()?;
        if !host.starts_with(&format!("{bucket}.")) {
            url.set_host(Some(&format!("{bucket}.{host}"))).ok()?;
        }
        return Some(url.as_str().trim_end_matches('/').to_owned());
    }
    Some(format!("{}/{bucket}", url.as_str().trim_end_matches('/')))
}

fn is_payer(value: Option<String>) -> bool {
    value.is_some_and(|value| {
        value.eq_ignore_ascii_case("requester") || words::switch("", &value).unwrap_or(false)
    })
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
