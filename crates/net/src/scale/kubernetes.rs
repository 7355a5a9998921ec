//! A Kubernetes Deployment as [`Replicas`], through its scale subresource.
//!
//! Two calls to the API server over HTTPS and no more: the rights that this needs are `get` and `patch` of
//! `deployments/scale`. Who we are and whom we trust comes from the pod's service account; both files are read for
//! every call, because the kubelet renews them.

use super::{Asked, Replicas};
use crate::credentials::provider;
use bytes::Bytes;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::http::tls::certificates;
use forebay_store::http::{HttpAnswer, HttpClient, HttpOptions, HttpRequest, Method};
use futures::FutureExt;
use futures::future::BoxFuture;
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use url::Url;

/// Where a pod finds its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Most bytes of an answer: a scale is a few hundred.
const ANSWER_BYTES: u64 = 64 << 10;

/// Most bytes of a token.
const TOKEN_BYTES: usize = 64 << 10;

/// How an API server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// `https://host:port`.
    pub server: String,
    /// A file with the token that we show.
    pub token_file: PathBuf,
    /// The authority that signed the server's certificate, in PEM. No other one is trusted.
    pub ca_file: PathBuf,
}

impl Cluster {
    /// The cluster that this process is a pod of.
    pub fn of_this_pod(environment: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let host = environment("KUBERNETES_SERVICE_HOST").filter(|host| !host.is_empty());
        let Some(host) = host else {
            let why = "find the API server of Kubernetes: `KUBERNETES_SERVICE_HOST` is not set";
            return Err(
                Error::invalid_config(why).with_hint("`--scale kubernetes://` is for a dispatcher in a pod")
            );
        };
        let port = environment("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".into());
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let account = Path::new(ACCOUNT);
        Ok(Self {
            server: format!("https://{host}:{port}"),
            token_file: account.join("token"),
            ca_file: account.join("ca.crt"),
        })
    }
}

/// A Deployment.
#[derive(Debug)]
pub struct Kubernetes {
    cluster: Cluster,
    namespace: String,
    name: String,
    url: Url,
}

impl Kubernetes {
    /// From `kubernetes://NAMESPACE/deployments/NAME`. Nothing is connected to yet.
    pub fn new(text: &str, cluster: Cluster) -> Result<Self> {
        let fault = |why: &str| {
            Error::invalid_config(format!("scale `{text}`: {why}"))
                .with_hint("give `kubernetes://NAMESPACE/deployments/NAME`")
        };
        let path = text.strip_prefix("kubernetes://").ok_or_else(|| fault("it is no such address"))?;
        let [namespace, kind, name] = path.split('/').collect::<Vec<_>>()[..] else {
            return Err(fault("it does not name one thing"));
        };
        if kind != "deployments" {
            return Err(fault("only Deployments are scaled"));
        }
        if let Some(wrong) = [namespace, name].into_iter().find(|name| !is_name(name)) {
            return Err(fault(&format!("`{wrong}` is no name of Kubernetes")));
        }
        let url = format!("{}/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale", cluster.server);
        let url =
            Url::parse(&url).map_err(|error| fault("the API server has no address").with_source(error))?;
        if url.scheme() != "https" {
            return Err(fault("the API server is reached over HTTPS alone"));
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), cluster, url })
    }

    async fn ask(&self, method: Method, body: Bytes) -> Result<Scale> {
        let doing = format!("{} the scale of `{}/{}`", word(method), self.namespace, self.name);
        let asked = async {
            let client = HttpClient::with_config(&HttpOptions::default(), self.trust()?)?;
            let mut headers =
                vec![("authorization", format!("Bearer {}", self.token()?)), ("accept", JSON.into())];
            if method == Method::Patch {
                headers.push(("content-type", "application/merge-patch+json".into()));
            }
            let request =
                HttpRequest { method, url: &self.url, headers: &headers, body, expect: ANSWER_BYTES };
            client.send(request).await
        };
        let answer = asked.await.map_err(|error| error.while_doing(&doing))?;
        if !(200..300).contains(&answer.status) {
            return Err(refusal(&doing, &answer));
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| Error::corrupt(format!("{doing}: the answer is no scale")).with_source(error))
    }

    fn token(&self) -> Result<String> {
        let path = &self.cluster.token_file;
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::io(format!("read token file `{}`", path.display()), error))?;
        let token = text.trim();
        if token.is_empty() || token.len() > TOKEN_BYTES || !token.bytes().all(|byte| byte.is_ascii_graphic())
        {
            let why = format!("read token file `{}`: it holds no token", path.display());
            return Err(Error::invalid_config(why));
        }
        Ok(token.to_owned())
    }

    fn trust(&self) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.cluster.ca_file)? {
            roots.add(certificate).map_err(|error| {
                let path = self.cluster.ca_file.display();
                Error::invalid_config(format!("trust `{path}`")).with_source(error)
            })?;
        }
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::internal("set up TLS").with_source(error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}

const JSON: &str = "application/json";

/// What is read of an object `Scale` of `autoscaling/v1`. A number of 0 is left out there.
#[derive(Debug, Deserialize)]
struct Scale {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    resource_version: String,
}

#[derive(Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    replicas: u64,
}

impl Replicas for Kubernetes {
    fn read(&self) -> BoxFuture<'_, Result<Asked>> {
        async {
            let scale = self.ask(Method::Get, Bytes::new()).await?;
            Ok(Asked { workers: scale.spec.replicas, version: scale.metadata.resource_version })
        }
        .boxed()
    }

    fn set(&self, read: Asked, workers: u64) -> BoxFuture<'_, Result<()>> {
        async move {
            let body = json!({
                "metadata": { "resourceVersion": read.version },
                "spec": { "replicas": workers },
            });
            let scale = self.ask(Method::Patch, body.to_string().into()).await?;
            if scale.spec.replicas != workers {
                let (namespace, name, has) = (&self.namespace, &self.name, scale.spec.replicas);
                let why =
                    format!("set the scale of `{namespace}/{name}` to {workers}: it has {has} afterwards");
                return Err(Error::stale(why));
            }
            Ok(())
        }
        .boxed()
    }
}

fn word(method: Method) -> &'static str {
    if method == Method::Get { "read" } else { "set" }
}

/// What a status means; the server's own words are behind it.
fn refusal(doing: &str, answer: &HttpAnswer) -> Error {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    let said = serde_json::from_slice::<Status>(&answer.body).map(|status| status.message);
    let said: String = said.unwrap_or_default().chars().filter(|c| !c.is_control()).take(300).collect();
    let status = answer.status;
    let (kind, hint) = match status {
        401 | 403 => (
            ErrorKind::Denied,
            Some("the service account needs a role with `get` and `patch` of `deployments/scale`"),
        ),
        404 => (ErrorKind::NotFound, Some("check namespace and name after `--scale`")),
        409 => (ErrorKind::Stale, None),
        _ => (ErrorKind::Unavailable, None),
    };
    let error = Error::new(kind, format!("{doing}: status {status} {said}").trim_end().to_owned());
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// Whether Kubernetes takes a text as a name: what else could be in it would change the path that is asked.
fn is_name(text: &str) -> bool {
    let is_inner =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let is_outer = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=253).contains(&text.len())
        && text.bytes().all(is_inner)
        && text.as_bytes().first().is_some_and(is_outer)
        && text.as_bytes().last().is_some_and(is_outer)
}
