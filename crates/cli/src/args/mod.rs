//! What can be typed. One definition of each flag makes the parser, the help and `docs/reference/cli.md`.
//!
//! These types hold words as typed; `resolved` turns them into what the commands need, with all faults at once.

mod analyze;
mod cache;
mod capacity;
mod data;
mod etcd;
mod ledger;
mod materialize;
mod order;
mod raw;
mod reshard;
mod resolved;
mod service;
mod stage;
mod table;
mod tokenize;
mod worker;

pub(crate) use analyze::{AnalyzeArgs, AnalyzePlan};
pub(crate) use cache::{
    CacheArgs, CacheClearArgs, CacheCommand, CacheShowArgs, CacheVerifyArgs, CacheWarmArgs,
};
pub(crate) use capacity::{CapacityArgs, CapacityJob};
pub(crate) use data::{Data, extensions};
pub(crate) use ledger::{LedgerArgs, LedgerCheckArgs, LedgerCommand, LedgerWhereArgs};
pub(crate) use materialize::{MaterializeArgs, MaterializeJob};
pub(crate) use order::{OrderArgs, OrderPlan};
pub(crate) use raw::{
    BenchArgs, CacheHostArgs, ConfigArgs, ConfigCommand, ConfigShowArgs, DemoArgs, IndexArgs, InfoArgs,
    PackArgs, ReferenceArgs, ShowArgs, VerifyArgs,
};
pub(crate) use reshard::{ConvertArgs, ReshardArgs, ReshardJob};
pub(crate) use resolved::{DemoPlan, PackPlan, ShowPlan};
pub(crate) use service::{
    AskArgs, CredentialArgs, DispatcherArgs, DrainArgs, LookArgs, MakeCredentialsArgs, TopArgs,
};
pub(crate) use stage::{StageArgs, StageJob};
#[cfg(feature = "cassandra")]
pub(crate) use table::IngestPlan;
pub(crate) use table::{IngestArgs, SplitArgs, SplitPlan};
pub(crate) use tokenize::{TokenizeArgs, TokenizeJob};
pub(crate) use worker::{SameHost, ShareArgs, WorkerArgs, program};

use crate::report::ColorChoice;
use clap::{Parser, Subcommand};

/// Brings training samples from where they lie to the training loop as ready batches.
#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    max_term_width = 110,
    after_help = "Examples:
  forebay demo
  forebay info 'data/train-{000000..000146}.tar'
  forebay verify data/train
  forebay pack images/ shards/ --prefix train"
)]
pub(crate) struct Cli {
    /// Print one JSON object on standard output instead of text.
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,

    /// When to use color. `auto` is on a terminal, unless `NO_COLOR` is set.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", help_heading = "Output")]
    pub(crate) color: ColorChoice,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what a dataset holds: kind, samples, fields, classes, version.
    #[command(after_help = "Examples:
  forebay info data/train
  forebay info 'shards/train-{000000..000146}.tar' --json
  forebay info --pipeline mix.toml")]
    Info(InfoArgs),

    /// Look at every header and payload and name each fault with its shard, member and offset.
    ///
    /// Exits with 3 when faults were found. Warnings (a key used twice, an empty payload, bytes behind the end of an
    /// archive) do not fail it, unless `--strict` is given. It looks at folders and shards as they lie there, so a
    /// manifest `x.fbm` cannot be verified: name what it was built from.
    #[command(after_help = "Examples:
  forebay verify 'shards/train-*.tar'
  forebay verify data/train --no-decode --strict")]
    Verify(VerifyArgs),

    /// Build a dataset's manifest and keep it, so that opening the dataset is instant.
    #[command(after_help = "Examples:
  forebay index 'shards/train-{000000..000146}.tar'
  forebay index data/train --out train.fbm")]
    Index(IndexArgs),

    /// Write a dataset, such as a folder of images, into tar shards.
    ///
    /// The same samples and settings give the same bytes on every run and machine. A shard appears under its name
    /// only when it is complete, in a folder as in a store.
    #[command(after_help = "Examples:
  forebay pack images/train shards/ --prefix train --max-bytes 1GiB
  forebay pack images/ shards/ --labels labels.csv --shuffle --seed 7
  forebay pack images/train --to s3://bucket/shards/ --to-option endpoint=http://127.0.0.1:9000")]
    Pack(PackArgs),

