//! Whether tests can compile kernels here: for tests inside and outside the library.

/// True if NVRTC was found. If not, says that the test is skipped, or fails if `CI` is `true`: a test that never ran
/// must not look like one that passed.
pub fn can_compile(nvrtc_found: bool) -> bool {
    if !nvrtc_found {
        let ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        let what = "NVRTC was not found; install it and set BILEVEL_CUDA_PYTHON as .ci/run does";
        assert!(!ci, "{what}, or set CI=false");
        println!("skipped: {what}");
    }
    nvrtc_found
}
