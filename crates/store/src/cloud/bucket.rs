//! Google Cloud Storage, `gs://bucket`, and Azure Blob Storage, `az://container`: one way to open both.
//!
//! Options are those of `object_store` (`google_service_account`, `azure_storage_account_key`, ...), over the
//! environment, `anonymous`, and the words about connections and TLS of all stores over HTTP. What the two do is in
//! `store`.

use super::connector::Connector;
use super::store::{Bucket, CloudStore, configured, no_retries};
use crate::StoreOptions;
use crate::http::HttpOptions;
use forebay_core::{Error, Result};
use object_store::RetryConfig;
#[cfg(feature = "azure")]
pub use object_store::azure::MicrosoftAzureBuilder as Azure;
#[cfg(feature = "gcs")]
pub use object_store::gcp::GoogleCloudStorageBuilder as Gcs;
use std::str::FromStr;
use std::sync::Arc;

/// What the builders of `object_store` have in common, though no trait of theirs says so.
pub trait Builder: Sized + 'static {
    /// The settings it knows.
    type Key: FromStr + Copy + Send + Sync + 'static;
    /// What its URLs begin with.
    const SCHEME: &'static str;
    /// Whether its listings can begin behind any key.
    const BEGINS_ANYWHERE: bool;
    /// Its word for `anonymous`.
    const ANONYMOUS: &'static str;

    /// A builder for the bucket of this name, with what the environment says.
    fn for_bucket(name: &str, connector: Connector, retry: RetryConfig) -> Self;
    /// One setting more.
    #[must_use]
    fn with(self, key: Self::Key, value: &str) -> Self;
    /// The bucket.
    fn bucket(self) -> object_store::Result<Arc<dyn Bucket>>;
}

/// Opens the bucket that `root` names. Connects to nothing.
pub fn open<B: Builder>(root: &str, options: &StoreOptions) -> Result<CloudStore> {
    let bucket = root.split_once("://").map_or(root, |(_, bucket)| bucket).trim_end_matches('/').to_owned();
    let words = configured::<B::Key>(B::SCHEME, options, &[("anonymous", B::ANONYMOUS)])?;
    let (connector, name) = (Connector { options: HttpOptions::from_words(options)? }, root.to_owned());
    let store = CloudStore::new(root, move || {
        let begun = B::for_bucket(&bucket, connector.clone(), no_retries());
        let builder = words.iter().fold(begun, |builder, (key, value)| builder.with(*key, value));
        builder.bucket().map_err(|error| {
            Error::invalid_config(format!("open `{name}`: the options do not fit together"))
                .with_source(error)
        })
    })?;
    Ok(store.beginning_anywhere(B::BEGINS_ANYWHERE))
}

#[cfg(feature = "gcs")]
impl Builder for Gcs {
    type Key = object_store::gcp::GoogleConfigKey;
    const SCHEME: &'static str = "gs";
    const BEGINS_ANYWHERE: bool = true;
    const ANONYMOUS: &'static str = "google_skip_signature";

    fn for_bucket(name: &str, connector: Connector, retry: RetryConfig) -> Self {
        Self::from_env().with_http_connector(connector).with_retry(retry).with_bucket_name(name)
    }
    fn with(self, key: Self::Key, value: &str) -> Self {
        self.with_config(key, value)
    }
    fn bucket(self) -> object_store::Result<Arc<dyn Bucket>> {
        Ok(Arc::new(self.build()?))
    }
}

#[cfg(feature = "azure")]
impl Builder for Azure {
    type Key = object_store::azure::AzureConfigKey;
    const SCHEME: &'static str = "az";
    // A page of Azure begins where its token says and nowhere else.
    const BEGINS_ANYWHERE: bool = false;
    const ANONYMOUS: &'static str = "azure_skip_signature";

    fn for_bucket(name: &str, connector: Connector, retry: RetryConfig) -> Self {
        Self::from_env().with_http_connector(connector).with_retry(retry).with_container_name(name)
    }
    fn with(self, key: Self::Key, value: &str) -> Self {
        self.with_config(key, value)
    }
    fn bucket(self) -> object_store::Result<Arc<dyn Bucket>> {
        Ok(Arc::new(self.build()?))
    }
}
