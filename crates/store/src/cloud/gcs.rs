//! Google Cloud Storage: `gs://bucket`.
//!
//! Options are those of `object_store` (`google_service_account`, `google_application_credentials`, ...), over the
//! environment, and `anonymous`, `tls_ca_file`, `tls_verify`.

use super::store::{Bucket, CloudStore, client_options, configured, no_retries};
use crate::StoreOptions;
use forebay_core::{Error, Result};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use std::sync::Arc;

/// Opens `gs://bucket`. Connects to nothing.
pub fn open(root: &str, options: &StoreOptions) -> Result<CloudStore> {
    let bucket = root.split_once("://").map_or(root, |(_, bucket)| bucket).trim_end_matches('/').to_owned();
    let words = configured::<GoogleConfigKey>("gs", options, &[("anonymous", "google_skip_signature")])?;
    let (options, name) = (options.clone(), root.to_owned());
    CloudStore::new(root, move || {
        let mut builder = GoogleCloudStorageBuilder::from_env()
            .with_client_options(client_options(&options)?)
            .with_retry(no_retries())
            .with_bucket_name(&bucket);
        for (key, value) in &words {
            builder = builder.with_config(*key, value);
        }
        let store = builder.build().map_err(|error| {
            Error::invalid_config(format!("open `{name}`: the options do not fit together"))
                .with_source(error)
        })?;
        Ok(Arc::new(store) as Arc<dyn Bucket>)
    })
}
