//! The elements of an array: aligned memory of its own, a vector's, or memory of another owner. Clones share it until one is changed.

use std::alloc::{Layout, alloc, dealloc};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Numbers in a row, shared by their clones: a change through one of them copies the numbers first if there are others.
///
/// Memory that is allocated here begins at a multiple of [`ALIGNMENT`](Self::ALIGNMENT), so that other libraries take it without a copy.
/// A vector keeps its memory, and so does any other owner.
///
/// ```
/// use bilevel_graph::{Array, Data, Elements};
/// let shared: std::sync::Arc<[f64]> = vec![1.0, 2.0].into();
/// let elements = Elements::of_owner(shared.clone());
/// assert_eq!(elements.as_ptr(), shared.as_ptr());
/// let array = Array::new([2], Data::F64(elements))?;
/// assert_eq!(array.to_f64(), [1.0, 2.0]);
/// # Ok::<(), bilevel_graph::Error>(())
/// ```
pub struct Elements<T: Copy> {
    memory: Arc<Memory<T>>,
}

/// The numbers and the owner of their memory.
struct Memory<T: Copy> {
    first: NonNull<T>,
    count: usize,
    owner: Owner,
}

enum Owner {
    /// They were allocated here, with this layout.
    Allocation(Layout),
    /// They were a vector's of this capacity.
    Vector(usize),
    /// They are another's, who is only kept alive. They are never changed.
    Other(#[allow(dead_code)] Arc<dyn Send + Sync>),
}

// SAFETY: the memory is owned as a vector or an `Arc` would own it, and shared references to it only read.
unsafe impl<T: Copy + Send + Sync> Send for Memory<T> {}
// SAFETY: as above.
unsafe impl<T: Copy + Send + Sync> Sync for Memory<T> {}

impl<T: Copy> Drop for Memory<T> {
    fn drop(&mut self) {
        match self.owner {
            // SAFETY: allocated in `allocated` with this layout.
            Owner::Allocation(layout) => unsafe { dealloc(self.first.as_ptr().cast(), layout) },
            // SAFETY: taken apart in `from`, and numbers need no drop.
            Owner::Vector(capacity) => drop(unsafe { Vec::from_raw_parts(self.first.as_ptr(), 0, capacity) }),
            Owner::Other(_) => {}
        }
    }
}

impl<T: Copy> Elements<T> {
    /// The alignment of allocated memory, in bytes.
    pub const ALIGNMENT: usize = 64;

    /// Aligned memory for this many numbers, which `fill` writes; `None` if the allocation fails.
    fn allocated(count: usize, fill: impl FnOnce(*mut T)) -> Option<Self> {
        let layout = Layout::array::<T>(count).ok()?.align_to(Self::ALIGNMENT).ok()?;
        if layout.size() == 0 {
            return Some(vec![].into());
        }
        // SAFETY: the layout is not empty.
        let first = NonNull::new(unsafe { alloc(layout) }.cast::<T>())?;
        fill(first.as_ptr());
        Some(Elements { memory: Arc::new(Memory { first, count, owner: Owner::Allocation(layout) }) })
    }

    /// This number, repeated this many times; `None` if the allocation fails.
    pub(crate) fn repeated(number: T, count: usize) -> Option<Self> {
        // SAFETY: the memory has room for `count` numbers.
        Self::allocated(count, |first| (0..count).for_each(|place| unsafe { first.add(place).write(number) }))
    }

    /// A copy in aligned memory.
    pub fn copied(numbers: &[T]) -> Self {
        // SAFETY: the memory has room for as many numbers, and there is no other handle to it.
        let fill = |first: *mut T| unsafe { first.copy_from_nonoverlapping(numbers.as_ptr(), numbers.len()) };
        Self::allocated(numbers.len(), fill).unwrap_or_else(|| numbers.to_vec().into())
    }

    /// The numbers of an owner, without a copy. It is kept until the last clone is dropped.
    pub fn of_owner<O: AsRef<[T]> + Send + Sync + 'static>(owner: O) -> Self {
        // In its final place before it is asked: what it owns may be inside it.
        let owner = Arc::new(owner);
        let numbers: &[T] = (*owner).as_ref();
        let (first, count) = (NonNull::from(numbers).cast(), numbers.len());
        Elements { memory: Arc::new(Memory { first, count, owner: Owner::Other(owner) }) }
    }

    /// True if the address is a multiple of [`ALIGNMENT`](Self::ALIGNMENT). A vector's never counts as such: it would be one by chance.
    pub fn is_aligned(&self) -> bool {
        !matches!(self.memory.owner, Owner::Vector(_)) && self.memory.first.addr().get().is_multiple_of(Self::ALIGNMENT)
    }

    /// True if this is the only handle to the memory, and it has no foreign owner.
    pub fn is_unique(&mut self) -> bool {
        Arc::get_mut(&mut self.memory).is_some_and(|memory| !matches!(memory.owner, Owner::Other(_)))
    }

