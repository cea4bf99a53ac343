//! cuDNN engines with their knobs: numerical properties, and a name that is stable across processes.

use crate::conv::canonical::Geometry;
use crate::conv::cudnn::descriptor::{CudnnResult, Descriptor};
use cudarc::cudnn::sys;
use sys::cudnnBackendAttributeName_t as Name;
use sys::cudnnBackendAttributeType_t as Type;
use sys::cudnnBackendBehaviorNote_t as Behaviour;
use sys::cudnnBackendDescriptorType_t as Kind;
use sys::cudnnBackendNumericalNote_t as Note;

/// The maximum number of notes of an engine.
const MAX_NOTES: usize = 32;
/// The maximum number of knobs of an engine.
const MAX_KNOBS: usize = 64;
/// Properties of engines that are nondeterministic, or less precise than a plain sum of products.
const REFUSED: [Note; 8] = [
    Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
    Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
    Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
    Note::CUDNN_NUMERICAL_NOTE_FFT,
    Note::CUDNN_NUMERICAL_NOTE_WINOGRAD,
    Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
    Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
    Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
];

/// Identifies an engine with its knobs within one version of the library: its number, then type and value of each knob,
/// sorted by type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EngineName(pub Vec<u64>);

/// An engine configuration that the library proposes.
pub(crate) struct Engine {
    /// The engine with its knobs.
    pub config: Descriptor,
    engine: Descriptor,
    /// Its numerical notes; `None` if they are not available.
    notes: Option<Vec<u32>>,
}

impl Engine {
    /// Reads the engine of a configuration.
    pub fn new(config: Descriptor) -> CudnnResult<Self> {
        let engine = Descriptor::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
        config.get(Name::CUDNN_ATTR_ENGINECFG_ENGINE, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &mut [engine.0])?;
        let notes = noted(&engine, Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type::CUDNN_TYPE_NUMERICAL_NOTE);
        Ok(Engine { config, engine, notes })
    }

    /// Returns true if it is deterministic, as precise as a plain sum of products, and rounds operands only if allowed.
    pub fn suits(&self, geometry: &Geometry) -> bool {
        let Some(notes) = &self.notes else { return false };
        let says = |note: Note| notes.contains(&(note as u32));
        let exact = geometry.rounds() || !says(Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
        exact && !REFUSED.into_iter().any(says)
    }

    /// Returns true if its kernels are compiled at run time, which takes about a second, or if that is unknown.
    pub fn is_compiled(&self) -> bool {
        let (name, kind) = (Name::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, Type::CUDNN_TYPE_BEHAVIOR_NOTE);
        let compiled = Behaviour::CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION as u32;
        noted(&self.engine, name, kind).is_none_or(|notes| notes.contains(&compiled))
    }

    /// Returns its name. If knobs are not available, all configurations of the engine have the same name.
    pub fn name(&self) -> CudnnResult<EngineName> {
        let mut number = [0i64];
        self.engine.get(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, Type::CUDNN_TYPE_INT64, &mut number)?;
        let mut knobs = self.knobs().unwrap_or_default();
        knobs.sort_unstable();
        let knobs = knobs.into_iter().flat_map(|(kind, value)| [u64::from(kind), value as u64]);
        Ok(EngineName([number[0] as u64].into_iter().chain(knobs).collect()))
    }

    /// Returns the type and value of each knob.
    fn knobs(&self) -> CudnnResult<Vec<(u32, i64)>> {
        let name = Name::CUDNN_ATTR_ENGINECFG_KNOB_CHOICES;
        let choices = self.config.referred(name, Kind::CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, MAX_KNOBS)?;
        let read = |choice: &Descriptor| {
            // As numbers, because a newer library may have knobs unknown here.
            let (mut kind, mut value) = ([0u32], [0i64]);
            choice.get(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, Type::CUDNN_TYPE_KNOB_TYPE, &mut kind)?;
            choice.get(Name::CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, Type::CUDNN_TYPE_INT64, &mut value)?;
            Ok((kind[0], value[0]))
        };
        choices.iter().map(read).collect()
    }
}

/// Returns the notes of an engine as numbers, because a newer library may have notes unknown here. `None` if they
/// cannot be read.
fn noted(engine: &Descriptor, name: Name, kind: Type) -> Option<Vec<u32>> {
    let mut notes = vec![0u32; MAX_NOTES];
    let count = engine.get(name, kind, &mut notes).ok().filter(|&count| count <= MAX_NOTES)?;
    notes.truncate(count);
    Some(notes)
}
