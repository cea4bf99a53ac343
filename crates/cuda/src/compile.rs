//! Kernels from their text: by NVRTC, on as many threads as there are cores, and kept on disk.

use crate::cache::Cache;
use crate::dnn::Dnn;
use crate::load::{Missing, require};
use crate::plan::plan;
use crate::source::whole;
use bilevel_graph::{Error, ErrorKind, Program, Result};
use cudarc::nvrtc::{result, sys};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The kind of GPU that machine code is for: 90 stands for `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Architecture(pub u32);

fn failed(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Device { what: what.into() })
}

/// Kernels compiled together: to start the compiler takes as long as to compile several of them.
const TOGETHER: usize = 8;

/// Machine code of some kernels.
pub(crate) struct Unit {
    /// The numbers of the kernels, of those that were asked for; the first is called `kernel_0`, and so on.
    pub kernels: Range<usize>,
    /// Their machine code.
    pub code: Vec<u8>,
}

/// Machine code for all of these kernels, from the cache where it is there.
pub(crate) fn compile_all(sources: &[&str], architecture: Architecture, cache: &Cache) -> Result<Vec<Unit>> {
    require(Missing::Nvrtc)?;
    let version = version()?;
    let target = format!("sm_{}", architecture.0);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let together = sources.len().div_ceil(cores).clamp(1, TOGETHER);
    let starts: Vec<usize> = (0..sources.len()).step_by(together).collect();
    let next = AtomicUsize::new(0);
    let made: Vec<Mutex<Option<Result<Unit>>>> = starts.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let (Some(&first), Some(slot)) = (starts.get(number), made.get(number)) else { return };
            let kernels = first..(first + together).min(sources.len());
            let text = whole(&sources[kernels.clone()]);
            let key = Cache::key(&[&text, &target, &version, "--fmad=false"]);
            let code = cache.get(&key).map(Ok);
            let code = code.unwrap_or_else(|| compile(&text, &target).inspect(|code| cache.put(&key, code)));
            let unit = code.map(|code| Unit { kernels, code });
            *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(unit);
        }
    };
    std::thread::scope(|scope| (0..cores.min(starts.len())).for_each(|_| drop(scope.spawn(work))));
    let taken = made.into_iter().map(|slot| slot.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner));
    taken.map(|unit| unit.unwrap_or_else(|| Err(failed("a kernel was not compiled")))).collect()
}

/// Compiles every kernel of a program for a kind of GPU, without one; the answer is how many there are. For tests on machines
/// that have NVRTC and no GPU.
///
/// ```
/// use bilevel_cuda::{Architecture, Missing, compile_program, found_libraries};
/// use bilevel_graph::{DType, Graph, Program};
/// let g = Graph::new();
/// let x = g.input("x", [100], DType::F32);
/// let program = Program::builder(&g).output("y", x.tanh()).build()?;
/// if found_libraries().contains(&(Missing::Nvrtc, true)) {
///     assert_eq!(compile_program(&program, Architecture(90))?, 1);
/// }
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub fn compile_program(program: &Program, architecture: Architecture) -> Result<usize> {
    compile_programs([program], architecture)
}

/// As [`compile_program`] for several programs, with each kernel compiled once however many of them have it.
pub fn compile_programs<'a>(
    programs: impl IntoIterator<Item = &'a Program>,
    architecture: Architecture,
) -> Result<usize> {
    let mut sources = BTreeSet::new();
    for program in programs {
        sources.extend(kernel_texts(program)?);
    }
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    compile_all(&sources, architecture, &Cache::at(None))?;
    Ok(sources.len())
}

/// The texts of a program's kernels, in the order in which they run, without what all kernels stand on; for tests and for people
/// who want to see what was fused.
///
/// ```
/// use bilevel_graph::{DType, Graph, Program};
/// let g = Graph::new();
/// let x = g.input("x", [100], DType::F32);
/// let program = Program::builder(&g).output("y", x.tanh() * 2.0).build()?;
/// let texts = bilevel_cuda::kernel_texts(&program)?;
/// assert!(texts.len() == 1 && texts[0].contains("op_tanh"));
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub fn kernel_texts(program: &Program) -> Result<Vec<String>> {
    kernel_texts_beside(program, None)
}

/// The same where convolutions are the library's.
pub(crate) fn kernel_texts_beside(program: &Program, dnn: Option<&Dnn>) -> Result<Vec<String>> {
    program.validate()?;
    Ok(plan(program, dnn)?.kernels().map(|launch| launch.source.clone()).collect())
}

/// The compiler's version: another one may make other code.
fn version() -> Result<String> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is there, and both pointers are to numbers.
    let status = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    match status {
        sys::nvrtcResult::NVRTC_SUCCESS => Ok(format!("nvrtc {major}.{minor}")),
        other => Err(failed(format!("NVRTC does not say its version: {other:?}"))),
    }
}

/// Machine code of a whole text.
fn compile(text: &str, target: &str) -> Result<Vec<u8>> {
    let text = CString::new(text).map_err(|_| failed("a kernel has a zero byte in its text"))?;
    let wrong = |what: &str, error: &dyn std::fmt::Debug| failed(format!("NVRTC could not {what}: {error:?}"));
    let program = result::create_program(&text, None).map_err(|e| wrong("take a kernel", &e))?;
    // Every operation is rounded on its own: what an element becomes must not depend on what else its kernel computes.
    let options = [format!("--gpu-architecture={target}"), "--std=c++17".to_string(), "--fmad=false".to_string()];
    // SAFETY: the program was made above, is destroyed once below, and the code has the size the compiler says.
    unsafe {
        let compiled = result::compile_program(program, &options);
        let code = match compiled {
            Ok(()) => {
                let mut size = 0;
                let mut status = sys::nvrtcGetCUBINSize(program, &mut size);
                let mut code = vec![0u8; size];
                if status == sys::nvrtcResult::NVRTC_SUCCESS {
                    status = sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast());
                }
                if status == sys::nvrtcResult::NVRTC_SUCCESS { Ok(code) } else { Err(wrong("give code", &status)) }
            }
            Err(error) => {
                let log = result::get_program_log(program).unwrap_or_default();
                let log: Vec<u8> = log.into_iter().map(|c| c as u8).take_while(|&c| c != 0).collect();
                Err(failed(format!("NVRTC could not compile a kernel ({error:?}): {}", String::from_utf8_lossy(&log))))
            }
        };
        let _ = result::destroy_program(program);
        code
    }
}
