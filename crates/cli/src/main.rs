//! The `forebay` binary: arguments in, exit code out. All it does is in the library.

fn main() {
    std::process::exit(forebay_cli::run(std::env::args().collect()));
}