    /// Write a dataset of any format as tar or TFRecord shards.
    ///
    /// Takes whatever `info` understands: folders, CSV, JSONL, TFRecord, MDS, LitData, RecordIO, Parquet, zip, tokens, tar. Samples
    /// keep their order, fields their names and payloads their bytes. The result is the same bytes on every run, a shard appears
    /// under its name only when it is complete, and a run that was killed goes on where it ended when it is started again.
    #[command(after_help = "Examples:
  forebay convert train.csv shards/ --to tar
  forebay convert 'old/train-*.tfrecord' shards/ --to tar --max-bytes 500MB
  forebay convert s3://bucket/mds/ records/ --to tfrecord-gz --prefix val")]
    Convert(ConvertArgs),

    /// Write the texts of a dataset as a file of tokens, which training reads and packs without tokenizing again.
    ///
    /// OUT.bin and OUT.idx are what Megatron-LM writes: a document for each sample, in stored order. The same texts and tokenizer
    /// give the same bytes, however many threads there are. Both files appear under their names only when they are whole; a
    /// run that was cut off leaves no more than a hidden file, which the next one writes over.
    #[command(after_help = "Examples:
  forebay tokenize corpus.jsonl tokens/corpus --tokenizer tokenizer.json
  forebay tokenize 'shards/train-*.tar' tokens/train --tokenizer tokenizer.json --field txt --eos 50256
  forebay tokenize s3://bucket/wiki/ tokens/wiki --tokenizer tokenizer.json --no-special-tokens --threads 8")]
    Tokenize(TokenizeArgs),

    /// Write shards again: in another order, of another size or format.
    ///
    /// Samples are read once, in the order in which they lie, with bounded memory; the result depends on the samples, the
    /// order and the sizes alone. A run that was killed goes on where it ended when it is started again.
    #[command(after_help = "Examples:
  forebay reshard 'old/train-{000..146}.tar' new/ --order shuffled --seed 7 --max-bytes 500MB
  forebay reshard old/ sorted/ --order key --memory 4GiB --spill-dir /scratch
  forebay reshard old/ new/ --map keys.txt --format tfrecord")]
    Reshard(ReshardArgs),

    /// Copy a dataset, or a part of it, from any store to a local disk.
    ///
    /// Objects keep their keys below DIR, and a journal there says which are whole and what their bytes add up to. A second
    /// run copies what is missing and what changed since: of an object that was cut off, only the pieces that were not
    /// fetched. `local` in a pipeline's `[data]`, or `forebay.open(URL, local=DIR)`, reads from the copy.
    #[command(after_help = "Examples:
  forebay stage s3://bucket/train/ /scratch/train --dry-run
  forebay stage 's3://bucket/train-{000000..000146}.tar' /scratch/train --limit-rate 50MiB
  forebay stage https://host/data/ /scratch/data --list keys.txt --verify")]
    Stage(StageArgs),

    /// Save the prepared samples of one epoch as tar shards that open like any other dataset.
    ///
    /// A shard holds a fixed run of positions and appears under its name whole or not at all, so a run that was killed goes
    /// on with what is missing, and several runs, on any machines, share what is left. `recipe.json` beside the shards
    /// reads the samples back byte for byte. Random ops are drawn once: their results are the same in every later epoch.
    #[command(after_help = "Examples:
  forebay materialize train.toml /nvme/prepared
  forebay materialize train.toml s3://bucket/prepared --via forebay://data-0:7077
  forebay materialize train.toml /nvme/prepared --dry-run --json")]
    Materialize(MaterializeArgs),

    /// Write a dataset into a table of Cassandra or ScyllaDB, a row for each sample.
    ///
    /// A sample's row has an id made from its key, so a second run goes on where the first ended: rows that are there
    /// with the same size and label are left alone. What is known of each row (size, label, key) is written to the
    /// table TABLE_metadata behind it. Reading such a table back needs no pass over its payloads.
    #[command(after_help = "Examples:
  forebay ingest images/train cassandra://10.0.0.1/imagenet/train --create --replication 3
  forebay ingest 'shards/*.tar' cassandra://db/space/masks --data-field jpg --label-field mask.png \\
      --to-option username=me --to-option password=...")]
    Ingest(IngestArgs),

    /// Cut a dataset into train, validation and test parts and write their keys to a file.
    ///
    /// Every sample is in one part. In every class each part has its share of that class rounded down or up. The cut
    /// depends on dataset, ratios and seed only.
    #[command(after_help = "Examples:
  forebay split images/train --ratios 0.8,0.1,0.1 --output splits.json
  forebay split 'shards/*.tar' --ratios 9,1 --names train,val --by cls --seed 7 --output splits.json")]
    Split(SplitArgs),

