//! One host's link, shared among its ranks.

use super::WindowLimits;

/// What one of `ranks` ranks on a host may use of the host's limits.
///
/// Only the caps are divided. The estimate of the link is each rank's own: ranks that fetch through one link
/// each see their fair part of it as the whole, and the windows that follow from what they see add up to the link's.
/// A number of requests set by hand means one rank's requests and is left alone.
#[must_use]
pub fn share(host: WindowLimits, ranks: usize) -> WindowLimits {
    let ranks = ranks.max(1);
    WindowLimits {
        max_bytes: (host.max_bytes / ranks as u64).max(1),
        max_requests: (host.max_requests / ranks).max(1),
        fixed_requests: host.fixed_requests,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_host_together_keep_within_its_limits() {
        let host = WindowLimits { max_bytes: 1000, max_requests: 64, fixed_requests: None };
        for ranks in 1..=64 {
            let rank = share(host, ranks);
            assert!(rank.max_bytes * ranks as u64 <= host.max_bytes);
            assert!(rank.max_requests * ranks <= host.max_requests);
        }
        let crowded = share(host, 5000);
        assert_eq!((crowded.max_bytes, crowded.max_requests), (1, 1), "every rank may have one request");
        assert_eq!(share(host, 0), host);
    }
}
