//! The renderer of CUDA C++.

use bilevel_gpu::codegen::kernel::{IndexWidth, Kernel, Param};
use bilevel_gpu::codegen::library;
use bilevel_gpu::codegen::parts::{Part, Parts};
use bilevel_gpu::codegen::renderer::Renderer;

/// CUDA C++, as NVRTC compiles it.
#[derive(Debug)]
pub(crate) struct CudaCpp;

impl Renderer for CudaCpp {
    fn thread(&self) -> &'static str {
        "threadIdx.x"
    }

    fn block(&self, axis: usize) -> &'static str {
        ["blockIdx.x", "blockIdx.y"][axis]
    }

    fn blocks(&self) -> &'static str {
        "gridDim.x"
    }

    fn barrier(&self) -> &'static str {
        "__syncthreads();"
    }

    fn shared(&self) -> &'static str {
        "__shared__"
    }

    fn aligned(&self) -> &'static str {
        "__align__(16)"
    }

    fn atomic_exchange(&self) -> &'static str {
        "atomicExch"
    }

    fn kernel(&self, kernel: &Kernel, name: &str) -> String {
        let index = match kernel.index {
            IndexWidth::Bits32 => "typedef u32 U; typedef int I;",
            IndexWidth::Bits64 => "typedef u64 U; typedef long long I;",
        };
        let bounds: Vec<String> = [kernel.block].into_iter().chain(kernel.min_blocks).map(|n| n.to_string()).collect();
        let head = format!("extern \"C\" __global__ void __launch_bounds__({})", bounds.join(", "));
        let params = |each: fn(&Param) -> String, between: &str| {
            kernel.params.iter().map(each).collect::<Vec<_>>().join(between)
        };
        let declared = params(Param::declaration, ", ");
        if kernel.batch == 1 {
            return format!("{index}\n{head} {name}({declared}) {{\n{}}}\n", kernel.body(self.blocks()));
        }
        // A grid-stride loop must use the number of blocks of its own launch.
        format!(
            "{index}\n__device__ __forceinline__ void part(const u32 blocks, {declared}) {{\n{}}}\n\
             struct Own {{ u64 blocks;{} }};\nstruct All {{ Own own[{}]; }};\n\
             {head} {name}(const All all) {{\n    const Own& own = all.own[blockIdx.z];\n    \
             if (blockIdx.x < own.blocks) part((u32)own.blocks, {});\n}}\n",
            kernel.body("blocks"),
            params(|param| format!(" alignas(8) {};", param.field()), ""),
            kernel.batch,
            params(|param| format!("own.{}", param.name()), ", "),
        )
    }

    fn library(&self, parts: Parts) -> String {
        let mut text = format!("{}{}", include_str!("cu/device.cu"), library::BASE);
        parts.iter().for_each(|part| text += &definitions(part));
        text
    }
}

/// Returns the definitions of a part.
fn definitions(part: Part) -> String {
    match part {
        Part::ScaledF16 => include_str!("cu/scaled_fp16.cu").into(),
        Part::BatchedMma => include_str!("cu/batched_mma.cu").into(),
        Part::FusedAttention => include_str!("cu/fused_attention.cu").into(),
        _ => library::definitions(part).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_gpu::codegen::batched_launch::batched_launch;
    use bilevel_gpu::codegen::{Arg, Code};
    use bilevel_graph::DType;
    use bilevel_plan::{Place, Region};

    #[test]
    fn each_part_has_arguments_of_its_own_and_goes_over_its_elements_with_its_own_blocks_alone() {
        let launch = |number: usize, blocks: usize| {
            let mut code = Code::new(&CudaCpp);
            let place = Place { region: Region::Input(number), offset: 0 };
            let (to, math) = (code.in_out(place, DType::F32, 0), code.number(0.1 * number as f64, DType::F32));
            code.with_blocks("for (U e = blockIdx.x; e < 100; e += ", format!(") {to}[e] *= {math};"));
            code.launch([blocks, 2], 64)
        };
        let parts = [launch(1, 3), launch(2, 7)];
        let both = batched_launch(&[&parts[0], &parts[1]]);
        assert_eq!((both.grid, both.kernel.batch, both.kernel.block), ([7, 2], 2, 64));
        let blocks = |number: usize| Arg::Count(u64::from(parts[number].grid[0]));
        assert_eq!(both.args, [&[blocks(0)], &parts[0].args[..], &[blocks(1)], &parts[1].args[..]].concat());
        let bound: Vec<Arg> = both.bound().map(|(_, arg)| *arg).collect();
        assert_eq!(bound, [&parts[0].args[..], &parts[1].args[..]].concat());
        let text = CudaCpp.kernel(&both.kernel, "kernel");
        for part in [
            "e += blocks)",
            "alignas(8) float* p0; alignas(8) float c1;",
            "Own own[2];",
            "part((u32)own.blocks, own.p0, own.c1)",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(CudaCpp.kernel(&parts[0].kernel, "kernel").contains("e += gridDim.x)"));
    }
}
