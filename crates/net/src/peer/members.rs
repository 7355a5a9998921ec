//! Who takes part: a list, or what the launcher of the job says.
//!
//! Launchers differ in what they tell. Slurm names all nodes (`SLURM_JOB_NODELIST`) and ours among them
//! (`SLURM_NODEID`). torchrun tells our number (`GROUP_RANK`) but nobody's address, so there the list has to come in
//! `FOREBAY_PEERS`.

use forebay_core::{Error, Result};

/// Most nodes a list may stand for.
const MOST: usize = 4096;

/// The nodes of a job, `host:port` each, and our own address, which is one of them unless we have left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    addresses: Vec<String>,
    own: String,
}

impl Members {
    /// From addresses and our own number among them.
    pub fn new(addresses: Vec<String>, me: usize) -> Result<Self> {
        let own = addresses.get(me).cloned();
        let own =
            own.ok_or_else(|| fault(format!("this is node {me}, counted from 0, of {}", addresses.len())))?;
        Self::around(addresses, &own)
    }

    /// From addresses and our own, which need not be among them.
    pub fn around(addresses: Vec<String>, own: &str) -> Result<Self> {
        if addresses.is_empty() || addresses.len() > MOST {
            return Err(fault(format!("{} nodes are named, give 1 to {MOST}", addresses.len())));
        }
        for address in addresses.iter().map(String::as_str).chain([own]) {
            let port = address.rsplit_once(':').map(|(host, port)| (host.is_empty(), port.parse::<u16>()));
            if !matches!(port, Some((false, Ok(1..)))) || address.contains(char::is_whitespace) {
                return Err(fault(format!("`{address}` is not `host:port`")));
            }
        }
        Ok(Self { addresses, own: own.to_owned() })
    }

    /// From addresses and our own among them.
    pub fn with_own(addresses: Vec<String>, own: &str) -> Result<Self> {
        if !addresses.iter().any(|address| address == own) {
            let why = format!("our own address `{own}` is not in the list");
            return Err(fault(why).with_hint("name it as the list does"));
        }
        Self::around(addresses, own)
    }

    /// From the lines of a file; what follows a `#` is for people.
    pub fn from_lines(text: &str, own: &str) -> Result<Self> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        Self::around(lines.filter(|line| !line.is_empty()).map(str::to_owned).collect(), own)
    }

    /// From the environment: `FOREBAY_PEERS` (`host:port,...`) with `FOREBAY_PEER`, or else the launcher's number,
    /// to say which is ours; or Slurm's list with `port`. `None` when neither is set.
    pub fn from_environment(port: u16) -> Result<Option<Self>> {
        Self::from_words(|name| std::env::var(name).ok().filter(|word| !word.trim().is_empty()), port)
    }

    /// As [`Self::from_environment`], from any words.
    pub fn from_words(word: impl Fn(&str) -> Option<String>, port: u16) -> Result<Option<Self>> {
        let number = |name: &'static str| {
            let read = |text: String| {
                text.trim().parse::<usize>().map_err(|_| fault(format!("`{name}` is `{text}`, not a number")))
            };
            word(name).map(read).transpose()
        };
        if let Some(list) = word("FOREBAY_PEERS") {
            let addresses: Vec<String> = list.split(',').map(|address| address.trim().to_owned()).collect();
            if let Some(own) = word("FOREBAY_PEER").filter(|own| own.contains(':')) {
                return Self::with_own(addresses, own.trim()).map(Some);
            }
            for name in ["FOREBAY_PEER", "GROUP_RANK", "SLURM_NODEID"] {
                if let Some(me) = number(name)? {
                    return Self::new(addresses, me).map(Some);
                }
            }
            return Err(fault("`FOREBAY_PEERS` is set, but nothing says which is ours")
                .with_hint("set FOREBAY_PEER to our own address or number"));
        }
        match (word("SLURM_JOB_NODELIST"), number("SLURM_NODEID")?) {
            (Some(list), Some(me)) => {
                let nodes =
                    expand_nodes(&list).map_err(|error| error.while_doing("share a cache among nodes"))?;
                Self::new(nodes.into_iter().map(|node| format!("{node}:{port}")).collect(), me).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// All addresses.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Our own number, unless we have left.
    pub fn me(&self) -> Option<usize> {
        self.addresses.iter().position(|address| *address == self.own)
    }

    /// Our own address.
    pub fn own(&self) -> &str {
        &self.own
    }
}

/// The nodes of a Slurm list such as `gpu[01-03,7],login`.
pub(crate) fn expand_nodes(list: &str) -> Result<Vec<String>> {
    let wrong = |why: &str| Error::invalid_config(format!("the list of nodes `{list}` {why}"));
    let mut nodes = Vec::new();
    let mut rest = list.trim();
    while !rest.is_empty() {
        // A comma inside brackets belongs to the numbers.
        let mut depth = 0;
        let end = rest.find(|letter| {
            depth += i32::from(letter == '[') - i32::from(letter == ']');
            letter == ',' && depth == 0
        });
        let (part, left) = end.map_or((rest, ""), |end| (&rest[..end], &rest[end + 1..]));
        let part = part.trim();
        if part.is_empty() {
            return Err(wrong("has an empty name"));
        }
        expand(part, &mut nodes).map_err(wrong)?;
        rest = left.trim_start();
    }
    Ok(nodes)
}

/// Adds the nodes of one name with any number of brackets.
fn expand(part: &str, nodes: &mut Vec<String>) -> std::result::Result<(), &'static str> {
    let Some((before, rest)) = part.split_once('[') else {
        if part.contains(']') {
            return Err("has brackets that do not match");
        }
        nodes.push(part.to_owned());
        return if nodes.len() > MOST { Err("names too many nodes") } else { Ok(()) };
    };
    let (numbers, after) = rest.split_once(']').ok_or("has brackets that do not match")?;
    for run in numbers.split(',') {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(first) || !digits(last) {
            return Err("has brackets without numbers");
        }
        let read = |text: &str| text.parse::<u64>().map_err(|_| "has a number that is too large");
        let (from, to) = (read(first)?, read(last)?);
        if from > to || to - from >= MOST as u64 {
            return Err("has a run of numbers that is no run, or too long");
        }
        for number in from..=to {
            expand(&format!("{before}{number:0width$}{after}", width = first.len()), nodes)?;
        }
    }
    Ok(())
}

