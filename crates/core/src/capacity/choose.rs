//! How many of a kind are needed, and what a number of them is worth.

use super::{Access, Catalog, Demand, Drive, Instance, Link};
use serde::Serialize;

/// What decides how many drives are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveLimit {
    /// They must hold the dataset.
    Capacity,
    /// They must send it fast enough in long reads.
    Bandwidth,
    /// They must answer enough reads at random places.
    Requests,
}

/// What a number of drives is worth against what is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// They do not hold the dataset.
    TooSmall,
    /// They give less than is asked: accelerators wait.
    TooSlow,
    /// They give what is asked, and less beyond it than is wanted.
    NoHeadroom,
    /// They give what is asked and what is wanted beyond it.
    Enough,
}

/// What decides how many machines are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerLimit {
    /// Room for drives.
    Slots,
    /// What their links carry.
    Link,
}

/// The machines that hold the drives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Servers {
    /// The kind.
    pub instance: String,
    /// How many.
    pub count: u64,
    /// What decides that.
    pub limit: ServerLimit,
}

/// A number of drives of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The kind.
    pub drive: String,
    /// How many.
    pub count: u64,
    /// What is tightest about them: it decides the number, or with a number given, is used up first.
    pub limit: DriveLimit,
    /// Bytes they hold together.
    pub capacity_bytes: f64,
    /// Bytes a second they give together, read as asked.
    pub bytes_per_second: f64,
    /// Bytes a second if every sample were a read of its own at a random place.
    pub random_bytes_per_second: f64,
    /// What they give beyond what is asked, as a share of it: 0 is none, below 0 is too little.
    pub headroom: f64,
    /// What that is worth.
    pub verdict: Verdict,
    /// The machines that hold them.
    pub servers: Servers,
    /// Price of drives and machines, and of the machines' hours for all epochs.
    pub price: f64,
    /// Seconds of all epochs as far as these drives decide.
    pub seconds: f64,
}

/// A number of links of one kind, over which all of the data goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkChoice {
    /// The kind.
    pub link: String,
    /// How many.
    pub count: u64,
    /// What they carry beyond what is asked, as a share of it.
    pub headroom: f64,
    /// Their price.
    pub price: f64,
}

/// As many drives of this kind as the demand needs with the headroom that is wanted.
pub fn choose(demand: &Demand, drive: &Drive, server: &Instance) -> Choice {
    let (count, limit) = needed(demand, drive, demand.wanted_bytes_per_second());
    Choice { limit, ..judge(demand, drive, server, count) }
}

/// What `count` drives of this kind are worth.
pub fn judge(demand: &Demand, drive: &Drive, server: &Instance, count: u64) -> Choice {
    let (_, limit) = needed(demand, drive, demand.bytes_per_second());
    let many = count as f64;
    let capacity_bytes = many * drive.capacity_bytes as f64;
    let bytes_per_second = many * read_rate(demand, drive, demand.access);
    let headroom = bytes_per_second / demand.bytes_per_second() - 1.0;
    // A share that was wanted to the last digit is there although a sum of floats missed it.
    let verdict = if capacity_bytes < demand.dataset_bytes as f64 {
        Verdict::TooSmall
    } else if headroom < -1e-9 {
        Verdict::TooSlow
    } else if headroom < demand.headroom - 1e-9 || headroom < 1e-9 {
        Verdict::NoHeadroom
    } else {
        Verdict::Enough
    };
    let servers = servers(demand, server, count);
    let seconds = demand.epochs as f64 * demand.epoch_seconds() * (1.0 / (1.0 + headroom)).max(1.0);
    let each = server.price + server.price_per_hour * seconds / 3600.0;
    Choice {
        drive: drive.name.clone(),
        count,
        limit,
        capacity_bytes,
        bytes_per_second,
        random_bytes_per_second: many * read_rate(demand, drive, Access::Files),
        headroom,
        verdict,
        price: many * drive.price + servers.count as f64 * each,
        servers,
        seconds,
    }
}

/// For every kind of link how many carry the demand with the headroom that is wanted.
pub fn links(demand: &Demand, catalog: &Catalog) -> Vec<LinkChoice> {
    let choice = |link: &Link| {
        let rate = link.bytes_per_second as f64;
        let count = up(demand.wanted_bytes_per_second() / rate);
        LinkChoice {
            link: link.name.clone(),
            count,
            headroom: count as f64 * rate / demand.bytes_per_second() - 1.0,
            price: count as f64 * link.price,
        }
    };
    catalog.links.iter().map(choice).collect()
}

/// Drives needed for `rate` bytes a second, and what decides it.
fn needed(demand: &Demand, drive: &Drive, rate: f64) -> (u64, DriveLimit) {
    let holding = up(demand.dataset_bytes as f64 / drive.capacity_bytes as f64);
    let each = read_rate(demand, drive, demand.access);
    let sending = up(rate / each);
    if sending <= holding {
        (holding, DriveLimit::Capacity)
    } else if each < drive.read_bytes_per_second as f64 {
        (sending, DriveLimit::Requests)
    } else {
        (sending, DriveLimit::Bandwidth)
    }
}

/// Bytes a second of one drive.
fn read_rate(demand: &Demand, drive: &Drive, access: Access) -> f64 {
    let sequential = drive.read_bytes_per_second as f64;
    match access {
        Access::Shards => sequential,
        Access::Files => sequential.min(drive.reads_per_second as f64 * demand.sample_bytes()),
    }
}

fn servers(demand: &Demand, server: &Instance, drives: u64) -> Servers {
    let slots = drives.div_ceil(server.slots).max(1);
    let sending = up(demand.bytes_per_second() / server.link_bytes_per_second as f64);
    let limit = if sending > slots { ServerLimit::Link } else { ServerLimit::Slots };
    Servers { instance: server.name.clone(), count: slots.max(sending), limit }
}

/// Rounded up, but for what floats add in their last digits; at least one.
fn up(count: f64) -> u64 {
    ((count * (1.0 - 1e-12)).ceil() as u64).max(1)
}
