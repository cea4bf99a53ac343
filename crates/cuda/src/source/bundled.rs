//! Several kernels of one text as one: each has blocks of its own, and arguments.

use super::code::{Arg, Launch};

/// The kernel that does what all of these do, which have the same text and threads. Blocks along z are those of one of them each.
pub(crate) fn bundled(launches: &[&Launch]) -> Launch {
    let first = launches[0];
    let (head, rest) = first.source.split_once(" kernel(").unwrap_or_default();
    let (params, body) = rest.split_once(") {\n").unwrap_or_default();
    let (index, head) = head.split_once('\n').unwrap_or_default();
    // A declaration ends with a name.
    let names: Vec<&str> = params.split(", ").filter_map(|param| param.rsplit([' ', '*']).next()).collect();
    let fields: String =
        params.split(", ").map(|param| format!(" alignas(8) {};", param.trim_start_matches("const "))).collect();
    let own: Vec<String> = names.iter().map(|name| format!("own.{name}")).collect();
    // Who goes over more elements than there are threads has to know how many of them are its own.
    let body = body.replace("gridDim.x", "blocks");
    let source = format!(
        "{index}\n__device__ __forceinline__ void part(const u32 blocks, {params}) {{\n{body}\
         struct Own {{ u64 blocks;{fields} }};\nstruct All {{ Own own[{}]; }};\n\
         {head} kernel(const All all) {{\n    const Own& own = all.own[blockIdx.z];\n    \
         if (blockIdx.x < own.blocks) part((u32)own.blocks, {});\n}}\n",
        launches.len(),
        own.join(", "),
    );
    let args = launches.iter().flat_map(|launch| {
        let blocks = Arg::Count(u64::from(launch.grid[0]));
        [blocks].into_iter().chain(launch.args.iter().copied())
    });
    let blocks = launches.iter().map(|launch| launch.grid[0]).max().unwrap_or(0);
    Launch {
        source,
        args: args.collect(),
        grid: [blocks, first.grid[1]],
        parts: launches.len() as u32,
        ..first.clone()
    }
}
