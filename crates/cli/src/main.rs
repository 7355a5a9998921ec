//! The `forebay` binary: arguments in, exit code out. All it does is in the library.

use forebay_store::large::LargeBlocks;

/// Answers of remote stores are large and short-lived.
#[global_allocator]
static ALLOCATOR: LargeBlocks = LargeBlocks::new();

fn main() {
    std::process::exit(forebay_cli::run(std::env::args().collect()));
}
