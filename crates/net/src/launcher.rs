//! Who else is in this job, as its launcher says: where the dispatcher is, and where this process is.
//!
//! A job that one launcher started needs no addresses in its command lines: the dispatcher is on the first node, at the
//! usual port. Slurm names all nodes (`SLURM_JOB_NODELIST`) and ours (`SLURM_NODEID`); torchrun names the first
//! (`MASTER_ADDR`). `FOREBAY_DISPATCHER` wins over both. Peers of a cache are found in [`crate::peer::Members`].

use crate::peer::expand_nodes;
use crate::service::DEFAULT_PORT;
use forebay_core::{Error, Result};

/// What is written instead of an address.
const WORD: &str = "auto";

/// What a launcher says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// `host:port` of the dispatcher.
    dispatcher: String,
    /// All hosts, where the launcher names them; else the first alone.
    nodes: Vec<String>,
    /// The name of our own host, where the launcher says it.
    own: Option<String>,
}

impl Launch {
    /// From the environment of this process.
    pub fn from_environment() -> Result<Self> {
        Self::from_words(|name| std::env::var(name).ok())
    }

    /// From any words.
    pub fn from_words(word: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let word = |name: &str| word(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let named = word("FOREBAY_DISPATCHER").map(|address| with_port(&address)).transpose()?;
        let (nodes, own) = if let Some(list) = word("SLURM_JOB_NODELIST") {
            let nodes =
                expand_nodes(&list).map_err(|error| error.while_doing("find the dispatcher of this job"))?;
            let number = word("SLURM_NODEID").map(|text| {
                text.parse::<usize>().map_err(|_| fault(format!("`SLURM_NODEID` is `{text}`, not a number")))
            });
            let own = number.transpose()?.and_then(|number| nodes.get(number).cloned());
            (nodes, own.or_else(|| word("SLURMD_NODENAME")))
        } else if let Some(first) = word("MASTER_ADDR") {
            // torchrun names nobody but the first; only that one can tell that it is meant.
            let own = word("GROUP_RANK").filter(|rank| rank == "0").map(|_| first.clone());
            (vec![first], own)
        } else {
            (Vec::new(), None)
        };
        let dispatcher = match (named, nodes.first()) {
            (Some(named), _) => named,
            (None, Some(first)) => with_port(first)?,
            (None, None) => {
                return Err(fault("no launcher says where it is").with_hint(
                    "give its address, or set FOREBAY_DISPATCHER; Slurm and torchrun set what is needed themselves",
                ));
            }
        };
        Ok(Self { dispatcher, nodes, own })
    }

    /// `host:port` of the dispatcher.
    pub fn dispatcher(&self) -> &str {
        &self.dispatcher
    }

    /// All hosts that the launcher names.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// Where the dispatcher of this job listens.
    pub fn listen_as_dispatcher(&self) -> Result<String> {
        let port = self.dispatcher.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        self.listen(port.unwrap_or(DEFAULT_PORT)).map(|(listen, _)| listen)
    }

    /// Where a process of this job listens, and where others find it when that is another name. A dispatcher on this
    /// machine means that all of the job is: nothing listens beyond it then.
    pub fn listen(&self, port: u16) -> Result<(String, Option<String>)> {
        let host = self.dispatcher.rsplit_once(':').map_or("", |(host, _)| host);
        if is_this_machine(host) {
            return Ok((format!("127.0.0.1:{port}"), None));
        }
        let own = match &self.own {
            Some(own) => own.clone(),
            None => own_name()?,
        };
        Ok((format!("0.0.0.0:{port}"), Some(format!("{own}:{port}"))))
    }
}

/// An address as it was given, or what the launcher says for `auto` and `forebay://auto`.
pub fn dispatcher_address(given: &str) -> Result<String> {
    if given == WORD
        || given.strip_prefix("forebay://").is_some_and(|rest| rest.trim_end_matches('/') == WORD)
    {
        return Launch::from_environment().map(|launch| launch.dispatcher);
    }
    Ok(given.to_owned())
}

/// Whether a host is a name of the loopback interface.
fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What the system calls this machine.
fn own_name() -> Result<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() {
        return Err(fault("this machine has no name").with_hint("give the address by hand"));
    }
    Ok(name)
}

/// `host:port` out of `host`, `host:port` or either behind `forebay://`.
fn with_port(address: &str) -> Result<String> {
    let bare = address.strip_prefix("forebay://").unwrap_or(address).trim_end_matches('/');
    let wrong = || fault(format!("`{address}` is not `host:port`"));
    let is_odd = |letter: char| "/@?,".contains(letter) || letter.is_whitespace() || letter.is_control();
    if bare.is_empty() || bare.contains(is_odd) || bare.find('[').is_some_and(|at| at > 0) {
        return Err(wrong());
    }
    let after_host = bare.rsplit_once(']').map_or(bare, |(_, rest)| rest);
    match after_host.rsplit_once(':') {
        // More than one colon without brackets is an address without a port.
        Some((before, _)) if before.contains(':') => Ok(format!("[{bare}]:{DEFAULT_PORT}")),
        Some((_, port)) => port.parse::<u16>().map(|_| bare.to_owned()).map_err(|_| wrong()),
        None => Ok(format!("{bare}:{DEFAULT_PORT}")),
    }
}

