//! Networks for the processes of one test: a namespace for each node and one for the store between them, where root
//! may make them. Every node has two links, one to the store and one to its peers, so that peers can be cut off.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Most nodes of one test.
const NODES: usize = 4;
const PORT: u16 = 7846;

/// Namespaces that are removed with this; without them processes are on loopback.
pub(crate) struct Network {
    name: Option<String>,
    ports: Vec<u16>,
}

impl Network {
    pub(crate) fn new() -> Self {
        let name = format!("fb{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let network = Self { name: Some(name), ports: Vec::new() };
        if network.make() { network } else { Self::loopback() }
    }

    /// Every node has a loopback address of its own.
    pub(crate) fn loopback() -> Self {
        let listeners: Vec<_> = (0..NODES)
            .map(|node| std::net::TcpListener::bind(format!("127.0.0.{}:0", node + 2)).unwrap())
            .collect();
        let ports = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        Self { name: None, ports }
    }

    fn space(&self, node: usize) -> String {
        format!("{}n{node}", self.name.as_deref().unwrap_or_default())
    }

    fn hub(&self) -> String {
        format!("{}h", self.name.as_deref().unwrap_or_default())
    }

    fn make(&self) -> bool {
        let hub = self.hub();
        if !rustix::process::geteuid().is_root() || !ip(&["netns", "add", &hub]) {
            return false;
        }
        let mut made = ip(&["-n", &hub, "link", "set", "lo", "up"]);
        for (bridge, address) in [("store", "10.77.0.1/24"), ("peers", "10.78.0.1/24")] {
            made = made
                && ip(&["-n", &hub, "link", "add", bridge, "type", "bridge"])
                && ip(&["-n", &hub, "address", "add", address, "dev", bridge])
                && ip(&["-n", &hub, "link", "set", bridge, "up"]);
        }
        for node in 0..NODES {
            let space = self.space(node);
            made = made && ip(&["netns", "add", &space]) && ip(&["-n", &space, "link", "set", "lo", "up"]);
            for (bridge, net) in [("store", 77), ("peers", 78)] {
                let (near, address) = (format!("{bridge}{node}"), format!("10.{net}.0.{}/24", node + 2));
                made =
                    made && ip(&[
                        "-n", &hub, "link", "add", &near, "type", "veth", "peer", "name", bridge, "netns",
                        &space,
                    ]) && ip(&["-n", &hub, "link", "set", &near, "master", bridge, "up"])
                        && ip(&["-n", &space, "address", "add", &address, "dev", bridge])
                        && ip(&["-n", &space, "link", "set", bridge, "up"]);
            }
        }
        made
    }

    /// What a node's program is run behind.
    pub(crate) fn before_node(&self, node: usize) -> Vec<String> {
        self.before(&self.space(node))
    }

    pub(crate) fn before_store(&self) -> Vec<String> {
        self.before(&self.hub())
    }

    fn before(&self, space: &str) -> Vec<String> {
        if self.name.is_none() {
            return Vec::new();
        }
        ["ip", "netns", "exec", space].map(str::to_owned).to_vec()
    }

    pub(crate) fn store_host(&self) -> &'static str {
        if self.name.is_some() { "10.77.0.1" } else { "127.0.0.1" }
    }

    /// Where a node's peers find it.
    pub(crate) fn address(&self, node: usize) -> String {
        match self.ports.get(node) {
            Some(port) => format!("127.0.0.{}:{port}", node + 2),
            None => format!("10.78.0.{}:{PORT}", node + 2),
        }
    }

    pub(crate) fn can_cut(&self) -> bool {
        self.name.is_some()
    }

    /// Takes the link to a node's peers down, or up again.
    pub(crate) fn set_link(&self, node: usize, up: bool) {
        assert!(ip(&[
            "-n",
            &self.hub(),
            "link",
            "set",
            &format!("peers{node}"),
            if up { "up" } else { "down" }
        ]));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if self.name.is_some() {
            for space in (0..NODES).map(|node| self.space(node)).chain([self.hub()]) {
                ip(&["netns", "delete", &space]);
            }
        }
    }
}

fn ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).output().is_ok_and(|done| done.status.success())
}
