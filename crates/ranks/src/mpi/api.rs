//! The functions of MPI that are called, for implementations whose handles are addresses and those whose handles are integers.

use bilevel_graph::{Result, rank_error};
use libloading::os::unix::Library;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

/// Calls from several threads, one at a time.
const SERIALIZED: c_int = 2;

type Begin = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
type End = unsafe extern "C" fn() -> c_int;
type Number<H> = unsafe extern "C" fn(H, *mut c_int) -> c_int;
type Abort<H> = unsafe extern "C" fn(H, c_int) -> c_int;
type Gather<H> = unsafe extern "C" fn(*const c_void, c_int, H, *mut c_void, *const c_int, *const c_int, H, H) -> c_int;
type Exchange<H> = unsafe extern "C" fn(
    *const c_void,
    *const c_int,
    *const c_int,
    H,
    *mut c_void,
    *const c_int,
    *const c_int,
    H,
    H,
) -> c_int;

/// The calls of MPI that are used.
pub(super) trait Calls: Send {
    fn begin(&self) -> Result<()>;
    fn rank(&self) -> Result<usize>;
    fn size(&self) -> Result<usize>;
    /// The bytes of every rank, of these lengths from these places on.
    fn gather(&self, own: &[u8], lengths: &[c_int], starts: &[c_int], all: &mut [u8]) -> Result<()>;
    /// Parts of these lengths to every rank, and from every rank.
    fn exchange(&self, send: &[u8], sent: &[c_int], receive: &mut [u8], received: &[c_int]) -> Result<()>;
    fn abort(&self);
    fn end(&self);
}

/// The functions of a library, with handles of type `H`.
pub(super) struct Api<H> {
    begin: Begin,
    end: End,
    rank: Number<H>,
    size: Number<H>,
    abort: Abort<H>,
    gather: Gather<H>,
    exchange: Exchange<H>,
    world: H,
    byte: H,
    /// The functions are in it.
    _library: Library,
}

// SAFETY: the handles are those of objects that live as long as the library, and calls are made one at a time.
unsafe impl<H> Send for Api<H> {}

impl Api<*mut c_void> {
    /// The calls of Open MPI: a handle is the address of an object of the library.
    pub fn open_mpi(library: Library) -> std::result::Result<Self, libloading::Error> {
        // SAFETY: these are objects of Open MPI, of which only the address is used.
        let object = |name: &[u8]| unsafe { library.get::<*mut c_void>(name).map(|symbol| symbol.into_raw()) };
        let (world, byte) = (object(b"ompi_mpi_comm_world\0")?, object(b"ompi_mpi_byte\0")?);
        Api::load(library, world, byte)
    }
}

impl Api<c_int> {
    /// The calls of MPICH: the handles are numbers of its binary interface.
    pub fn mpich(library: Library) -> std::result::Result<Self, libloading::Error> {
        Api::load(library, 0x4400_0000, 0x4c00_010d)
    }
}

impl<H: Copy> Api<H> {
    fn load(library: Library, world: H, byte: H) -> std::result::Result<Self, libloading::Error> {
        // SAFETY: the types are those of the functions in the MPI standard, with this implementation's handles.
        unsafe {
            Ok(Api {
                begin: *library.get(b"MPI_Init_thread\0")?,
                end: *library.get(b"MPI_Finalize\0")?,
                rank: *library.get(b"MPI_Comm_rank\0")?,
                size: *library.get(b"MPI_Comm_size\0")?,
                abort: *library.get(b"MPI_Abort\0")?,
                gather: *library.get(b"MPI_Allgatherv\0")?,
                exchange: *library.get(b"MPI_Alltoallv\0")?,
                world,
                byte,
                _library: library,
            })
        }
    }

    fn number(&self, function: Number<H>, name: &str) -> Result<usize> {
        let mut number = 0;
        // SAFETY: the communicator is the library's, and there is room for the number.
        check(name, unsafe { function(self.world, &mut number) })?;
        usize::try_from(number).map_err(|_| rank_error(format!("{name} returned {number}")))
    }
}

/// The first byte, or null if there is none: in Rust it would be address 1, which Open MPI takes for a mark
/// (`MPI_IN_PLACE`).
fn first(bytes: &[u8]) -> *const c_void {
    if bytes.is_empty() { null() } else { bytes.as_ptr().cast() }
}

fn first_mut(bytes: &mut [u8]) -> *mut c_void {
    if bytes.is_empty() { null_mut() } else { bytes.as_mut_ptr().cast() }
}

fn check(name: &str, code: c_int) -> Result<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(rank_error(format!("{name} failed with code {code}; the other ranks may have ended")))
    }
}

impl<H: Copy> Calls for Api<H> {
    fn begin(&self) -> Result<()> {
        let mut provided = 0;
        // SAFETY: MPI allows null in place of the arguments of the program.
        check("MPI_Init_thread", unsafe { (self.begin)(null_mut(), null_mut(), SERIALIZED, &mut provided) })?;
        if provided < SERIALIZED {
            return Err(rank_error("this build of MPI cannot be called from more than one thread; use one that can"));
        }
        Ok(())
    }

    fn rank(&self) -> Result<usize> {
        self.number(self.rank, "MPI_Comm_rank")
    }

    fn size(&self) -> Result<usize> {
        self.number(self.size, "MPI_Comm_size")
    }

    fn gather(&self, own: &[u8], lengths: &[c_int], starts: &[c_int], all: &mut [u8]) -> Result<()> {
        let room: usize = lengths.iter().map(|&n| n as usize).sum();
        let own_length = lengths[self.rank()?] as usize;
        if room > all.len() || own_length != own.len() {
            return Err(rank_error("a gather of parts that do not fit their lengths"));
        }
        let (from, to) = (first(own), first_mut(all));
        let (lengths, starts) = (lengths.as_ptr(), starts.as_ptr());
        // SAFETY: there is room for the bytes of all ranks, and each sends as many as its length says.
        let code =
            unsafe { (self.gather)(from, own.len() as c_int, self.byte, to, lengths, starts, self.byte, self.world) };
        check("MPI_Allgatherv", code)
    }

    fn exchange(&self, send: &[u8], sent: &[c_int], receive: &mut [u8], received: &[c_int]) -> Result<()> {
        let total = |lengths: &[c_int]| lengths.iter().map(|&n| n as usize).sum::<usize>();
        if total(sent) != send.len() || total(received) != receive.len() {
            return Err(rank_error("an exchange of parts that do not fit their lengths"));
        }
        let (from, to) = (super::starts(sent), super::starts(received));
        let into = first_mut(receive);
        // SAFETY: the parts are in the sent and received bytes, one after another.
        let code = unsafe {
            (self.exchange)(
                first(send),
                sent.as_ptr(),
                from.as_ptr(),
                self.byte,
                into,
                received.as_ptr(),
                to.as_ptr(),
                self.byte,
                self.world,
            )
        };
        check("MPI_Alltoallv", code)
    }

    fn abort(&self) {
        // SAFETY: the communicator is the library's.
        unsafe { (self.abort)(self.world, 1) };
    }

    fn end(&self) {
        // SAFETY: the library was initialised, and no call follows.
        unsafe { (self.end)() };
    }
}