fn fault(why: impl std::fmt::Display) -> Error {
    Error::invalid_config(format!("find the dispatcher of this job: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;
    use proptest::prelude::*;

    fn launch(words: &[(&str, &str)]) -> Result<Launch> {
        let find =
            |name: &str| words.iter().find(|(word, _)| *word == name).map(|(_, text)| (*text).to_owned());
        Launch::from_words(find)
    }

    #[test]
    fn the_first_node_of_a_slurm_job_has_the_dispatcher() {
        let words =
            [("SLURM_JOB_NODELIST", "gpu[03-05,11]"), ("SLURM_NODEID", "2"), ("MASTER_ADDR", "other")];
        let found = launch(&words).unwrap();
        assert_eq!(found.dispatcher(), "gpu03:7077");
        assert_eq!(found.nodes(), ["gpu03", "gpu04", "gpu05", "gpu11"]);
        assert_eq!(found.listen(0).unwrap(), ("0.0.0.0:0".into(), Some("gpu05:0".into())));
        // A step that was started without srun has no number, but its daemon's name.
        let found = launch(&[("SLURM_JOB_NODELIST", "a,b"), ("SLURMD_NODENAME", "b")]).unwrap();
        assert_eq!(found.listen(7078).unwrap(), ("0.0.0.0:7078".into(), Some("b:7078".into())));
    }

    #[test]
    fn torchrun_names_the_first_node() {
        let found =
            launch(&[("MASTER_ADDR", "10.0.0.4"), ("MASTER_PORT", "29500"), ("GROUP_RANK", "0")]).unwrap();
        assert_eq!(found.dispatcher(), "10.0.0.4:7077", "the port of the rendezvous is another one's");
        assert_eq!(found.listen(0).unwrap().1.as_deref(), Some("10.0.0.4:0"));
        // Who is not the first is known by the machine's own name.
        let found = launch(&[("MASTER_ADDR", "10.0.0.4"), ("GROUP_RANK", "3")]).unwrap();
        assert_ne!(found.listen(0).unwrap().1.as_deref(), Some("10.0.0.4:0"));
        assert_eq!(launch(&[("MASTER_ADDR", "fd00::7")]).unwrap().dispatcher(), "[fd00::7]:7077");
    }

    #[test]
    fn a_job_on_one_machine_listens_on_that_alone() {
        for host in ["localhost", "127.0.0.1", "::1"] {
            let found = launch(&[("MASTER_ADDR", host)]).unwrap();
            assert_eq!(found.listen(0).unwrap(), ("127.0.0.1:0".into(), None), "{host}");
        }
    }

    #[test]
    fn a_named_dispatcher_wins_and_nothing_is_refused_with_a_hint() {
        let slurm = ("SLURM_JOB_NODELIST", "a,b");
        for (given, address) in
            [("d:9000", "d:9000"), ("forebay://d", "d:7077"), ("[::1]:5", "[::1]:5"), ("[::1]", "[::1]:7077")]
        {
            assert_eq!(launch(&[("FOREBAY_DISPATCHER", given), slurm]).unwrap().dispatcher(), address);
        }
        for words in [
            vec![],
            vec![("SLURM_JOB_NODELIST", " ")],
            vec![("SLURM_JOB_NODELIST", "a[")],
            vec![slurm, ("SLURM_NODEID", "x")],
            vec![("FOREBAY_DISPATCHER", "a:b")],
            vec![("FOREBAY_DISPATCHER", "u@h:1")],
            vec![("MASTER_ADDR", "a b")],
        ] {
            let error = launch(&words).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{words:?}");
        }
        assert!(launch(&[]).unwrap_err().hint().is_some_and(|hint| hint.contains("FOREBAY_DISPATCHER")));
        let named = launch(&[("FOREBAY_DISPATCHER", "d:9000"), slurm]).unwrap();
        assert_eq!(named.listen_as_dispatcher().unwrap(), "0.0.0.0:9000");
        assert_eq!(launch(&[slurm]).unwrap().listen_as_dispatcher().unwrap(), "0.0.0.0:7077");
        assert_eq!(dispatcher_address("forebay://automat:1").unwrap(), "forebay://automat:1");
    }

    proptest! {
        #[test]
        fn any_words_are_read_or_refused(list in "[a-c0-9,:/\\[\\]-]{0,30}", id in "[0-9x]{0,3}", first in ".{0,20}") {
            let words =
                [("SLURM_JOB_NODELIST", list.as_str()), ("SLURM_NODEID", &id), ("MASTER_ADDR", &first)];
            if let Ok(found) = launch(&words) {
                prop_assert!(found.dispatcher().rsplit_once(':').is_some_and(|(host, port)| {
                    !host.is_empty() && port.parse::<u16>().is_ok()
                }), "{found:?}");
            }
        }
    }
}