    /// The numbers, to change: a copy of them if others share them.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        if !self.is_unique() {
            *self = Self::copied(self);
        }
        let Memory { first, count, .. } = &*self.memory;
        // SAFETY: there is no other handle, and `self` is borrowed for as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), *count) }
    }

    /// As a vector: the original one if this is its only handle, else a copy.
    pub fn into_vec(self) -> Vec<T> {
        match Arc::try_unwrap(self.memory) {
            Ok(memory) if matches!(memory.owner, Owner::Vector(_)) => {
                let memory = std::mem::ManuallyDrop::new(memory);
                let Owner::Vector(capacity) = memory.owner else { return vec![] };
                // SAFETY: taken apart in `from`, and not freed by the drop of `memory`.
                unsafe { Vec::from_raw_parts(memory.first.as_ptr(), memory.count, capacity) }
            }
            Ok(memory) => Elements { memory: Arc::new(memory) }.to_vec(),
            Err(memory) => Elements { memory }.to_vec(),
        }
    }
}

impl<T: Copy> Deref for Elements<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory holds `count` numbers for as long as it exists, and shared memory is never written.
        unsafe { std::slice::from_raw_parts(self.memory.first.as_ptr(), self.memory.count) }
    }
}

/// Takes the memory of the vector.
impl<T: Copy> From<Vec<T>> for Elements<T> {
    fn from(numbers: Vec<T>) -> Self {
        let mut numbers = std::mem::ManuallyDrop::new(numbers);
        let (count, capacity) = (numbers.len(), numbers.capacity());
        let first = NonNull::new(numbers.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Elements { memory: Arc::new(Memory { first, count, owner: Owner::Vector(capacity) }) }
    }
}

impl<T: Copy> FromIterator<T> for Elements<T> {
    fn from_iter<I: IntoIterator<Item = T>>(numbers: I) -> Self {
        numbers.into_iter().collect::<Vec<T>>().into()
    }
}

impl<T: Copy> Clone for Elements<T> {
    fn clone(&self) -> Self {
        Elements { memory: self.memory.clone() }
    }
}

impl<T: Copy + PartialEq> PartialEq for Elements<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for Elements<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts how often it is dropped.
    struct Watched(Vec<f32>, Arc<AtomicUsize>);

    impl AsRef<[f32]> for Watched {
        fn as_ref(&self) -> &[f32] {
            &self.0
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_owner_is_kept_until_the_last_clone_is_dropped() {
        let drops = Arc::new(AtomicUsize::new(0));
        let elements = Elements::of_owner(Watched(vec![1.0, 2.0], drops.clone()));
        let clone = elements.clone();
        drop(elements);
        assert_eq!((&clone[..], drops.load(Ordering::Relaxed)), (&[1.0, 2.0][..], 0));
        drop(clone);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn numbers_inside_an_owner_stay_where_they_are() {
        let elements = Elements::of_owner([1, 2, 3]);
        let moved = Box::new(elements);
        assert_eq!(&moved[..], [1, 2, 3]);
    }

    #[test]
    fn a_change_copies_what_others_share_or_own() {
        let drops = Arc::new(AtomicUsize::new(0));
        let mut foreign = Elements::of_owner(Watched(vec![1.0, 2.0], drops.clone()));
        foreign.as_mut_slice()[0] = 5.0;
        assert_eq!((&foreign[..], drops.load(Ordering::Relaxed)), (&[5.0, 2.0][..], 1));
        let before = foreign.as_ptr();
        foreign.as_mut_slice()[1] = 6.0;
        assert_eq!((foreign.as_ptr(), &foreign[..]), (before, &[5.0, 6.0][..]), "its own memory is changed in place");
        let kept = foreign.clone();
        foreign.as_mut_slice()[0] = 0.0;
        assert_eq!((&kept[..], &foreign[..]), (&[5.0, 6.0][..], &[0.0, 6.0][..]));
    }

    #[test]
    fn what_is_allocated_here_is_aligned() {
        for count in [1, 2, 3, 100, 4097] {
            assert!(Elements::repeated(1.5f64, count).is_some_and(|e| e.is_aligned() && e.iter().all(|&x| x == 1.5)));
            assert!(Elements::copied(&vec![7i32; count]).is_aligned());
        }
        assert_eq!(Elements::<f32>::repeated(0.0, 0).map(|e| e.len()), Some(0));
        assert!(Elements::repeated(0.0f64, usize::MAX / 8).is_none(), "more than there can be");
        assert!(Elements::repeated(0.0f64, usize::MAX).is_none());
    }

    #[test]
    fn a_vector_keeps_its_memory_in_and_out() {
        let mut vector = Vec::with_capacity(10);
        vector.extend([1.0, 2.0, 3.0]);
        let first = vector.as_ptr();
        let elements = Elements::from(vector);
        assert_eq!(elements.as_ptr(), first);
        let back = elements.clone().into_vec();
        assert_ne!(back.as_ptr(), first, "another still has it");
        let back = elements.into_vec();
        assert_eq!((back.as_ptr(), back), (first, vec![1.0, 2.0, 3.0]));
        assert_eq!(Elements::<i32>::from(vec![]).into_vec(), Vec::<i32>::new());
        assert_eq!(Elements::copied(&[4, 5]).into_vec(), [4, 5]);
    }
}
