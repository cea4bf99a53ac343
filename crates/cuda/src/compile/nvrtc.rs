//! Compiles kernels by NVRTC on all cores, and caches the machine code on disk.

use crate::codegen::cuda_cpp::CudaCpp;
use crate::compile::disk_cache::Cache;
use crate::compile::plan::plan;
use crate::conv::cudnn::Dnn;
use crate::runtime::dynlib::{Missing, require};
use bilevel_gpu::codegen::{Kernel, Renderer, unit};
use bilevel_graph::{Error, ErrorKind, Program, Result};
use cudarc::nvrtc::{result, sys};
use std::collections::{BTreeMap, HashSet};
use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The compute capability that code is compiled for: 90 stands for `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Architecture(pub u32);

impl Architecture {
    /// Returns true if a block can have about 100 KiB of shared memory, and registers can feed tensor cores.
    pub(crate) fn has_fused_attention(self) -> bool {
        self.0 >= 80
    }
}

fn failed(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Device { what: what.into() })
}

/// The time to translate a kernel relative to the time to start a unit. For the kernels of a ViT it is about 5; a
/// smaller number is used because programs compiled concurrently wait for each other's parsing.
const TRANSLATION_COST: f64 = 2.0;

/// Compiler options. FMA contraction is off, because the bits of an element must not depend on the rest of its kernel.
/// `--minimal` omits unused declarations, which reduces the start-up time of a unit to 0.6.
const OPTIONS: [&str; 3] = ["--std=c++17", "--fmad=false", "--minimal"];

/// The machine code of some kernels.
pub(crate) struct Unit {
    /// Its unique cache key.
    pub key: String,
    /// The requested kernels in this unit with their numbers; number 0 is named `kernel_0`, and so on.
    pub kernels: Vec<(usize, u32)>,
    /// The machine code.
    pub code: Vec<u8>,
}

/// The compiler's version and target, which are part of every cache key.
struct Compiler<'a> {
    target: String,
    version: String,
    cache: &'a Cache,
}

/// Returns machine code for all of these kernels, from the cache if possible. Each kernel is found regardless of the
/// unit it was compiled in.
pub(crate) fn compile_all(kernels: &[Arc<Kernel>], architecture: Architecture, cache: &Cache) -> Result<Vec<Unit>> {
    require(Missing::Nvrtc)?;
    let compiler = Compiler { target: format!("sm_{}", architecture.0), version: version()?, cache };
    let text = |numbers: &[usize]| unit(&CudaCpp, numbers.iter().map(|&number| &*kernels[number]));
    let texts: Vec<String> = (0..kernels.len()).map(|number| text(&[number])).collect();
    let keys: Vec<String> = texts.iter().map(|text| compiler.key("kernel", text)).collect();
    let (mut units, unknown) = kept(&keys, cache);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let count = units_of(unknown.len(), cores);
    let parts = shared_out(unknown, |kernel| texts[kernel].len(), count);
    let next = AtomicUsize::new(0);
    let made: Vec<Mutex<Option<Result<Unit>>>> = parts.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let (Some(numbers), Some(slot)) = (parts.get(number), made.get(number)) else { return };
            let names: Vec<&str> = numbers.iter().map(|&kernel| &keys[kernel][..]).collect();
            let unit = compiler.unit(&text(numbers), &names);
            let unit = unit.map(|(key, code)| Unit { key, kernels: numbers.iter().copied().zip(0..).collect(), code });
            *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(unit);
        }
    };
    std::thread::scope(|scope| (0..cores.min(parts.len())).for_each(|_| drop(scope.spawn(work))));
    for slot in made {
        let unit = slot.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        units.push(unit.unwrap_or_else(|| Err(failed("a kernel was not compiled")))?);
    }
    Ok(units)
}

/// Returns the number of units for this many kernels. The compiler parses units one after the other, and only
/// translates them in parallel: u units of n kernels cost u starts, and the last unit has n/u kernels left to
/// translate.
///
///   u + n/u·[`TRANSLATION_COST`] is minimal at u = √(n·[`TRANSLATION_COST`])
fn units_of(kernels: usize, cores: usize) -> usize {
    let best = (kernels as f64 * TRANSLATION_COST).sqrt().ceil() as usize;
    best.min(cores).min(kernels)
}

/// Distributes kernels over this many units of similar compile time: the longest first, each to the shortest unit so
/// far. The first unit has the longest kernel.
fn shared_out(mut kernels: Vec<usize>, length: impl Fn(usize) -> usize, units: usize) -> Vec<Vec<usize>> {
    let mut units = vec![(0, vec![]); units];
    kernels.sort_by_cached_key(|&kernel| std::cmp::Reverse(length(kernel)));
    for kernel in kernels {
        if let Some((lengths, unit)) = units.iter_mut().min_by_key(|(lengths, _)| *lengths) {
            *lengths += length(kernel);
            unit.push(kernel);
        }
    }
    units.into_iter().map(|(_, unit)| unit).collect()
}

/// Returns the cached units of these kernels, and the indices of the others.
fn kept(keys: &[String], cache: &Cache) -> (Vec<Unit>, Vec<usize>) {
    let mut by_unit: BTreeMap<String, Vec<(usize, u32)>> = BTreeMap::new();
    let mut unknown = vec![];
    for (kernel, key) in keys.iter().enumerate() {
        match cache.get(key).and_then(|content| read_place(&content)) {
            Some((unit, number)) => by_unit.entry(unit).or_default().push((kernel, number)),
            None => unknown.push(kernel),
        }
    }
    let mut units = vec![];
    for (key, kernels) in by_unit {
        match cache.get(&key) {
            Some(code) => units.push(Unit { key, kernels, code }),
            None => unknown.extend(kernels.iter().map(|(kernel, _)| kernel)),
        }
    }
    unknown.sort_unstable();
    (units, unknown)
}

/// Serialises the location of a kernel: its number and the key of its unit.
fn place(unit: &str, number: u32) -> Vec<u8> {
    [&number.to_le_bytes()[..], unit.as_bytes()].concat()
}

fn read_place(content: &[u8]) -> Option<(String, u32)> {
    let (number, unit) = content.split_first_chunk()?;
    Some((String::from_utf8(unit.to_vec()).ok()?, u32::from_le_bytes(*number)))
}

impl Compiler<'_> {
    /// Returns the cache key of a text.
    fn key(&self, kind: &str, text: &str) -> String {
        Cache::key(&[&[kind, text, &self.target, &self.version][..], &OPTIONS].concat())
    }

    /// Compiles a text, and caches the code and the location of its kernels.
    fn unit(&self, text: &str, kernels: &[&str]) -> Result<(String, Vec<u8>)> {
        let (key, code) = (self.key("unit", text), compile(text, &self.target)?);
        self.cache.put(&key, &code);
        for (number, kernel) in (0..).zip(kernels) {
            self.cache.put(kernel, &place(&key, number));
        }
        Ok((key, code))
    }
}

/// Compiles every kernel of a program for a kind of GPU, without one; the answer is how many there are. For tests on
/// machines that have NVRTC and no GPU.
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

/// As [`compile_program`] for several programs, with each shared kernel compiled once.
pub fn compile_programs<'a>(
    programs: impl IntoIterator<Item = &'a Program>,
    architecture: Architecture,
) -> Result<usize> {
    let mut kernels = HashSet::new();
    for program in programs {
        kernels.extend(kernels_beside(program, None)?);
    }
    let kernels: Vec<_> = kernels.into_iter().collect();
    compile_all(&kernels, architecture, &Cache::at(None))?;
    Ok(kernels.len())
}

/// The texts of a program's kernels, in the order in which they run, without the common library; for tests, and to
/// inspect the fusion.
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
    Ok(kernels_beside(program, None)?.iter().map(|kernel| CudaCpp.kernel(kernel, "kernel")).collect())
}

/// Returns the kernels of a program in the order in which they run, with convolutions by cuDNN if given.
pub(crate) fn kernels_beside(program: &Program, dnn: Option<&Dnn>) -> Result<Vec<Arc<Kernel>>> {
    program.validate()?;
    Ok(plan(program, dnn, true)?.kernels().map(|launch| launch.kernel.clone()).collect())
}

/// Returns the compiler's version, which affects the code.
fn version() -> Result<String> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is there, and both pointers are to numbers.
    let status = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    match status {
        sys::nvrtcResult::NVRTC_SUCCESS => Ok(format!("nvrtc {major}.{minor}")),
        other => Err(failed(format!("NVRTC does not say its version: {other:?}"))),
    }
}

/// Compiles a text to machine code.
fn compile(text: &str, target: &str) -> Result<Vec<u8>> {
    let text = CString::new(text).map_err(|_| failed("a kernel has a zero byte in its text"))?;
    let wrong = |what: &str, error: &dyn std::fmt::Debug| failed(format!("NVRTC could not {what}: {error:?}"));
    let program = result::create_program(&text, None).map_err(|e| wrong("take a kernel", &e))?;
    let options = [&[format!("--gpu-architecture={target}")][..], &OPTIONS.map(String::from)].concat();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_kernels_are_in_separate_units_and_no_unit_is_empty() {
        let lengths = [1, 9, 1, 8, 2, 7, 1];
        let units = shared_out((0..7).collect(), |kernel| lengths[kernel], 4);
        assert_eq!(units, [vec![1], vec![3], vec![5], vec![4, 0, 2, 6]]);
        assert!(shared_out(vec![], |_| 1, 0).is_empty());
        assert_eq!([0, 1, 2, 3, 8, 60, 1000].map(|kernels| units_of(kernels, 16)), [0, 1, 2, 3, 4, 11, 16]);
        assert_eq!(units_of(60, 2), 2);
    }

    #[test]
    fn a_kernel_is_found_whichever_others_it_was_compiled_with_and_compiled_again_where_its_code_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(Some(folder.path().join("kernels")));
        let keys: Vec<String> = ["a", "b", "c", "d"].map(|text| Cache::key(&["kernel", text])).into();
        assert_eq!(kept(&keys, &cache).1, [0, 1, 2, 3]);
        let [first, second] = ["first", "second"].map(|text| Cache::key(&["unit", text]));
        cache.put(&first, b"code of a and c");
        cache.put(&keys[0], &place(&first, 0));
        cache.put(&keys[2], &place(&first, 1));
        cache.put(&keys[1], &place(&second, 0));
        let (units, unknown) = kept(&keys, &cache);
        assert_eq!(unknown, [1, 3], "the code of one is not there, the other is not known");
        assert_eq!(units.len(), 1);
        assert_eq!((&units[0].key, &units[0].kernels[..]), (&first, &[(0, 0), (2, 1)][..]));
        assert_eq!(units[0].code, b"code of a and c");
    }
}
