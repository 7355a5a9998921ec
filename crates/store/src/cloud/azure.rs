//! Azure Blob Storage: `az://container`.
//!
//! Options are those of `object_store` (`azure_storage_account_name`, `azure_storage_account_key`, ...), over the
//! environment, and `anonymous`, `tls_ca_file`, `tls_verify`.

use super::store::{Bucket, CloudStore, client_options, configured, no_retries};
use crate::StoreOptions;
use forebay_core::{Error, Result};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use std::sync::Arc;

/// Opens `az://container`. Connects to nothing.
pub fn open(root: &str, options: &StoreOptions) -> Result<CloudStore> {
    let container = root.split_once("://").map_or(root, |(_, name)| name).trim_end_matches('/').to_owned();
    let words = configured::<AzureConfigKey>("az", options, &[("anonymous", "azure_skip_signature")])?;
    let (options, name) = (options.clone(), root.to_owned());
    CloudStore::new(root, move || {
        let mut builder = MicrosoftAzureBuilder::from_env()
            .with_client_options(client_options(&options)?)
            .with_retry(no_retries())
            .with_container_name(&container);
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
