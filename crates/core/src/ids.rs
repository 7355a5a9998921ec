//! The number that names a sample. A sample id is *what*; a position in a plan is *when*.

/// A sample's place in its manifest: `0..manifest.len()`. Stable for one dataset version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct SampleId(pub u64);

impl std::fmt::Display for SampleId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
