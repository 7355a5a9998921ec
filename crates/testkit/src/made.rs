//! Made datasets on disk: folders of small JPEGs and tar shards, the same bytes for the same seed.

use crate::image::smooth_noise;
use crate::tar::TarMaker;
use forebay_ops::encode::{Subsampling, jpeg};
use forebay_ops::image::Image;
use std::fs;
use std::path::{Path, PathBuf};

/// What to make.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// Samples in all.
    pub samples: usize,
    /// Classes; sample `i` has class `i % classes`.
    pub classes: usize,
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
    /// Decides the pixels.
    pub seed: u64,
}

impl Default for Made {
    fn default() -> Self {
        Self { samples: 24, classes: 3, width: 48, height: 32, seed: 0 }
    }
}

impl Made {
    /// The JPEG of one sample.
    pub fn jpeg(&self, sample: usize) -> Vec<u8> {
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(sample as u64);
        noise_jpeg(seed, self.width, self.height)
    }

    /// The class of one sample.
    pub fn class(&self, sample: usize) -> usize {
        sample % self.classes
    }

    /// Writes `root/class_00/000000.jpg` and so on: one folder per class.
    pub fn tree(&self, root: &Path) {
        for sample in 0..self.samples {
            let folder = root.join(format!("class_{:02}", self.class(sample)));
            fs::create_dir_all(&folder).expect("the test's folder can be written");
            write(&folder.join(format!("{sample:06}.jpg")), &self.jpeg(sample));
        }
    }

    /// Writes `root/000000.jpg` and so on with a `labels.csv` of columns `file` and `label`.
    pub fn table(&self, root: &Path) {
        fs::create_dir_all(root).expect("the test's folder can be written");
        let mut labels = vec!["file,label".to_string()];
        for sample in 0..self.samples {
            let name = format!("{sample:06}.jpg");
            write(&root.join(&name), &self.jpeg(sample));
            labels.push(format!("{name},{}", self.class(sample)));
        }
        write(&root.join("labels.csv"), labels.join("\n").as_bytes());
    }

    /// Writes `root/train-000000.tar` and so on: samples of `jpg` and `cls`, spread evenly over `shards`.
    pub fn shards(&self, root: &Path, shards: usize) -> Vec<PathBuf> {
        fs::create_dir_all(root).expect("the test's folder can be written");
        let mut paths = Vec::new();
        for shard in 0..shards {
            let mut maker = TarMaker::new();
            for sample in self.samples * shard / shards..self.samples * (shard + 1) / shards {
                let class = self.class(sample).to_string();
                maker = maker.file(&format!("{sample:06}.jpg"), &self.jpeg(sample));
                maker = maker.file(&format!("{sample:06}.cls"), class.as_bytes());
            }
            let path = root.join(format!("train-{shard:06}.tar"));
            write(&path, &maker.finish());
            paths.push(path);
        }
        paths
    }
}

/// A JPEG of smooth noise, quality 90, color at half size.
pub fn noise_jpeg(seed: u64, width: u32, height: u32) -> Vec<u8> {
    let pixels = smooth_noise(seed, width as usize, height as usize);
    let image = Image::from_pixels(width, height, 3, pixels).expect("as many pixels as the size says");
    jpeg(&image, 90, Subsampling::S420).expect("an image of three channels can be encoded")
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("the test's folder can be written");
}
