//! The toy language: C++ for the host, with fibers for threads that wait for each other.

use crate::codegen::kernel::{IndexWidth, Kernel, Param, ParamType, c_type};
use crate::codegen::library;
use crate::codegen::parts::Parts;
use crate::codegen::renderer::Renderer;

/// C++ for the host.
#[derive(Debug)]
pub struct HostCpp;

impl Renderer for HostCpp {
    fn thread(&self) -> &'static str {
        "running.thread"
    }

    fn block(&self, axis: usize) -> &'static str {
        ["running.block[0]", "running.block[1]"][axis]
    }

    fn blocks(&self) -> &'static str {
        "running.blocks"
    }

    fn barrier(&self) -> &'static str {
        "barrier();"
    }

    fn shared(&self) -> &'static str {
        "static"
    }

    fn aligned(&self) -> &'static str {
        "__attribute__((aligned(16)))"
    }

    fn atomic_exchange(&self) -> &'static str {
        "exchange"
    }

    fn kernel(&self, kernel: &Kernel, name: &str) -> String {
        let index = match kernel.index {
            IndexWidth::Bits32 => "typedef u32 U; typedef int I;",
            IndexWidth::Bits64 => "typedef u64 U; typedef long long I;",
        };
        let param = |(number, param): (usize, &Param)| {
            let word = format!("args[{number}]");
            let value = match param.kind() {
                ParamType::Pointer(c) => format!("({c}*){word}"),
                ParamType::Count => format!("(U){word}"),
                ParamType::Number(dtype) => format!("number<{}>({word})", c_type(dtype)),
                ParamType::FailureRecord => format!("(u64*){word}"),
            };
            format!("    {} = {value};\n", param.field())
        };
        let params: String = kernel.params.iter().enumerate().map(param).collect();
        let (skip, words) = if kernel.batch > 1 { (1, kernel.params.len() + 1) } else { (0, kernel.params.len()) };
        let blocks = if kernel.batch > 1 { "(unsigned)own[0]" } else { "x" };
        format!(
            "{index}\nstatic void body(const Word* args) {{\n{params}{}}}\n\
             extern \"C\" void {name}(const Word* args, unsigned x, unsigned y) {{\n    \
             for (int part = 0; part < {}; ++part) {{\n    \
             const Word* own = args + part * {words};\n    \
             run(body, own + {skip}, {blocks}, y, {}, {});\n    }}\n}}\n",
            kernel.body(self.blocks()),
            kernel.batch,
            kernel.block,
            kernel.waits,
        )
    }

    fn library(&self, parts: Parts) -> String {
        let parts: String = parts.iter().filter_map(library::definitions).collect();
        [include_str!("header.h"), library::BASE, &parts].concat()
    }
}
