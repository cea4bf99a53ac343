//! Locates the driver and the libraries, and describes missing ones.
//!
//! A library is loaded from the system's search path. Otherwise it is loaded by its full path from `CUDA_PATH`, the
//! usual folder, or NVIDIA's packages in the Python environment that `BILEVEL_CUDA_PYTHON` names; later requests by
//! name then find it.

use bilevel_graph::{Error, ErrorKind};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The variable that names a Python environment with NVIDIA's packages.
const PYTHON: &str = "BILEVEL_CUDA_PYTHON";

/// A library that a GPU needs, or that makes it faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The driver, `libcuda.so.1`.
    Driver,
    /// The kernel compiler, NVRTC.
    Nvrtc,
    /// The library for matrix products, cuBLASLt.
    CublasLt,
    /// The library for convolutions, cuDNN. Without it convolutions are slower.
    Cudnn,
}

impl Missing {
    /// Returns true if a GPU cannot be used without it.
    pub fn is_needed(self) -> bool {
        self != Missing::Cudnn
    }

    /// Returns a sentence that says which part is missing and how to install it.
    pub fn sentence(self) -> String {
        let elsewhere = format!("or name its folder in CUDA_PATH, or a Python environment that has it in {PYTHON}");
        match self {
            Missing::Driver => {
                "there is no NVIDIA driver (libcuda.so.1) on this machine; install the driver of the GPU, \
                                or use --device cpu"
                    .into()
            }
            Missing::Nvrtc => {
                format!("NVRTC (libnvrtc.so of CUDA 12.4 or later) was not found; install it, {elsewhere}")
            }
            Missing::CublasLt => {
                format!("cuBLASLt (libcublasLt.so of CUDA 12.4 or later) was not found; install it, {elsewhere}")
            }
            Missing::Cudnn => {
                format!("cuDNN 9 (libcudnn.so) was not found, so convolutions are slower; install it, {elsewhere}")
            }
        }
    }
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Error {
        Error::new(ErrorKind::Device { what: missing.sentence() })
    }
}

/// Which of the driver and the libraries are there, in the order in which they are needed; cuDNN, the last, is
/// optional.
///
/// ```
/// for (library, found) in bilevel_cuda::found_libraries() {
///     println!("{library:?}: {found}");
/// }
/// ```
pub fn found_libraries() -> [(Missing, bool); 4] {
    [Missing::Driver, Missing::Nvrtc, Missing::CublasLt, Missing::Cudnn].map(|library| (library, is_there(library)))
}

/// Returns an error if a library is missing.
pub(crate) fn require(library: Missing) -> Result<(), Missing> {
    if is_there(library) { Ok(()) } else { Err(library) }
}

/// Loads the required libraries on a background thread while the GPU is opened.
pub(crate) fn open_meanwhile() {
    std::thread::spawn(|| [Missing::Nvrtc, Missing::CublasLt].map(is_there));
}

fn is_there(library: Missing) -> bool {
    static FOUND: [OnceLock<bool>; 4] = [const { OnceLock::new() }; 4];
    *FOUND[library as usize].get_or_init(|| {
        let name = match library {
            Missing::Driver => return by_name("cuda") || by_name("nvcuda"),
            Missing::Nvrtc => "nvrtc",
            Missing::CublasLt => "cublasLt",
            Missing::Cudnn => "cudnn",
        };
        // Found in a folder: the request by name is repeated, because functions are resolved by name.
        by_name(name) || (folders().iter().any(|folder| open_with_parts(folder, name)) && by_name(name))
    })
}

/// Loads a library under the name by which its functions are resolved.
fn by_name(name: &str) -> bool {
    cudarc::get_lib_name_candidates(name).iter().any(keep_open)
}

/// Loads a library and keeps it loaded: unloading cuBLASLt (half a gigabyte) and loading it again would take a third of
/// a second.
fn keep_open(file: impl AsRef<OsStr>) -> bool {
    // SAFETY: NVIDIA's libraries run no relevant code when loaded.
    unsafe { libloading::Library::new(file) }.map(std::mem::forget).is_ok()
}

/// Returns further folders that may contain libraries.
fn folders() -> Vec<PathBuf> {
    let named = std::env::var_os("CUDA_PATH").map(PathBuf::from);
    let roots = named.into_iter().chain([PathBuf::from("/usr/local/cuda")]);
    let mut folders: Vec<PathBuf> = roots.flat_map(|root| [root.join("lib64"), root.join("lib")]).collect();
    if let Some(environment) = std::env::var_os(PYTHON) {
        for packages in entries(&Path::new(&environment).join("lib")) {
            let nvidia = packages.join("site-packages").join("nvidia");
            folders.extend(entries(&nvidia).into_iter().map(|package| package.join("lib")));
        }
    }
    folders
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Loads a library, and the companion that NVRTC would otherwise look for by name at its first compilation.
fn open_with_parts(folder: &Path, name: &str) -> bool {
    let opened = open_in(folder, &format!("lib{name}.so"));
    if opened {
        open_in(folder, &format!("lib{name}-builtins.so"));
    }
    opened
}

/// Loads a library of this name in any version.
fn open_in(folder: &Path, name: &str) -> bool {
    entries(folder).iter().rev().any(|path| {
        path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(name)) && keep_open(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_described_in_one_sentence_with_a_remedy() {
        let names = ["driver", "NVRTC", "cuBLASLt", "cuDNN"];
        for ((library, _), name) in found_libraries().into_iter().zip(names) {
            let said = Error::from(library).to_string();
            assert!(said.contains(name) && said.contains("install"), "{said}");
            assert!(!said.contains('\n') && !said.ends_with('.'), "{said}");
        }
    }

    #[test]
    fn a_library_is_found_in_a_folder_whatever_its_version_is_and_text_is_no_library() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!open_in(folder.path(), "libnvrtc.so"));
        std::fs::write(folder.path().join("libnvrtc.so.13"), "not a library").unwrap();
        assert!(!open_in(folder.path(), "libnvrtc.so"));
    }
}