    /// Make one batch again and print what is in it, with checksums that any machine can compare.
    #[command(after_help = "Examples:
  forebay show 'shards/train-*.tar' --recipe recipe.toml --epoch 3 --batch 917 --batch-size 256 --shuffle block
  forebay show --pipeline pipeline.toml --epoch 3 --batch 917 --out batch/")]
    Show(ShowArgs),

    /// Show how well an order mixes a dataset, beside a full permutation.
    ///
    /// Looks at the manifest and the plan alone: how far samples move, how many neighbours stay neighbours, from how many
    /// shards a batch comes, and how far its classes are out of balance where the manifest has them. When the order is poor
    /// it names a larger group of blocks that is not.
    #[command(after_help = "Examples:
  forebay order 'shards/train-{000000..000146}.tar' --batch-size 256
  forebay order --pipeline train.toml --group-blocks 128 --json")]
    Order(OrderArgs),

    /// Prove from a ledger what was received: each sample once, and by whom.
    ///
    /// A loader with `ledger=DIR` writes down every batch that its loop received.
    #[command(after_help = "Examples:
  forebay ledger check runs/ledger 'shards/train-{000000..000146}.tar'
  forebay ledger where 81234 runs/ledger 'shards/train-{000000..000146}.tar'")]
    Ledger(LedgerArgs),

    /// Make a small image dataset, train on it with a made-up accelerator and say where the time went.
    #[command(after_help = "Examples:
  forebay demo
  forebay demo --samples 5000 --step-ms 2 --batch-size 64")]
    Demo(DemoArgs),

    /// Measure what a pipeline can do and say what holds it back, what would help, and what would be if.
    ///
    /// Measures the fetch rate (nothing resident, read past the page cache) and the prep rate (everything resident), each for
    /// some seconds, and sets them against the training step. Needs no root and writes nothing. The formulas are in
    /// docs/concepts/stalls.md.
    #[command(after_help = "Examples:
  forebay analyze pipeline.toml --step 0.25
  forebay analyze pipeline.toml --step 0.25 --what-if cache=50%,cores=x2
  forebay analyze pipeline.toml --step 0.25 --json")]
    Analyze(AnalyzeArgs),

    /// Compute drives, links, machines and their price for a dataset and its accelerators.
    ///
    /// For every known kind of drive: how many are needed, what decides that, what they give beyond what is asked, and the
    /// price. `--have` judges drives you have in mind. With `--cache`, `--nodes` or `--rtt-ms` it also predicts how a run would
    /// go: epochs, stalls, what limits, and what would help most. Kinds of your own come from a file (`--catalog`).
    #[command(after_help = "Examples:
  forebay plan --dataset 100TB --accelerators 16 --rate 200MB --have hdd-8tb=16
  forebay plan --dataset 150GB --samples 1281167 --accelerators 8 --rate 250MB --access files
  forebay plan --dataset 10TB --accelerators 64 --rate 100MB --catalog mine.toml --epochs 90 \\
      --nodes 8 --cache 0,500GB,1TB --rtt-ms 0.5,30 --peers --node-link 25gbe")]
    Plan(CapacityArgs),

    /// Look at configuration.
    #[command(after_help = "Example:
  forebay config show --pipeline pipeline.toml")]
    Config(ConfigArgs),

    /// Look after caches.
    #[command(after_help = "Examples:
  forebay cache show /nvme/forebay
  forebay cache verify /nvme/forebay
  forebay cache warm train.toml
  forebay cache clear /nvme/forebay --yes")]
    Cache(CacheArgs),

    /// Run the dispatcher of a data service: it says which worker prepares what for whom.
    ///
    /// Prints its address and runs until it is interrupted. It sees no samples and no data's whereabouts. With `--state`
    /// it may end at any moment and be started again: workers and clients wait for it and go on. Several that share an
    /// etcd take over from each other. Off this machine it listens with certificates only.
    #[command(after_help = "Examples:
  forebay dispatcher --state /var/lib/forebay
  forebay dispatcher --listen 0.0.0.0:7077 --state state/ --token-file token \\
      --tls-cert cert.pem --tls-key key.pem --tls-ca ca.pem
  forebay dispatcher --state etcd://etcd-0:2379,etcd-1:2379/forebay --etcd-ca etcd-ca.pem")]
    Dispatcher(DispatcherArgs),

