//! Kinds of drives, links and machines: a table of typical ones, and files of the user's own.
//!
//! The built-in figures are round ones, for a first answer: what a vendor's sheet says, at prices as they stood in
//! 2025, in US dollars. Whoever spends money writes a file. A file adds kinds, and replaces those of the same name.

use crate::size::parse_bytes;
use crate::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize};

/// Longest file that is read.
pub const MAX_CATALOG_BYTES: usize = 1 << 20;
/// Most kinds of one sort in a file.
pub const MAX_ENTRIES: usize = 1000;

/// A kind of drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// What it is called.
    pub name: String,
    /// Bytes it holds.
    #[serde(deserialize_with = "bytes")]
    pub capacity_bytes: u64,
    /// Bytes a second of long sequential reads.
    #[serde(deserialize_with = "bytes")]
    pub read_bytes_per_second: u64,
    /// Small reads a second at random places.
    pub reads_per_second: u64,
    /// What one costs.
    #[serde(default)]
    pub price: f64,
}

/// A kind of network link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// What it is called.
    pub name: String,
    /// Bytes a second that it carries.
    #[serde(deserialize_with = "bytes")]
    pub bytes_per_second: u64,
    /// What one costs: the port and its cable.
    #[serde(default)]
    pub price: f64,
}

/// A kind of machine, bought or rented, that drives are put into.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// What it is called.
    pub name: String,
    /// Drives it has room for.
    pub slots: u64,
    /// Bytes a second that it sends.
    #[serde(deserialize_with = "bytes")]
    pub link_bytes_per_second: u64,
    /// What one costs to buy, without drives.
    #[serde(default)]
    pub price: f64,
    /// What one costs to run for an hour.
    #[serde(default)]
    pub price_per_hour: f64,
}

/// All kinds that are known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalog {
    /// `[[drive]]`.
    #[serde(default, rename = "drive")]
    pub drives: Vec<Drive>,
    /// `[[link]]`.
    #[serde(default, rename = "link")]
    pub links: Vec<Link>,
    /// `[[instance]]`.
    #[serde(default, rename = "instance")]
    pub instances: Vec<Instance>,
}

impl Catalog {
    /// Typical hardware.
    pub fn typical() -> Self {
        const GB: u64 = 1_000_000_000;
        let drive = |name: &str, capacity_bytes, read_bytes_per_second, reads_per_second, price| Drive {
            name: name.into(),
            capacity_bytes,
            read_bytes_per_second,
            reads_per_second,
            price,
        };
        let link = |name: &str, bytes_per_second, price| Link { name: name.into(), bytes_per_second, price };
        let instance = |name: &str, slots, link_bytes_per_second, price, price_per_hour| Instance {
            name: name.into(),
            slots,
            link_bytes_per_second,
            price,
            price_per_hour,
        };
        Self {
            drives: vec![
                drive("hdd-8tb", 8000 * GB, GB / 5, 200, 320.0),
                drive("hdd-20tb", 20_000 * GB, GB / 4, 170, 400.0),
                drive("sata-ssd-4tb", 4000 * GB, 530_000_000, 90_000, 300.0),
                drive("nvme-1tb", 1000 * GB, 3 * GB, 400_000, 350.0),
                drive("nvme-8tb", 7680 * GB, 6 * GB, 900_000, 1000.0),
            ],
            links: vec![
                link("1gbe", GB / 8, 10.0),
                link("10gbe", GB * 10 / 8, 100.0),
                link("25gbe", GB * 25 / 8, 200.0),
                link("100gbe", GB * 100 / 8, 600.0),
                link("400gbe", GB * 400 / 8, 2000.0),
            ],
            instances: vec![
                instance("server-12", 12, GB * 25 / 8, 4000.0, 0.1),
                instance("server-24", 24, GB * 100 / 8, 8000.0, 0.2),
                instance("server-60", 60, GB * 100 / 8, 12_000.0, 0.3),
            ],
        }
    }

