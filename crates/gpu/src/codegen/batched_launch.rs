//! Batched launches: several launches of one kernel as one, each with its own blocks and arguments.

use crate::codegen::kernel::{Arg, Launch};
use std::sync::Arc;

/// Returns the launch that runs all of these launches, which have the same kernel. Each is one slice of blocks along z.
pub fn batched_launch(launches: &[&Launch]) -> Launch {
    let first = launches[0];
    let args = launches.iter().flat_map(|launch| {
        let blocks = Arg::Count(u64::from(launch.grid[0]));
        [blocks].into_iter().chain(launch.args.iter().copied())
    });
    let blocks = launches.iter().map(|launch| launch.grid[0]).max().unwrap_or(0);
    Launch {
        kernel: Arc::new(first.kernel.batched(launches.len())),
        args: args.collect(),
        grid: [blocks, first.grid[1]],
        shared: first.shared,
    }
}
