//! What the processes do: `store` serves objects and counts, `node` reads epochs through its cache, `dispatcher` tells
//! nodes of each other. Orders come as lines of JSON, answers go out as such.

use crate::process::{ROLE, SETTING, answer, orders};
use forebay_core::cursor::Cursor;
use forebay_core::plan::Shuffle;
use forebay_core::portion::{Consumer, LastBatch};
use forebay_core::recipe::Recipe;
use forebay_core::{Result, SampleId};
use forebay_engine::cache::{CacheConfig, Keeper, warm};
use forebay_engine::source::{Dataset, OpenOptions, open};
use forebay_engine::{CacheSettings, Loader, LoaderConfig, Next};
use forebay_net::dispatcher::{DispatcherOptions, serve};
use forebay_net::host::{HostOptions, serve_host};
use forebay_net::{Surroundings, Threads, cache_settings};
use forebay_testkit::server::{BUCKET, Objects, SlowServer};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn run() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let setting: Value = serde_json::from_str(&std::env::var(SETTING).unwrap()).unwrap();
    match role.as_str() {
        "store" => store(&setting),
        "dispatcher" => dispatcher(&setting),
        "host" => host(&setting),
        _ => node(&setting),
    }
}

fn recipe() -> Result<Recipe> {
    Recipe::from_json(r#"[{"field": "bin", "decode": {"kind": "bytes"}}]"#)
}

fn key(sample: u64) -> String {
    format!("o/{sample:05}.bin")
}

fn payload(sample: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (sample * 31 + at) as u8).collect()
}

fn store(setting: &Value) {
    let (samples, bytes) = (setting["samples"].as_u64().unwrap(), setting["bytes"].as_u64().unwrap());
    let with = |objects: Objects, sample| objects.with(&key(sample), &payload(sample, bytes));
    let objects = (0..samples).fold(Objects::new(), with);
    let address = format!("{}:0", setting["host"].as_str().unwrap());
    let server = SlowServer::start_at(address.parse().unwrap(), objects).unwrap();
    answer(&json!({ "url": server.url() }));
    for _ in orders() {
        let reads: Vec<u64> = (0..samples).map(|sample| server.attempts(&key(sample))).collect();
        answer(&json!({ "reads": reads }));
    }
}

/// The process that holds a host's memory, as the command `forebay cache-host` runs it.
fn host(setting: &Value) {
    let threads = Threads::shared().unwrap();
    let options = HostOptions {
        socket: setting["socket"].as_str().unwrap().into(),
        memory: setting["memory"].as_u64().unwrap(),
        grace: Duration::from_millis(500),
        behind: None,
    };
    threads.clone().block_on(serve_host(options, threads)).unwrap();
}

/// What starts such a process: a shell that turns `--memory BYTES --socket PATH` into our setting.
fn host_command() -> Vec<OsString> {
    let program = std::env::current_exe().unwrap();
    let script = format!(
        r#"{SETTING}="{{\"memory\":$2,\"socket\":\"$4\"}}" exec '{}' role --exact --nocapture"#,
        program.display()
    );
    let role = format!("{ROLE}=host");
    ["env", &role, "sh", "-c", &script, "host"].map(OsString::from).to_vec()
}

fn dispatcher(setting: &Value) {
    let threads = Threads::shared().unwrap();
    let mut options = DispatcherOptions { listen: "127.0.0.1:0".into(), ..DispatcherOptions::default() };
    options.settings.worker_timeout_ms = setting["timeout_ms"].as_u64().unwrap();
    let running = threads.block_on(serve(options, threads.clone())).unwrap();
    answer(&json!({ "address": running.address().to_string() }));
    orders().for_each(drop);
}

struct Node {
    dataset: Dataset,
    settings: CacheSettings,
    keeper: Arc<dyn Keeper>,
    bytes: u64,
    /// A loader that runs on from epoch to epoch.
    running: Option<Loader>,
}

fn node(setting: &Value) {
    let mut node = Node::open(setting).unwrap();
    let manifest = node.dataset.manifest();
    let keys: Vec<String> = (0..manifest.len())
        .map(|sample| manifest.object(manifest.location(SampleId(sample), 0).unwrap().object).key.to_string())
        .collect();
    answer(&json!({ "keys": keys }));
    for order in orders() {
        match order["order"].as_str().unwrap() {
            "epoch" => answer(&node.epoch(&order).unwrap()),
            "run_on" => answer(&node.run_on(&order).unwrap()),
            "choose" => answer(&node.choose().unwrap()),
            _ => {
                let view = node.keeper.view();
                answer(&json!({ "members": view.peers.members, "kept": view.memory.payloads }));
            }
        }
    }
}