    /// Show a page with everything live: stalls over time, stages, caches, workers, ranks, jobs.
    ///
    /// The page is read-only, asks nobody else for anything, and is for this machine alone unless a token is given. With
    /// `--dashboard` a dispatcher or `forebay share` shows the same about itself.
    #[command(after_help = "Examples:
  forebay dashboard --attach forebay://127.0.0.1:7077
  forebay dashboard --attach http://127.0.0.1:9464/metrics --attach http://127.0.0.1:9465/metrics --listen 127.0.0.1:0
  forebay dashboard --attach auto --listen 0.0.0.0:9465 --dashboard-token-file token")]
    Dashboard(LookArgs),

    /// Show what a dispatcher knows: workers, feeds, jobs, leases and rates.
    #[command(after_help = "Examples:
  forebay status forebay://127.0.0.1:7077
  forebay status 10.0.0.1:7077 --json --tls-cert cert.pem --tls-key key.pem --tls-ca ca.pem")]
    Status(AskArgs),

    /// Show what a dispatcher knows, again every second.
    #[command(after_help = "Examples:
  forebay top 127.0.0.1:7077
  forebay top 127.0.0.1:7077 --once")]
    Top(TopArgs),

    /// Print how many workers a service should have.
    ///
    /// The dispatcher measures how long jobs wait for batches and what one worker gives. It asks for more only while they
    /// wait, for fewer when fewer have been enough for a while, and for no more when a store or a link gives no more. What
    /// starts and stops workers is up to you: set the number that is printed.
    #[command(after_help = "Examples:
  forebay scale 127.0.0.1:7077
  forebay scale 127.0.0.1:7077 --json")]
    Scale(AskArgs),

    /// Give a worker no more spans, so that it can be stopped without anybody waiting.
    #[command(after_help = "Example:
  forebay drain 127.0.0.1:7077 00c0ffee00c0ffee")]
    Drain(DrainArgs),

    /// Make what the processes of a service need to trust each other: a token and a certificate for all of them.
    ///
    /// Every process of the service, and every job that reads from it, is given the whole folder (`--credentials DIR`, or
    /// `via={"url": ..., "credentials": DIR}`). Whoever reads it takes part. What made the certificate is forgotten, so nobody
    /// can be added without it.
    #[command(after_help = "Examples:
  forebay credentials service-credentials
  forebay dispatcher --listen 0.0.0.0:7077 --credentials service-credentials")]
    Credentials(MakeCredentialsArgs),

    /// Prepare batches once for all jobs of this host.
    ///
    /// Jobs whose loaders say `via="auto"`, or the address that is printed, and that read the same dataset with the same
    /// recipe and seed, get one preparation, handed over as shared memory. Loaders with `via="auto"` start it when it is
    /// missing; running it by hand is for other limits. Runs until it is interrupted.
    #[command(after_help = "Examples:
  forebay share
  forebay share --staging 8GiB --late wait
  forebay share --late spill --spill /nvme/spill --threads 12")]
    Share(ShareArgs),

    /// Prepare batches for jobs anywhere, as a dispatcher says.
    ///
    /// Prints its address and runs until it is interrupted. SIGTERM lets it answer what it was asked for and leave; a second
    /// one ends it at once. It may end at any moment: its batches are made by others.
    #[command(after_help = "Examples:
  forebay worker --dispatcher forebay://127.0.0.1:7077
  forebay worker --dispatcher forebay://data-0:7077 --listen 0.0.0.0:7078 --advertise node-3:7078 \\
      --token-file token --tls-ca ca.pem --tls-cert worker.pem --tls-key worker.key")]
    Worker(WorkerArgs),

    /// Measure and compare loaders; runs `python3 -m forebay.bench`.
    ///
    /// Everything behind `bench` is passed on. The Python is `$FOREBAY_PYTHON`, or `python3` from the path.
    #[command(
        disable_help_flag = false,
        after_help = "Example:
  forebay bench images --batch-size 256

`python3 -m forebay.bench --help` lists what it can measure."
    )]
    Bench(BenchArgs),

    /// Show the version.
    #[command(after_help = "Example:
  forebay version --json")]
    Version,

    /// Hold the memory of the cache that all processes of this host share; started when it is needed.
    #[command(
        hide = true,
        after_help = "Example:
  forebay cache-host --memory 64GiB"
    )]
    CacheHost(CacheHostArgs),

    /// Print the reference page of this command.
    #[command(
        hide = true,
        after_help = "Examples:
  forebay reference > docs/reference/cli.md
  forebay reference --check docs/reference/cli.md"
    )]
    Reference(ReferenceArgs),
}
