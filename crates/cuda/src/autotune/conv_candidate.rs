//! im2col candidates for convolutions: the steps that a program would run, on the memory of a trial.

use crate::compile::step::{Call, Work};
use crate::conv::canonical::Geometry;
use crate::conv::im2col::{Arrangement, arrangements, as_gemm};
use crate::runtime::device::Device;
use crate::runtime::launch::{PreparedLaunch, start};
use bilevel_gpu::codegen::Kernel;
use bilevel_gpu::compile::workspace::Workspace;
use bilevel_graph::Result;
use bilevel_plan::{Place, Region, internal_error};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time that a process may spend on preparing candidates, which compiles kernels and selects GEMMs: a first start
/// must not become much longer, however many convolutions there are. bf16 has a separate budget, because the library
/// compiles an engine for each, which takes a second.
const MAX_PREPARATION: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(4)];
/// Nanoseconds spent so far.
static SPENT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// A candidate that can be launched on any memory for x, w, y and a workspace.
pub(crate) struct ConvCandidate {
    pub arrangement: Arrangement,
    /// Its workspace in bytes.
    pub workspace: usize,
    works: Vec<(Work, PreparedLaunch)>,
}

/// Returns the candidates for a geometry. The caller must not hold the scratch memory, because GEMMs may be autotuned.
pub(crate) fn conv_candidates(device: &Arc<Device>, geometry: &Geometry) -> Vec<ConvCandidate> {
    let arrangements = arrangements(geometry);
    let (spent, most) = (&SPENT[usize::from(geometry.is_bf16())], MAX_PREPARATION[usize::from(geometry.is_bf16())]);
    if arrangements.is_empty() || Duration::from_nanos(spent.load(Ordering::Relaxed)) >= most {
        return vec![];
    }
    let begun = Instant::now();
    let planned: Vec<UncompiledCandidate> =
        arrangements.into_iter().map(|arrangement| UncompiledCandidate::new(geometry, arrangement)).collect();
    let kernels: Vec<Arc<Kernel>> = planned.iter().flat_map(UncompiledCandidate::kernels).cloned().collect();
    // All at once, because several kernels compile in little more time than one. Later requests hit the cache.
    let ready = match device.functions(&kernels) {
        Ok(_) => planned.into_iter().filter_map(|planned| planned.ready(device).ok()).collect(),
        Err(_) => vec![],
    };
    spent.fetch_add(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    ready
}

impl ConvCandidate {
    /// Submits all steps to a stream.
    ///
    /// # Safety
    /// The addresses must be those of x, w, y and the workspace, with no concurrent use.
    pub unsafe fn start(&self, device: &Arc<Device>, places: [u64; 4], branch: usize) -> Result<()> {
        let at = |place: Place| address(place, places);
        // SAFETY: the caller's promise; no kernel of a convolution reports errors.
        self.works.iter().try_for_each(|(work, ready)| unsafe { start(device, (work, ready), (at, 0), branch) })
    }
}

/// The steps of a candidate.
struct UncompiledCandidate {
    arrangement: Arrangement,
    workspace: usize,
    works: Vec<Work>,
}

impl UncompiledCandidate {
    fn new(geometry: &Geometry, arrangement: Arrangement) -> Self {
        let at = [0, 1, 2].map(|number| (Place { region: Region::Input(number), offset: 0 }, 0));
        let mut space = Workspace::new(None);
        let works = as_gemm(geometry, arrangement, at, &mut space);
        UncompiledCandidate { arrangement, workspace: space.bytes(), works }
    }

    fn kernels(&self) -> impl Iterator<Item = &Arc<Kernel>> {
        self.works.iter().filter_map(|work| if let Work::Kernel(launch) = work { Some(&launch.kernel) } else { None })
    }

    /// Loads its kernels and selects its GEMMs.
    fn ready(self, device: &Arc<Device>) -> Result<ConvCandidate> {
        let one = |work: Work| {
            let ready = match &work {
                Work::Kernel(launch) => {
                    let functions = device.functions(std::slice::from_ref(&launch.kernel))?;
                    PreparedLaunch::Kernel(functions.first().copied().ok_or_else(|| internal_error("a kernel"))?)
                }
                Work::Library(Call::Gemm(product)) => PreparedLaunch::Gemm(device.products()?.ready(product, device)?),
                _ => return Err(internal_error("a prepared launch of a candidate")),
            };
            Ok((work, ready))
        };
        let UncompiledCandidate { arrangement, workspace, works } = self;
        Ok(ConvCandidate { arrangement, workspace, works: works.into_iter().map(one).collect::<Result<_>>()? })
    }
}

/// Maps a place to the memory of a trial: x, w and y are inputs, and all else is workspace.
fn address(place: Place, [x, w, y, workspace]: [u64; 4]) -> u64 {
    let base = match place.region {
        Region::Input(0) => x,
        Region::Input(1) => w,
        Region::Input(_) => y,
        _ => workspace,
    };
    base + place.offset as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autotune::bench::Trial;
    use crate::conv::canonical::{ConvPass, ImageLayout};
    use crate::conv::im2col::tests::example;
    use bilevel_graph::Precision;
    use bilevel_graph::conformance::Dice;
    use bilevel_plan::StorageType;
    use cudarc::driver::result::{memcpy_dtoh_sync, memcpy_htod_sync};

    #[test]
    fn places_are_those_of_the_trial() {
        let at = |region, offset| address(Place { region, offset }, [1000, 2000, 3000, 4000]);
        assert_eq!([0, 1, 2].map(|number| at(Region::Input(number), 16)), [1016, 2016, 3016]);
        assert_eq!(at(Region::Arena, 256), 4256);
    }

    /// Computes the convolution by its definition, on integers and so exactly.
    fn expected(geometry: &Geometry, [x, w, y]: &[Vec<f32>; 3]) -> Vec<f32> {
        let Geometry { pass, x: xs, w: ws, y: ys, stride, padding, dilation, .. } = *geometry;
        let at = |shape: [usize; 4], i: [usize; 4]| -> usize {
            geometry.strides(shape).iter().zip(i).map(|(stride, i)| stride * i).sum()
        };
        let mut out = vec![0.0; [y, x, w][pass as usize].len()];
        let every = |[a, b, c, d]: [usize; 4]| {
            (0..a * b * c * d).map(move |i| [i / (b * c * d), i / (c * d) % b, i / d % c, i % d])
        };
        for ([n, k, oy, ox], [_, c, r, s]) in
            every(ys).flat_map(|y| every([1, ws[1], ws[2], ws[3]]).map(move |w| (y, w)))
        {
            let place = |i: usize, o: usize, r: usize| (o * stride[i] + r * dilation[i]).checked_sub(padding[i]);
            let (Some(u), Some(v)) = (place(0, oy, r), place(1, ox, s)) else { continue };
            if u < xs[2] && v < xs[3] {
                let (i, j, o) = (at(xs, [n, c, u, v]), at(ws, [k, c, r, s]), at(ys, [n, k, oy, ox]));
                match pass {
                    ConvPass::Fprop => out[o] += x[i] * w[j],
                    ConvPass::Dgrad => out[i] += y[o] * w[j],
                    ConvPass::Wgrad => out[j] += x[i] * y[o],
                }
            }
        }
        out
    }

    /// Returns integers as bytes, truncated to bf16 if necessary, which is exact.
    fn written(storage: StorageType, values: &[f32]) -> Vec<u8> {
        let upper = 4 - storage.size();
        values.iter().flat_map(|value| value.to_le_bytes().into_iter().skip(upper)).collect()
    }

    fn computed(
        device: &Arc<Device>,
        candidate: &ConvCandidate,
        geometry: &Geometry,
        values: &[Vec<f32>; 3],
    ) -> Result<Vec<f32>> {
        let wrong = |e| crate::runtime::device::failed("copy", e);
        let [x, w, y] = geometry.bytes();
        let trial = Trial::new(device, [x, w, y, candidate.workspace])?;
        device.wait()?;
        let (storage, which) = (geometry.storage, [2, 0, 1][geometry.pass as usize]);
        let mut out = written(storage, &vec![f32::NAN; values[which].len()]);
        // SAFETY: the places are as long as the values; all copies wait, and nothing else runs.
        unsafe {
            for (place, values) in trial.places(0).into_iter().zip(values) {
                memcpy_htod_sync(place, &written(storage, values)).map_err(wrong)?;
            }
            memcpy_htod_sync(trial.places(0)[which], &out).map_err(wrong)?;
            candidate.start(device, trial.places(0), crate::runtime::device::QUEUE)?;
            device.wait()?;
            memcpy_dtoh_sync(&mut out, trial.places(0)[which]).map_err(wrong)?;
        }
        let read = |bytes: &[u8]| bytes.iter().fold(0u32, |bits, &byte| bits >> 8 | u32::from(byte) << 24);
        Ok(out.chunks_exact(storage.size()).map(|bytes| f32::from_bits(read(bytes))).collect())
    }

    #[test]
    fn whole_numbers_are_written_as_the_bytes_a_gpu_reads() {
        assert_eq!(written(StorageType::F32, &[1.0, -3.0]), [0, 0, 0x80, 0x3f, 0, 0, 0x40, 0xc0]);
        assert_eq!(written(StorageType::Bf16, &[1.0, -3.0]), [0x80, 0x3f, 0x40, 0xc0]);
    }

    /// Geometries of a size: plain, with strides, and 1×1.
    fn examples(pass: ConvPass, [n, c, k, side]: [usize; 4]) -> [Geometry; 3] {
        let usual = example(pass, [n, c, k, side]);
        let halved = [n, k, side.div_ceil(2), side.div_ceil(2)];
        let plain = Geometry { w: [k, c, 1, 1], padding: [0, 0], ..usual };
        [usual, Geometry { stride: [2, 2], y: halved, ..usual }, plain]
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_gpu_computes_the_convolution_in_every_arrangement() {
        use Arrangement::{ByImage, Together};
        use ImageLayout::{Nchw, Nhwc};
        let device = Device::open(0).unwrap();
        let mut dice = Dice::new(7);
        let orders = [
            (Nchw, StorageType::F32, Together),
            (Nchw, StorageType::F32, ByImage),
            (Nhwc, StorageType::F32, Together),
            (Nhwc, StorageType::Bf16, Together),
        ];
        for (pass, [n, c, k, side]) in [ConvPass::Fprop, ConvPass::Dgrad, ConvPass::Wgrad]
            .into_iter()
            .flat_map(|pass| [[3, 8, 16, 8], [4, 12, 20, 5], [1, 16, 32, 7]].map(move |shape| (pass, shape)))
        {
            for (layout, storage, arrangement) in orders {
                if pass == ConvPass::Wgrad && arrangement == ByImage {
                    continue;
                }
                // bf16 channels come in whole loads.
                let [c, k] =
                    [c, k].map(
                        |channels: usize| {
                            if storage == StorageType::Bf16 { channels.next_multiple_of(8) } else { channels }
                        },
                    );
                for geometry in examples(pass, [n, c, k, side]) {
                    let geometry = Geometry { layout, storage, ..geometry };
                    let values = [geometry.x, geometry.w, geometry.y].map(|shape| {
                        (0..shape.iter().product()).map(|_| dice.below(9) as f32 - 4.0).collect::<Vec<f32>>()
                    });
                    let candidate = UncompiledCandidate::new(&geometry, arrangement).ready(&device).unwrap();
                    let made = computed(&device, &candidate, &geometry, &values).unwrap();
                    let round = |x: f32| if storage == StorageType::Bf16 { Precision::Bf16.round(x) } else { x };
                    let right: Vec<f32> = expected(&geometry, &values).into_iter().map(round).collect();
                    assert_eq!(made, right, "{arrangement:?} of {geometry:?}");
                }
            }
        }
    }
}