impl Node {
    fn open(setting: &Value) -> Result<Self> {
        let folder = tempfile::tempdir().unwrap();
        let words =
            [("endpoint", setting["store"].as_str().unwrap()), ("anonymous", "true"), ("allow_http", "true")];
        let options = OpenOptions {
            manifest_dir: Some(folder.path().to_path_buf()),
            extensions: vec!["bin".into()],
            storage_options: words.iter().map(|(name, word)| ((*name).into(), (*word).into())).collect(),
            ..OpenOptions::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let dataset = runtime.block_on(open(&[format!("s3://{BUCKET}/o/")], &options))?;
        let surroundings = Surroundings { local_ranks: 1, command: host_command() };
        let settings = cache_settings(CacheConfig::from_json(&setting["cache"])?, surroundings)?;
        // The node outlives its loaders.
        let keeper = (settings.open)()?;
        let opened = keeper.clone();
        let settings = CacheSettings { open: Arc::new(move || Ok(opened.clone())), ..settings };
        Ok(Self { dataset, settings, keeper, bytes: setting["bytes"].as_u64().unwrap(), running: None })
    }

    fn loader(&self, order: &Value, epochs: Option<u64>) -> Result<Loader> {
        let number = |name: &str| order[name].as_u64().unwrap();
        let consumer = Consumer {
            rank: number("rank"),
            world_size: number("ranks"),
            batch_size: 10,
            last_batch: LastBatch::Partial,
        };
        let config = LoaderConfig {
            shuffle: Shuffle::Full,
            seed: 5,
            threads: 1,
            prefetch_batches: Some(2),
            // A second request of a read that is merely slow would be counted by the store.
            hedge: false,
            epochs,
            consumer,
            ..LoaderConfig::default()
        };
        let store = Arc::clone(self.dataset.store());
        Ok(Loader::new(self.dataset.manifest(), store, &recipe()?, config)?.with_cache(self.settings.clone()))
    }

    /// Chooses what is resident; the rest goes. Nothing is read, since nothing is to be on disk.
    fn choose(&self) -> Result<Value> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(warm(&self.dataset, &recipe()?, &self.settings, |_| Ok(())))?;
        Ok(json!({}))
    }

    /// One epoch by a loader of its own, which looks into no other. Stops in its midst when told to.
    fn epoch(&self, order: &Value) -> Result<Value> {
        let epoch = order["epoch"].as_u64().unwrap();
        let mut loader = self.loader(order, Some(epoch + 1))?;
        loader.seek(Cursor::start_of(epoch))?;
        let pause = order["pause"].as_bool() == Some(true);
        let ids = self.read(&mut loader, |steps| {
            if pause && steps == 5 {
                answer(&json!({ "paused": true }));
                drop(orders().next());
            }
        })?;
        futures::executor::block_on(self.keeper.flush());
        let stats = loader.stats();
        let view = self.keeper.view();
        Ok(json!({
            "ids": ids, "local": stats.cache_memory_hits, "peer": stats.cache_peer_hits,
            "store": stats.cache_misses, "kept": view.memory.payloads, "refused": view.memory.refused,
            "dropped": view.peers.dropped,
        }))
    }

    /// The next epoch of a loader that runs on.
    fn run_on(&mut self, order: &Value) -> Result<Value> {
        let again = self.running.take().filter(|loader| {
            let consumer = loader.config().consumer;
            (consumer.rank, consumer.world_size)
                == (order["rank"].as_u64().unwrap(), order["ranks"].as_u64().unwrap())
        });
        let mut loader = match again {
            Some(loader) => loader,
            None => self.loader(order, None)?,
        };
        let ids = self.read(&mut loader, |_| {})?;
        self.running = Some(loader);
        Ok(json!({ "ids": ids }))
    }

    fn read(&self, loader: &mut Loader, mut after: impl FnMut(usize)) -> Result<Vec<u64>> {
        let mut ids = Vec::new();
        let mut steps = 0;
        loader.begin()?;
        loop {
            match loader.next(Duration::from_secs(5))? {
                Next::Waiting => {}
                Next::End => return Ok(ids),
                Next::Batch(batch) => {
                    let Some(forebay_ops::Column::Bytes(payloads)) = batch.column("bin") else {
                        panic!("a column of bytes")
                    };
                    for ((id, bytes), padding) in batch.ids.iter().zip(payloads).zip(&batch.padding) {
                        assert!(bytes[..] == payload(id.0, self.bytes), "sample {id:?} is another");
                        if !padding {
                            ids.push(id.0);
                        }
                    }
                    steps += 1;
                    after(steps);
                }
            }
        }
    }
}
