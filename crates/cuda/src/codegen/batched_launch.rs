//! Batched launches: several kernels with the same text in one launch, each with its own blocks and arguments.

use crate::codegen::kernel::{Arg, Launch};

/// Returns the launch that runs all of these kernels, which have the same text and block size. Each is one slice of
/// blocks along z.
pub(crate) fn batched_launch(launches: &[&Launch]) -> Launch {
    let first = launches[0];
    let (head, rest) = first.source.split_once(" kernel(").unwrap_or_default();
    let (params, body) = rest.split_once(") {\n").unwrap_or_default();
    let (index, head) = head.split_once('\n').unwrap_or_default();
    // A declaration ends with a name.
    let names: Vec<&str> = params.split(", ").filter_map(|param| param.rsplit([' ', '*']).next()).collect();
    let fields: String =
        params.split(", ").map(|param| format!(" alignas(8) {};", param.trim_start_matches("const "))).collect();
    let own: Vec<String> = names.iter().map(|name| format!("own.{name}")).collect();
    // A grid-stride loop must use the number of blocks of its own kernel.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::Code;
    use bilevel_graph::DType;
    use bilevel_plan::{Place, Region};

    #[test]
    fn each_part_has_arguments_of_its_own_and_goes_over_its_elements_with_its_own_blocks_alone() {
        let launch = |number: usize, blocks: usize| {
            let mut code = Code::default();
            let place = Place { region: Region::Input(number), offset: 0 };
            let (to, factor) = (code.pointer(place, DType::F32, 0), code.number(0.1 * number as f64, DType::F32));
            code.line(format!("for (U e = blockIdx.x; e < 100; e += gridDim.x) {to}[e] *= {factor};"));
            code.launch([blocks, 2], 64)
        };
        let parts = [launch(1, 3), launch(2, 7)];
        let both = batched_launch(&[&parts[0], &parts[1]]);
        assert_eq!((both.grid, both.parts, both.block), ([7, 2], 2, 64));
        let blocks = |number: usize| Arg::Count(u64::from(parts[number].grid[0]));
        assert_eq!(both.args, [&[blocks(0)], &parts[0].args[..], &[blocks(1)], &parts[1].args[..]].concat());
        for text in [
            "e += blocks)",
            "alignas(8) float* p0; alignas(8) float c1;",
            "Own own[2];",
            "part((u32)own.blocks, own.p0, own.c1)",
        ] {
            assert!(both.source.contains(text), "{text} in\n{}", both.source);
        }
    }
}
