//! The command: the first run, and the environment by itself.

fn main() {}