fn fault(why: impl std::fmt::Display) -> Error {
    Error::invalid_config(format!("share a cache among nodes: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_of_slurm_are_expanded() {
        for (list, nodes) in [
            ("node", vec!["node"]),
            ("node[01-03,7]", vec!["node01", "node02", "node03", "node7"]),
            ("a[9-11]", vec!["a9", "a10", "a11"]),
            ("a[1,3]-ib,login, b[2]", vec!["a1-ib", "a3-ib", "login", "b2"]),
            ("r[1-2]n[1-2]", vec!["r1n1", "r1n2", "r2n1", "r2n2"]),
        ] {
            assert_eq!(expand_nodes(list).unwrap(), nodes, "{list}");
        }
        for list in ["a,,b", "a[", "a]", "a[]", "a[x]", "a[3-1]", "a[1-99999]", "a[1-]", "a[1-4096]b[1-4096]"]
        {
            assert!(expand_nodes(list).is_err(), "{list}");
        }
    }

    proptest! {
        #[test]
        fn any_list_is_expanded_or_refused(list in "[a-c0-9,\\[\\]-]{0,40}") {
            if let Ok(nodes) = expand_nodes(&list) {
                prop_assert!(nodes.len() <= MOST);
            }
        }
    }

    fn members(words: &[(&str, &str)]) -> Result<Option<Members>> {
        let find =
            |name: &str| words.iter().find(|(word, _)| *word == name).map(|(_, text)| (*text).to_owned());
        Members::from_words(find, 4100)
    }

    #[test]
    fn a_file_has_an_address_on_each_line() {
        let text = "a:1  # the first\n\n# nobody\nb:2\n";
        let members = Members::from_lines(text, "b:2").unwrap();
        assert_eq!((members.addresses().len(), members.me()), (2, Some(1)));
        assert_eq!(Members::from_lines(text, "c:3").unwrap().me(), None);
        for text in ["", "# nobody", "a", "a:1 b:2"] {
            assert!(Members::from_lines(text, "b:2").is_err(), "{text}");
        }
    }

    #[test]
    fn who_takes_part_comes_from_the_launcher() {
        assert_eq!(members(&[]).unwrap(), None);
        let slurm = members(&[("SLURM_JOB_NODELIST", "n[1-3]"), ("SLURM_NODEID", "2")]).unwrap().unwrap();
        assert_eq!((slurm.own(), slurm.addresses().len()), ("n3:4100", 3));
        let list = ("FOREBAY_PEERS", "a:1, b:2");
        for own in
            [("FOREBAY_PEER", "b:2"), ("FOREBAY_PEER", "1"), ("GROUP_RANK", "1"), ("SLURM_NODEID", "1")]
        {
            assert_eq!(members(&[list, own]).unwrap().unwrap().own(), "b:2", "{own:?}");
        }
        for words in [
            vec![list],
            vec![list, ("FOREBAY_PEER", "c:1")],
            vec![list, ("GROUP_RANK", "2")],
            vec![list, ("GROUP_RANK", "x")],
            vec![("FOREBAY_PEERS", "a"), ("GROUP_RANK", "0")],
            vec![("FOREBAY_PEERS", "a:0"), ("GROUP_RANK", "0")],
        ] {
            assert!(members(&words).is_err(), "{words:?}");
        }
    }
}