    /// Reads a file of kinds. All faults at once.
    pub fn from_toml(text: &str) -> Result<Self> {
        let fault = |why: String| Error::invalid_config(format!("read a catalog: {why}"));
        if text.len() > MAX_CATALOG_BYTES {
            return Err(fault(format!("it has {} bytes, more than {MAX_CATALOG_BYTES}", text.len())));
        }
        let catalog: Self = toml::from_str(text).map_err(|error| fault(error.to_string().trim().into()))?;
        let faults = catalog.faults();
        if faults.is_empty() { Ok(catalog) } else { Err(fault(faults.join("; "))) }
    }

    /// Together with another, whose kinds win over those of the same name.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        merge(&mut self.drives, other.drives, |drive| &drive.name);
        merge(&mut self.links, other.links, |link| &link.name);
        merge(&mut self.instances, other.instances, |instance| &instance.name);
        self
    }

    /// The drive of this name.
    pub fn drive(&self, name: &str) -> Result<&Drive> {
        find(&self.drives, "drive", name, |drive| &drive.name)
    }

    /// The link of this name.
    pub fn link(&self, name: &str) -> Result<&Link> {
        find(&self.links, "link", name, |link| &link.name)
    }

    /// The machine of this name.
    pub fn instance(&self, name: &str) -> Result<&Instance> {
        find(&self.instances, "instance", name, |instance| &instance.name)
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut entry = |sort: &str, name: &str, counts: &[(&str, u64)], prices: &[f64]| {
            if name.is_empty() || name.contains(['=', ',']) {
                faults.push(format!("{sort} `{name}`: a name is not empty and has no `=` and `,`"));
            }
            for (field, count) in counts.iter().filter(|(_, count)| *count == 0) {
                faults.push(format!("{sort} `{name}`: {field} is {count}"));
            }
            if prices.iter().any(|price| !(price.is_finite() && *price >= 0.0)) {
                faults.push(format!("{sort} `{name}`: a price is a number of at least 0"));
            }
        };
        for drive in &self.drives {
            let counts = [
                ("capacity_bytes", drive.capacity_bytes),
                ("read_bytes_per_second", drive.read_bytes_per_second),
                ("reads_per_second", drive.reads_per_second),
            ];
            entry("drive", &drive.name, &counts, &[drive.price]);
        }
        for link in &self.links {
            entry("link", &link.name, &[("bytes_per_second", link.bytes_per_second)], &[link.price]);
        }
        for one in &self.instances {
            let counts = [("slots", one.slots), ("link_bytes_per_second", one.link_bytes_per_second)];
            entry("instance", &one.name, &counts, &[one.price, one.price_per_hour]);
        }
        for (sort, count) in
            [("drive", self.drives.len()), ("link", self.links.len()), ("instance", self.instances.len())]
        {
            if count > MAX_ENTRIES {
                faults.push(format!("there are {count} of `{sort}`, more than {MAX_ENTRIES}"));
            }
        }
        faults
    }
}

fn merge<T>(into: &mut Vec<T>, from: Vec<T>, name: impl Fn(&T) -> &String) {
    into.retain(|old| from.iter().all(|new| name(new) != name(old)));
    into.extend(from);
}

fn find<'a, T>(list: &'a [T], sort: &str, name: &str, name_of: impl Fn(&T) -> &String) -> Result<&'a T> {
    list.iter().find(|one| name_of(one) == name).ok_or_else(|| {
        let known: Vec<_> = list.iter().map(|one| name_of(one).as_str()).collect();
        Error::not_found(format!("look up {sort} `{name}`: there is no such {sort}"))
            .with_hint(format!("known are {}; a catalog file adds more", known.join(", ")))
    })
}

/// Bytes as a number, or as text with a unit.
fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a size such as 4096 or \"8TB\"")]
    enum Written {
        Number(u64),
        Text(String),
    }
    match Written::deserialize(deserializer)? {
        Written::Number(number) => Ok(number),
        Written::Text(text) => parse_bytes(&text).map_err(|error| serde::de::Error::custom(error.message())),
    }
}
