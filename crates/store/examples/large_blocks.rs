//! What answers of a hundred kilobytes cost when their memory is asked of the system each time, and when it is kept.
//!
//! `cargo run --release -p forebay-store --example large_blocks -- system|kept [GIGABYTES]`: one thread writes batches of 64
//! blocks of 40 to 190 KB, another lets go of each as it comes. Each way in a process of its own. Build it with
//! `--release`: other figures mean nothing.
#![expect(unsafe_code, reason = "an allocator is implemented by hand")]
#![expect(clippy::print_stdout, reason = "figures are all it is for")]

use forebay_core::{Error, Result};
use forebay_store::large::LargeBlocks;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;

const BATCH: usize = 64;

/// Either of the two: chosen before the first block.
struct Chosen {
    keeps: AtomicBool,
    kept: LargeBlocks,
}

#[global_allocator]
static ALLOCATOR: Chosen = Chosen { keeps: AtomicBool::new(false), kept: LargeBlocks::new() };

// SAFETY: both take the blocks of large sizes from the system; what is measured is chosen while no such block lives.
unsafe impl GlobalAlloc for Chosen {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { if self.keeps.load(Relaxed) { self.kept.alloc(layout) } else { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe {
            if self.keeps.load(Relaxed) {
                self.kept.dealloc(block, layout);
            } else {
                System.dealloc(block, layout);
            }
        }
    }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("kept") => ALLOCATOR.keeps.store(true, Relaxed),
        Some("system") => {}
        _ => return Err(Error::invalid_config("choose an allocator: `system` or `kept`")),
    }
    let gigabytes: f64 = args.next().and_then(|text| text.parse().ok()).unwrap_or(4.0);
    let source = vec![7u8; 16 << 10];
    let (sender, batches) = sync_channel::<Vec<Vec<u8>>>(0);
    let consumer = std::thread::spawn(move || batches.into_iter().map(|batch| batch.len()).sum::<usize>());
    let (cpu, faults) = spent();
    let (mut bytes, mut blocks, mut batch) = (0.0, 0_usize, Vec::new());
    while bytes < gigabytes * 1e9 {
        let length = 40_000 + blocks * 7919 % 150_000;
        let mut block = Vec::with_capacity(length);
        while block.len() < length {
            block.extend_from_slice(&source[..source.len().min(length - block.len())]);
        }
        batch.push(block);
        (bytes, blocks) = (bytes + length as f64, blocks + 1);
        if batch.len() == BATCH {
            let _ = sender.send(std::mem::take(&mut batch));
        }
    }
    drop(sender);
    let _ = consumer.join();
    let (cpu, faults) = (spent().0 - cpu, spent().1 - faults);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().trim();
    println!(
        "{:.3} CPU s/GB, {:.1} page faults a block, peak {peak}",
        cpu / gigabytes,
        faults / blocks as f64
    );
    Ok(())
}

/// Processor seconds and page faults of this process, from the fields behind its name.
fn spent() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
    ((field(11) + field(12)) / 100.0, field(7))
}
